"""What several stores need: columns, files that are durable, disk work in order."""
