"""The pydantic models of the admin API: queries, bodies and responses."""
