"""What processes on one SQLite store share: cursors, leases, mode."""
