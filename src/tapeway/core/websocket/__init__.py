"""WebSocket messages: a request protocol divides a connection into turns, or it is one session."""
