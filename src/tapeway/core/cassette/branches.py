"""The bases of a cassette, from `meta.base`, and the recordings of the bases.

In the index of the cassette above, recordings of a base have indexes below 0, which no store gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.http.routing import RouteTable, assign_route
from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.matching.json_paths import PathFault, Steps, parse_path
from tapeway.core.matching.rules import Rules, RulesFault, rules_of_meta
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Request

BASE_FIELD = "base"
MOST_LAYERS = 16
"""How many cassettes may stand on each other."""
_MEMBERS = ("cassette", "until", "positional", "set")


@dataclass(frozen=True, slots=True)
class Base:
    """The base of a cassette.

    `until` counts the base's recordings that answer, None for all. With `positional` the recordings
    answer in order, to any request. `sets` has values for the bodies of live requests, by path.
    """

    cassette: str
    until: int | None = None
    positional: bool = False
    sets: Mapping[str, Json] = field(default_factory=dict)

    @property
    def document(self) -> dict[str, Json]:
        """As `meta.base` has it."""
        document: dict[str, Json] = {"cassette": self.cassette}
        if self.until is not None:
            document["until"] = self.until
        if self.positional:
            document["positional"] = True
        if self.sets:
            document["set"] = dict(self.sets)
        return document


def base_of_meta(meta: Mapping[str, Json]) -> Base | None:
    """The base in a cassette's `meta`. Raises RulesFault."""
    if (stated := meta.get(BASE_FIELD)) is None:
        return None
    if not isinstance(stated, dict):
        raise RulesFault(BASE_FIELD, "it is no object", 'write {"cassette": NAME, "until": N}')
    for name in stated.keys() - _MEMBERS:
        raise RulesFault(
            f"base.{name}", "there is no such member", f"known are {', '.join(_MEMBERS)}"
        )
    cassette, until = stated.get("cassette"), stated.get("until")
    positional, sets = stated.get("positional", False), stated.get("set", {})
    if not isinstance(cassette, str) or not cassette:
        raise RulesFault("base.cassette", "it is no name", "write the name of a cassette")
    if until is not None and (type(until) is not int or until < 0):
        raise RulesFault("base.until", "it is no count", "write a whole number from 0 on")
    if not isinstance(positional, bool) or (positional and until is None):
        raise RulesFault("base.positional", "it is not true with a count", 'write "until", too')
    if not isinstance(sets, dict):
        raise RulesFault("base.set", "it is no object", 'write {"body.model": "gpt-5"}')
    for path in sets:
        body_steps(path)
    return Base(cassette, until, positional, sets)


def meta_with_base(meta: Mapping[str, Json], base: Base | None) -> dict[str, Json]:
    """A copy of `meta` with the base, or without any."""
    kept = {name: value for name, value in meta.items() if name != BASE_FIELD}
    return kept if base is None else {**kept, BASE_FIELD: base.document}


def body_steps(path: str) -> Steps:
    """The steps from a request's body to the value at `body.…`. Raises RulesFault."""
    remedy = "write a path to one value of the body, as body.model"
    try:
        steps = parse_path(path)
    except PathFault as exc:
        raise RulesFault(f"base.set.{path}", str(exc), remedy) from exc
    plain = tuple([step for step in steps[1:] if isinstance(step, str | int)])
    if steps[0] != "body" or not plain or len(plain) + 1 != len(steps):
        raise RulesFault(f"base.set.{path}", "it leads to no single value of the body", remedy)
    return plain


def with_sets(request: Request, sets: Mapping[str, Json]) -> Request:
    """The request with values set in its JSON body; the same object where the body has none of JSON."""
    try:
        body = parse(request.body)
    except NotJson:
        return request
    changed = body
    for path, value in sets.items():
        changed = _with_member(changed, body_steps(path), value)
    return request if changed == body else replace(request, body=dump(changed))


def _with_member(document: Json, steps: Steps, value: Json) -> Json:
    """A copy with the value at a place; the same where nothing leads there."""
    first, rest = steps[0], steps[1:]
    if isinstance(document, dict) and isinstance(first, str) and (first in document or not rest):
        inner = _with_member(document[first], rest, value) if rest else value
        return document | {first: inner}
    if isinstance(document, list) and isinstance(first, int) and first < len(document):
        inner = _with_member(document[first], rest, value) if rest else value
        return [*document[:first], inner, *document[first + 1 :]]
    return document


def sets_text(sets: Mapping[str, Json]) -> str:
    """The set values, for people."""
    return ", ".join([f"{path} = {dump(value).decode()}" for path, value in sets.items()])


@dataclass(frozen=True, slots=True)
class Layer:
    """The recordings of one base, in order.

    `keys` has match keys under `rules`, as far as known.
    """

    cassette: str
    items: Sequence[AnyInteraction]
    rules: Rules
    keys: Mapping[int, bytes]


def layer_of(base: Base, stored: StoredCassette) -> Layer:
    """The part of a stored base that answers. Raises RulesFault."""
    items = stored.interactions[: base.until]
    return Layer(base.cassette, items, rules_of_meta(stored.head.meta), stored.keys)


def with_routes(layer: Layer, routes: RouteTable) -> Layer:
    """The layer; recordings without a route get a route by the address."""
    items = [assign_route(item, routes) for item in layer.items]
    return replace(layer, items=items)


@dataclass(frozen=True, slots=True)
class Inherited:
    """A recording of a base: `index` counts in the base, and `item.index` in the cassette above."""

    cassette: str
    index: int
    item: AnyInteraction
    layer: int
    """How many bases are nearer."""


def inherit(layers: Sequence[Layer]) -> dict[int, Inherited]:
    """The recordings of the bases by index in the cassette above, in order."""
    inherited: dict[int, Inherited] = {}
    for number, layer in enumerate(layers):
        file = _InheritedRecordings()
        for item in layer.items:
            index = -(1 + number + MOST_LAYERS * item.index)
            own = file.add(index, item) if isinstance(item, LazyInteraction) else None
            moved = replace(item, index=index) if own is None else own
            inherited[index] = Inherited(layer.cassette, item.index, moved, number)
    return inherited


Place = tuple[str, int]
"""A recording by cassette and index."""


def flattened(
    name: str, stored: StoredCassette, layers: Sequence[Layer]
) -> tuple[StoredCassette, Sequence[Place]]:
    """One cassette that replays like a cassette above some layers, and the place of each recording.

    The recordings of the lowest base come first. Recordings with a key of a higher layer are left out.
    """
    rules = rules_of_meta(stored.head.meta)
    above, kept = set[bytes](), list[tuple[Place, AnyInteraction]]()
    below = [(layer.cassette, layer.items) for layer in layers]
    for cassette, items in ((name, stored.interactions), *below):
        keyed = [(item, _key_of(item, rules)) for item in items]
        own = [((cassette, item.index), item) for item, key in keyed if key not in above]
        kept = [*own, *kept]
        above.update(key for _, key in keyed if key)
    head = replace(stored.head, meta=meta_with_base(stored.head.meta, None))
    numbered = [replace(item, index=at) for at, (_, item) in enumerate(kept)]
    return StoredCassette(head, numbered), [place for place, _ in kept]


def _key_of(item: AnyInteraction, rules: Rules) -> bytes:
    exchange = exchange_of(item)
    return b"" if exchange is None else recording_key(exchange, rules)


class _InheritedRecordings:
    """Recordings that stay in the file of a base, under new indexes."""

    def __init__(self) -> None:
        self._items: dict[int, LazyInteraction] = {}

    def add(self, index: int, item: LazyInteraction) -> LazyInteraction:
        self._items[index] = item
        return LazyInteraction.at(index, self)

    def read(self, item: LazyInteraction, name: str) -> object:
        return getattr(self._items[item.index], name)

    def load(self, index: int) -> Interaction:
        return replace(self._items[index].load(), index=index)

    def may_hold_credentials(self, index: int) -> bool:
        item = self._items[index]
        return item.file.may_hold_credentials(item.index)

    def has_conditions(self, index: int) -> bool:
        item = self._items[index]
        return item.file.has_conditions(item.index)
