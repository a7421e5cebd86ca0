"""The differences between protocols on a WebSocket connection."""
