"""The match key of a recording."""

from tapeway.core.agenttape.lookup import answers_in_order, recording_aliases
from tapeway.core.matching.key import request_key
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import Interaction


def recording_key(
    interaction: Interaction, rules: Rules, recorded: RecordedRequest | None = None
) -> bytes:
    """The match key of a recording: the match key of the request.

    A recording that answers any request in order has an alias in place of a digest.
    `recorded` is the recorded request under the rules, if known.
    """
    if not answers_in_order(interaction):
        return request_key(interaction.request, rules) if recorded is None else recorded.key()
    (alias,) = recording_aliases(interaction, rules)
    return interaction.request.route.encode() + b"\0" + alias
