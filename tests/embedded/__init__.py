"""A tapeway of one's own, as `import tapeway` gives it."""
