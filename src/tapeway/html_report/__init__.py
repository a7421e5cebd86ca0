"""A run as one HTML file: a summary, and the page with the answers of the admin API."""
