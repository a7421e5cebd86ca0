"""What differs by protocol on a WebSocket connection."""
