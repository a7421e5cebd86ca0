"""Rules for tests of `auto` in which a take answers any request again that it has recorded."""

from pathlib import Path

from tapeway.core.matching.rules import Rules

METHODS = (
    *(
        "COPY",
        "DELETE",
        "GET",
        "HEAD",
        "MKCOL",
        "MOVE",
        "OPTIONS",
        "PATCH",
        "POST",
        "PROPFIND",
        "PURGE",
    ),
    *("PUT", "QUERY", "REPORT", "SEARCH", "M-SEARCH"),
)
REUSED = Rules(reuse=tuple(f"{method} /**" for method in METHODS))


def reuse_all(folder: Path) -> None:
    """Have a tapeway that starts in this folder answer any request again."""
    rules = ", ".join([f'"{rule}"' for rule in REUSED.reuse])
    (folder / "tapeway.toml").write_text(f"[rules]\nreuse = [{rules}]\n")
