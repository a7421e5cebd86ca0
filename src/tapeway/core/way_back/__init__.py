"""The way back: what a response hands out leads its client through the proxy again."""
