"""HTTP as the proxy needs it: headers, request lines, routing, content codings, forms."""
