"""How requests are redacted to be stored and shown, and what is known from one to the next."""

from tapeway.core.matching.headers.conditions import told_apart_by
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.matching.request_redaction import (
    MOST_LEARNED,
    RequestRedaction,
    with_answers_fields,
)
from tapeway.core.matching.rules import Rules
from tapeway.core.model.messages import Request
from tapeway.core.redaction.credentials import Secret
from tests.core.keys import JSON
from tests.core.redaction.example_messages import KEY, OTHER, make_request


def asked(body: bytes = b"{}", key: str = KEY) -> Request:
    return make_request((*JSON, (b"x-api-key", key.encode())), body=body)


def test_a_cassettes_salt_counts() -> None:
    redaction = RequestRedaction()
    one, two = (redaction.redact(salt, asked(KEY.encode())) for salt in ("run-1", "run-2"))

    assert one.body != two.body


def test_the_fields_that_a_rule_names_are_stored_without_their_secrets() -> None:
    request = make_request((*JSON, (b"x-api-key", KEY.encode()), (b"x-tenant", KEY.encode())))

    stored = RequestRedaction().redact("run", request, Rules(match=("x-tenant",)))

    assert dict(stored.headers)[b"x-tenant"].startswith(b"REDACTED.")


def test_the_processs_own_secrets_are_redacted_in_every_request() -> None:
    redaction = RequestRedaction([Secret("env", OTHER.encode())])

    for _ in range(2):
        seen = redaction.redact("run", asked(b"%b %b" % (OTHER.encode(), KEY.encode())))
        assert seen.body.count(b"REDACTED.") == 2


def test_a_secret_that_an_answer_issued_is_redacted_there_and_nowhere_else() -> None:
    redaction = RequestRedaction()
    issued = [Secret("sid", b"0123456789abcdef")]

    assert b"REDACTED" in redaction.redactor("run", asked(), issued).value(issued[0].value)
    assert b"REDACTED" not in redaction.redactor("run", asked()).value(issued[0].value)


def test_what_was_learned_has_its_first_placeholder_wherever_it_comes_next() -> None:
    redaction = RequestRedaction()
    issued = b"tok-0123456789abcdef"
    redaction.learn("run", [Secret("session", issued)])
    redaction.learn("run", [Secret("other", issued)])
    expected = redaction.redactor("run", asked()).placeholder("session", issued)

    seen = redaction.redact("run", make_request(JSON, body=b'{"via": "%b"}' % issued))

    assert expected in seen.body
    assert redaction.redact("other run", make_request(JSON, body=issued)).body == issued


def test_only_the_newest_secrets_are_remembered() -> None:
    redaction = RequestRedaction()
    first = b"tok-first-0123456789"
    redaction.learn("run", [Secret("a", first)])
    redaction.learn("run", [Secret("a", b"tok-%016d" % n) for n in range(MOST_LEARNED)])

    assert redaction.redact("run", make_request(JSON, body=first)).body == first


def test_a_secret_that_recordings_go_on_to_show_is_remembered() -> None:
    redaction = RequestRedaction()
    first = Secret("a", b"tok-first-0123456789")
    for number in range(2 * MOST_LEARNED):
        redaction.learn("run", [first, Secret("a", b"tok-%016d" % number)])

    assert b"REDACTED" in redaction.redact("run", make_request(JSON, body=first.value)).body


def test_a_field_that_an_answer_depends_on_is_a_placeholder_where_its_name_tells_of_a_key() -> None:
    redaction = RequestRedaction()
    sent = ((b"X-User-Key", b"hunter2"), (b"X-Tenant", b"acme"))
    request = make_request((*JSON, *sent))
    stored = with_answers_fields(
        redaction.redact("run", request),
        request.headers,
        ((b"Vary", b"X-User-Key, X-Tenant"),),
        redaction.redactor("run", request),
    )
    is_of = SecretDigests("run").is_of

    assert b"hunter2" not in repr(stored).encode()
    assert (b"X-Tenant", b"acme") in stored.headers
    assert told_apart_by(stored, sent, is_of=is_of, ignored=()) == []
    assert told_apart_by(
        stored, ((b"X-User-Key", b"hunter3"), sent[1]), is_of=is_of, ignored=()
    ) == ["x-user-key"]
