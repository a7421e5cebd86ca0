"""WebSocket messages: request protocols divide them into turns, anything else is one session."""
