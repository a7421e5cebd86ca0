"""Several processes serve one port; a supervisor starts and replaces them."""
