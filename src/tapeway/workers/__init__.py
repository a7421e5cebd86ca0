"""Several processes that serve one port, and the one that looks after them."""
