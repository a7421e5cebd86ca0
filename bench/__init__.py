"""What tapeway costs, measured beside a baseline in the same run."""
