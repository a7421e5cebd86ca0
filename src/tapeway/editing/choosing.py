"""The editor for the cassettes there are."""

from tapeway.core.http.routing import RouteTable
from tapeway.core.redaction.known_values import KnownValues
from tapeway.editing.editor import Editor
from tapeway.editing.shared import SharedEditor
from tapeway.loaded import LoadedCassettes
from tapeway.ports import CassetteStore, SharedStore
from tapeway.rulebook import NewHead
from tapeway.shelves import SharedCassettes

AnyEditor = Editor | SharedEditor


def editor_of(
    cassettes: LoadedCassettes | SharedCassettes,
    store: CassetteStore,
    known: KnownValues,
    routes: RouteTable,
    new_head: NewHead,
) -> AnyEditor:
    """The one for cassettes that are in memory, or for those of a shared store."""
    if isinstance(cassettes, SharedCassettes) and isinstance(store, SharedStore):
        return SharedEditor(store, known, new_head, lambda: cassettes.steer(lambda now: now))
    if isinstance(cassettes, LoadedCassettes):
        return Editor(cassettes, store, known, routes)
    raise TypeError("a store and what is made of it are of two kinds")
