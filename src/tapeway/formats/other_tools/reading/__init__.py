"""What the formats of other tools are read with."""
