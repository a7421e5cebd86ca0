"""Why an interaction has no place in a format that knows only requests and their answers."""

from tapeway.core.model.interaction import ForeignInteraction, Interaction


def unfit(item: Interaction | ForeignInteraction, tool: str, *, failures: bool = False) -> str:
    """The reason, or "" for one that fits; `failures` where the format can tell of those."""
    if isinstance(item, ForeignInteraction):
        said = item.document.get("kind")
        kind = "another tool's error" if said == "http" else f"a recording of kind '{said}'"
        return f"is {kind}, and {tool} holds only requests and their answers"
    if item.failure is not None and not failures:
        return f"is a recorded failure, which {tool} has no way to tell"
    if item.request.file is not None or item.response.file is not None:
        return f"its large body lies in a file beside the cassette, and {tool} holds bodies in the text"
    return ""
