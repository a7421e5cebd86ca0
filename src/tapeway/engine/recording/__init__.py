"""One call to the upstream, from the request to the durable recording."""
