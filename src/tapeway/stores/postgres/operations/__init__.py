"""What is done in transactions on the tables: statements and what is made of their rows."""
