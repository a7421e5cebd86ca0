"""A tapeway of one's own, for Python programs: started, called and stopped."""
