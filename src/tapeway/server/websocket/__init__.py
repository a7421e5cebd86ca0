"""WebSocket connections on the proxy listener: relayed, recorded and replayed."""
