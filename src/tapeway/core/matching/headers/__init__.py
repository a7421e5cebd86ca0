"""What the header fields of equal requests decide: which recordings are meant, and which comes first."""
