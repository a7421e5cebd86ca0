"""The admin API: control and inspection of a running tapeway over HTTP."""
