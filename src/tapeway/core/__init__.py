"""Pure code: requests, recordings and how they match; no clock, no I/O, no async."""
