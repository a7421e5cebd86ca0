"""A run as one HTML file: the page with what it would have asked the admin API."""
