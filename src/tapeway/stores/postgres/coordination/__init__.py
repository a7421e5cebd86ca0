"""What instances on one database share: cursors, leases, mode."""
