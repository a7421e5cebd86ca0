"""Which result answers which tool call: told by the ids that the calls were given."""


class Refused(Exception):
    """What a call asks for cannot be; the message is the provider's."""


class ToolResults:
    """The calls of a conversation since the user last spoke, and the results that came back."""

    def __init__(self, unknown: str) -> None:
        """`unknown` is the message about a result for no call, with `{}` where its id stands."""
        self._unknown = unknown
        self._results: dict[str, str | None] = {}

    def called(self, call_id: str) -> None:
        """Expect a result under that id."""
        self._results[call_id] = None

    def answered(self, call_id: str, text: str) -> None:
        """Take the result of that call. Raises Refused where nothing was called so."""
        if call_id not in self._results:
            raise Refused(self._unknown.format(call_id))
        self._results[call_id] = text

    def clear(self) -> None:
        """Forget the calls: the user has spoken."""
        self._results.clear()

    @property
    def texts(self) -> tuple[str, ...]:
        """The results in the order of their calls, whatever order they came in."""
        return tuple([text for text in self._results.values() if text is not None])
