"""What operations of the admin API carry and are answered with."""
