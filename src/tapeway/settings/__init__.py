"""Options: every one of them once, where values come from, and how they are written."""
