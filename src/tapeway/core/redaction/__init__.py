"""What a secret is, how it is replaced, and the last check before anything is written."""
