"""Who may import whom.

`errors <- core <- formats <- stores`, `core <- providers`, `core <- ports <- broker <- server,
admin <- cli`.
"""

# A layer is a module or folder right below the package. It may import itself and what stands here.
ALLOWED: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "logs": frozenset({"errors"}),
    "hops": frozenset(),
    "core": frozenset({"errors"}),
    "providers": frozenset({"core", "errors"}),
    "formats": frozenset({"core", "errors"}),
    "ports": frozenset({"core", "errors"}),
    "journal": frozenset({"core", "errors"}),
    "explanation": frozenset({"core", "errors"}),
    "spool": frozenset({"core", "errors"}),
    "inspection": frozenset({"core", "formats"}),
    "transcripts": frozenset({"core", "providers", "spool"}),
    "watching": frozenset({"core", "ports"}),
    "history": frozenset({"core", "errors", "formats", "ports", "stores"}),
    "stores": frozenset({"core", "errors", "formats", "hops", "ports", "spool"}),
    "upstream": frozenset({"core", "errors", "ports", "spool"}),
    "settings": frozenset({"core", "errors", "providers"}),
    "tape": frozenset({"core", "errors", "spool"}),
    "feed": frozenset({"core", "tape"}),
    "keeping": frozenset({"core", "errors", "ports", "spool"}),
    "live": frozenset({"core", "errors", "feed", "keeping", "ports", "providers", "spool", "tape"}),
    "report": frozenset({"core", "errors"}),
    # What Python programs import: for them it has to be small.
    "integrations": frozenset(
        {"core", "errors", "formats", "inspection", "ports", "settings", "spool", "stores"}
    ),
    "library": frozenset(
        {"core", "errors", "formats", "inspection", "integrations", "ports", "settings"}
    ),
    "report_forms": frozenset({"core", "errors", "report"}),
    "sharing": frozenset({"core", "errors", "feed", "live"}),
    "second_look": frozenset({"core", "errors"}),
    "rulebook": frozenset({"core", "errors", "ports"}),
    "planner": frozenset({"core", "errors", "keeping"}),
    "loaded": frozenset(
        {
            *("core", "errors", "feed", "planner", "ports", "report", "rulebook", "second_look"),
            "sharing",
            "watching",
        }
    ),
    "view": frozenset({"core", "errors"}),
    "stock": frozenset({"core", "loaded", "ports", "report"}),
    "naming": frozenset({"core", "ports", "second_look"}),
    "flights": frozenset({"core", "errors", "ports", "sharing"}),
    "shelves": frozenset(
        {
            *("core", "errors", "feed", "flights", "loaded", "naming", "planner", "ports"),
            *("report", "rulebook", "second_look", "sharing", "stock", "view"),
        }
    ),
    "editing": frozenset(
        {"core", "errors", "formats", "inspection", "loaded", "ports", "shelves", "spool"}
    ),
    "broker": frozenset(
        {
            *("core", "editing", "errors", "feed", "journal", "keeping", "live", "loaded"),
            *(
                "planner",
                "ports",
                "providers",
                "report",
                "rulebook",
                "second_look",
                "sharing",
                "shelves",
            ),
        }
    ),
    "admin": frozenset(
        {
            *("broker", "core", "editing", "errors", "formats", "hops", "journal", "loaded"),
            *("ports", "report", "report_forms", "settings", "providers", "spool", "transcripts"),
        }
    ),
    "server": frozenset(
        {
            *("broker", "core", "errors", "explanation", "feed", "formats", "journal", "ports"),
            *("providers", "settings", "spool"),
        }
    ),
    "workers": frozenset(
        {
            *("admin", "broker", "core", "errors", "journal", "logs", "ports", "report"),
            *("server", "settings"),
        }
    ),
    # The stand-in upstream knows only wires: were it to share code with the proxy, a fault in
    # that code would stand on both sides of a test and cancel out.
    "testing": frozenset(),
}
EVERY_LAYER = frozenset(ALLOWED) | {"cli"}
# Single modules that may import more than their layer.
EXCEPTIONS: dict[str, frozenset[str]] = {
    # The one place that names concrete classes and plugs them together.
    "server.wiring": frozenset({"admin", "live", "report", "stores", "upstream"}),
    "cli": EVERY_LAYER,
    "__main__": frozenset({"cli"}),
}
