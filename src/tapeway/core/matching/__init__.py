"""What makes two requests equal: the request as a document, rules, and the match key."""
