"""Changes to cassettes while they are served."""
