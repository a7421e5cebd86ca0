"""The keys of a recording: the match key, and further keys for look-ups in a store."""

from tapeway.core.agenttape.lookup import answers_in_order, recording_aliases
from tapeway.core.cassette.credential_index import credential_places, open_digest
from tapeway.core.correlation.index import alike_key_of
from tapeway.core.matching.key import key_digest, request_key
from tapeway.core.matching.received_request import outline_key
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


def index_keys(interaction: Interaction, rules: Rules) -> tuple[bytes, ...]:
    """The keys by which a store indexes an interaction: the digest of its match key, and aliases.

    The digest excludes the route, because recordings get their routes from their origins when they
    are loaded. A recording with credentials has more digests, because `ReceivedRequest` may
    search without them. A request that refers to earlier answers has a key that it shares with
    requests under other identifiers. Only recordings that AgentTape made have aliases.
    """
    recorded = RecordedRequest(interaction.request, rules)
    key = recording_key(interaction, rules, recorded)
    digests = [key_digest(key)]
    if (places := credential_places(recorded, key)) is not None:
        digests.append(open_digest(places.outline_key if places.texts else places.open_key))
    if interaction.request.file is not None and interaction.request.file.placeholders:
        # It is found without its body, to tell which values are to be replaced there.
        digests.append(open_digest(outline_key(interaction.request.route, recorded.opened)))
    if (alike := alike_key_of(recorded)) is not None:
        digests.append(alike)
    return tuple(dict.fromkeys([*digests, *recording_aliases(interaction, rules)]))
