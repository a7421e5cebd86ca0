"""A run as one HTML file: a summary, and the page with what it would have asked the admin API."""
