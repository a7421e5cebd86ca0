"""Who may import whom, room by room.

`errors <- core <- formats, providers <- stores, upstream <- engine <- server, admin <- cli`;
`integrations` stands beside `server`.

A room is a folder, or a module where a folder's modules build on each other. It may import itself,
the rooms named in its row, and whatever those may import.
"""

ROWS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "logs": ("errors",),
    "descriptors": (),
    "importing": (),
    "version": (),
    "core": ("core.cassette", "core.way_back", "core.websocket"),
    "core.digests": (),
    "core.dates": (),
    "core.text": (),
    "core.json_text": ("errors", "core.text"),
    "core.loose_json": ("core.json_text",),
    "core.json_members": ("core.json_text",),
    "core.json_rpc": ("core.json_members",),
    "core.model": ("core.loose_json", "core.digests"),
    "core.http": ("core.model",),
    "core.streams": ("core.http", "core.json_rpc"),
    "core.automata": (),
    "core.redaction": ("core.streams", "core.automata"),
    "core.matching": ("core.redaction", "core.dates"),
    "core.agenttape": ("core.matching",),
    "core.correlation": ("core.matching",),
    "core.misses": ("core.matching",),
    "core.way_back": ("core.matching",),
    "core.websocket": ("core.correlation", "core.misses"),
    "core.cassette": ("core.agenttape", "core.correlation", "core.misses"),
    "ports": ("core",),
    "body_files": ("core",),
    "paging": ("ports",),
    "watching": ("ports",),
    "providers": ("core",),
    "conversations": ("providers", "body_files"),
    "inspection": ("conversations", "body_files", "paging", "cooperative"),
    "formats": ("formats.registry",),
    "formats.errors": ("core",),
    "formats.conflict_markers": ("formats.errors",),
    "formats.fields": ("formats.errors",),
    "formats.yaml": ("formats.fields",),
    "formats.native": ("formats.fields", "formats.conflict_markers"),
    "formats.cassette_file": ("formats.native", "formats.yaml"),
    "formats.conversion_loss": ("formats.native",),
    "formats.jsonl": ("formats.conversion_loss",),
    "formats.other_tools": ("formats.conversion_loss", "formats.yaml"),
    "formats.registry": ("formats.cassette_file", "formats.jsonl", "formats.other_tools"),
    "stores": ("stores.opening",),
    "stores.support": ("formats", "paging", "body_files"),
    "stores.whole": ("formats", "ports"),
    "stores.file": ("stores.support", "stores.whole", "descriptors", "cooperative"),
    "stores.sqlite": ("stores.support", "stores.whole", "cooperative"),
    "stores.postgres": ("stores.support", "cooperative"),
    "stores.remote": ("stores.support", "stores.whole", "version"),
    "stores.memory": ("stores.file",),
    "stores.opening": (
        *("stores.memory", "stores.file", "stores.sqlite", "stores.postgres", "stores.remote"),
    ),
    "settings": ("settings.sources",),
    "settings.parsers": ("providers",),
    "settings.price_file": ("providers",),
    "settings.options": ("settings.parsers", "logs"),
    "settings.client_environment": ("settings.options", "embedded"),
    "settings.sources": ("settings.client_environment", "stores"),
    "loop_guard": ("core",),
    "cooperative": (),
    "upstream": ("ports", "body_files", "loop_guard", "upstream.message_socket"),
    "upstream.message_socket": ("core", "cooperative"),
    # The engine knows what a store is, and no store.
    "engine": ("engine.broker", "engine.faults"),
    "engine.response_buffer": ("body_files",),
    "engine.open_streams": ("core",),
    "engine.renamed_calls": ("body_files",),
    "engine.correlation": ("ports", "cooperative"),
    "engine.large_bodies": ("ports", "body_files"),
    "engine.journal": ("engine.kept_calls", "engine.faulted_calls"),
    "engine.faulted_calls": ("core",),
    "engine.kept_calls": ("core",),
    "engine.told_apart": ("engine.journal",),
    "engine.request_log": ("engine.journal",),
    "engine.report": ("engine.journal", "ports", "providers"),
    "engine.editing": ("engine.cassettes", "formats", "paging", "body_files", "cooperative"),
    "engine.decision": ("engine.large_bodies", "engine.journal", "providers"),
    "engine.single_flight": (
        *("engine.response_buffer", "engine.journal", "engine.open_streams", "ports", "providers"),
    ),
    "engine.cassettes": (
        "paging",
        *("engine.correlation", "engine.decision", "engine.report", "engine.single_flight"),
        *("engine.renamed_calls", "watching", "cooperative"),
    ),
    "engine.hooks": ("formats",),
    "engine.recording": (
        "engine.hooks",
        "engine.cassettes",
        "engine.large_bodies",
        "engine.response_buffer",
    ),
    "engine.recorder": ("engine.recording", "engine.told_apart"),
    "engine.faults": ("engine.cassettes",),
    "engine.store_check": ("errors",),
    "engine.broker": ("engine.recorder", "engine.editing", "engine.store_check"),
    # The files that browsers get: they know the API, and nothing of the program.
    "web": (),
    "admin": (
        *(
            "engine",
            "inspection",
            "settings.client_environment",
            "cooperative",
            "web",
            "html_report",
        ),
    ),
    "server": (
        "engine",
        "engine.request_log",
        "cooperative",
        "settings.options",
        "descriptors",
        "loop_guard",
        "upstream.message_socket",
    ),
    # What Python programs import: for them it has to be small.
    "integrations": ("settings", "stores", "version"),
    "library": ("integrations",),
    # The stand-in upstream knows only wires: were it to share code with the proxy, a fault in
    # that code would stand on both sides of a test and cancel out.
    "testing": (),
    "admin.app": ("admin", "loop_guard", "version"),
    "admin.listener": ("admin.app",),
    # The one place that names concrete classes and plugs them together.
    "server.wiring": (
        "server",
        "importing",
        "settings.price_file",
        "admin.listener",
        "stores",
        "upstream",
        "version",
    ),
    "server.lifecycle": ("server.wiring",),
    "html_report": ("embedded", "engine.report", "web"),
    "cli": (
        *("server.lifecycle", "descriptors", "integrations", "library", "html_report"),
        "pytest_plugin.names",
        "embedded",
    ),
    "pytest_plugin.names": (),
    "__main__": ("cli",),
    # What the package tapeway-pytest holds too, under its own name: it has the standard library alone.
    "embedded": (),
    "pytest_plugin": ("embedded", "pytest_plugin.names"),
}

ROOT = frozenset({"embedded", "version"})
"""What the package root may import."""


def allowed(room: str) -> frozenset[str]:
    """All rooms that a room may import, itself among them."""
    found, waiting = set[str](), [room]
    while waiting:
        layer = waiting.pop()
        if layer not in found:
            found.add(layer)
            waiting += ROWS.get(layer, ())
    return frozenset(found)


def room_of(module: str) -> str | None:
    """The room of a module, None where the table has none."""
    parts = module.split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((name for name in names if name in ROWS), None)
