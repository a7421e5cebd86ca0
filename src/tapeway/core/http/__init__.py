"""HTTP: headers, request lines, routing, content codings, forms."""
