"""Several processes that serve one port, and the supervisor that starts and replaces them."""
