"""Where the APIs of providers hand out addresses in JSON bodies for clients to follow.

The Gemini API hands out upload addresses in a header, and the clients of Google ask for a file by the
name in the address.
"""

from tapeway.core.matching.json_paths import Path, parse_path

ANTHROPIC = ("results_url", "data[*].results_url")
"""Of a batch, and of each batch in a list."""
REPLICATE = ("urls.*", "results[*].urls.*")
FAL = ("status_url", "response_url", "cancel_url")
MICROSOFT = ("nextLink", "@nextLink", '["@odata.nextLink"]', '["@odata.deltaLink"]')
"""The next page of a list, in OData and in the APIs of Azure."""

HANDED_OUT: tuple[Path, ...] = tuple(map(parse_path, (*ANTHROPIC, *REPLICATE, *FAL, *MICROSOFT)))
