"""What answers each operation of the admin API."""
