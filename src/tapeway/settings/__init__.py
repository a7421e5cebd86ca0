"""Every option once: the sources of values, and the notation of values."""
