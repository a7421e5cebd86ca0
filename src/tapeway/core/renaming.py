"""Whether one request is another with its identifiers called by other names, all consistently."""

import re
from collections.abc import Callable, Container, Mapping

from tapeway.core.json_text import Json
from tapeway.core.tokens import is_drawn, is_said

_BLANK = re.compile(r"\s")


class Renaming:
    """The names that one document has for the identifiers of another."""

    def __init__(self, issued: Container[str]) -> None:
        self._issued = issued
        self.names: dict[str, str] = {}
        self._back: dict[str, str] = {}

    def explains(self, recorded: Mapping[str, Json], sent: Mapping[str, Json]) -> bool:
        """Whether nothing but names of identifiers differs; the names are learnt on the way.

        One identifier has one name and one name means one identifier, so that results given to
        each other's calls are no renaming.
        """
        if recorded.keys() != sent.keys():
            return False
        path, asked = str(recorded["path"]).split("/"), str(sent["path"]).split("/")
        if len(path) != len(asked) or not all(map(self._segment, path, asked)):
            return False
        return all(
            self._same(value, sent[key], "", self._segment if key == "query" else self._text)
            for key, value in recorded.items()
            if key != "path"
        )

    def _segment(self, recorded: str, sent: str) -> bool:
        # What is asked for by a path was named by the service: `/files/no-such-file` is no renaming.
        if recorded != sent and not (is_drawn(recorded) and is_drawn(sent)):
            return False
        return self._text(recorded, sent)

    def _same(
        self, recorded: Json, sent: Json, name: str, text: Callable[[str, str], bool]
    ) -> bool:
        if type(recorded) is not type(sent):
            return False
        if isinstance(recorded, dict) and isinstance(sent, dict):
            return recorded.keys() == sent.keys() and all(
                self._same(value, sent[key], key, text) for key, value in recorded.items()
            )
        if isinstance(recorded, list) and isinstance(sent, list):
            return len(recorded) == len(sent) and all(
                self._same(left, right, name, text)
                for left, right in zip(recorded, sent, strict=True)
            )
        if isinstance(recorded, str) and isinstance(sent, str):
            return recorded == sent if is_said(name) else text(recorded, sent)
        return recorded == sent

    def _text(self, recorded: str, sent: str) -> bool:
        if recorded not in self._issued:
            return recorded == sent
        if recorded != sent and (sent in self._issued or not sent or _BLANK.search(sent)):
            # An identifier of this cassette stands for itself alone.
            return False
        known = self.names.setdefault(recorded, sent)
        return known == sent and self._back.setdefault(sent, recorded) == recorded


class Bindings:
    """What the identifiers of a cassette are called by its client in one take."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._back: dict[str, str] = {}

    def allow(self, names: Mapping[str, str]) -> bool:
        """Whether these names do not swap two that are in use.

        A conversation that is held again may have new names, and another one the same names anew.
        """
        return all(
            self._names.get(recorded, sent) == sent or self._back.get(sent, recorded) == recorded
            for recorded, sent in names.items()
        )

    def learn(self, names: Mapping[str, str]) -> None:
        for recorded, sent in names.items():
            self._names[recorded] = sent
            self._back[sent] = recorded
