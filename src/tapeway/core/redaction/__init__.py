"""What a secret is, taking it out, and the last check before anything is written."""
