"""Calls to upstreams over aiohttp's client: no retries, no redirects, no added headers."""
