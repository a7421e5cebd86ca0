from typing import get_args

import pytest

from tapeway.core.http.routing import Route
from tapeway.core.model.control import Delivery, Mode
from tapeway.providers.catalogue import PROVIDERS
from tapeway.settings.options import OptionFault, Settings, known_secrets, resolve_routes
from tapeway.settings.parsers import HostPort


def make_settings(**values: object) -> Settings:
    return Settings.parse(values)


def test_the_defaults_are_those_of_the_contract() -> None:
    settings = Settings()

    assert settings.listen == HostPort("127.0.0.1", 8080)
    assert settings.admin_listen == HostPort("127.0.0.1", 8081)
    assert (settings.mode, settings.store, settings.cassette) == ("auto", "./cassettes", "default")
    assert (settings.delivery, settings.pace, settings.repeats) == ("buffer", 0.0, None)
    assert settings.record_statuses is None
    assert settings.miss_status == 400
    assert settings.max_body == 80 * 2**20
    assert settings.drain_timeout == 8
    assert settings.rewrite
    assert not settings.insecure_upstream
    assert not settings.record_failures


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("mode", get_args(Mode)),
        ("repeats", ("last", "miss", "cycle")),
        ("delivery", get_args(Delivery)),
    ],
)
def test_every_word_there_is_can_be_set(option: str, words: tuple[str, ...]) -> None:
    assert [getattr(make_settings(**{option: word}), option) for word in words] == [*words]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "once"}, "use replay, record, auto, passthrough"),
        ({"pace": "fast"}, "'fast' is not a pace; give none, recorded, or a speed"),
        ({"repeats": "first"}, "use last, miss, cycle"),
        ({"log_level": "trace"}, "use debug, info, warning, error"),
        ({"cassette": "../x"}, "a cassette's name is"),
        ({"cassette": ""}, "a cassette's name is"),
        ({"store": ""}, "must not be empty"),
        ({"miss_status": "200"}, "from 400 to 599"),
        ({"journal_size": 0}, "from 1 to"),
        ({"route": "grok"}, "'grok' is not a built-in route; give grok=URL, or one of openai"),
        ({"route": "grok=off"}, "'grok' is not a built-in route"),
        ({"nonsense": 1}, "there is no option 'nonsense'"),
    ],
)
def test_a_value_that_cannot_be_used_says_what_can(values: dict[str, object], message: str) -> None:
    with pytest.raises(OptionFault, match=message):
        make_settings(**values)


@pytest.mark.parametrize("address", ["0.0.0.0:8081", "[::]:8081", "10.0.0.1:1", "my-host:8081"])
def test_an_admin_api_that_others_could_reach_needs_a_token(address: str) -> None:
    with pytest.raises(OptionFault, match=r"set --admin-token \(TAPEWAY_ADMIN_TOKEN\)"):
        make_settings(admin_listen=address)

    assert make_settings(admin_listen=address, admin_token="a-token").admin_listen


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "off"])
def test_an_admin_api_for_this_machine_alone_needs_none(address: str) -> None:
    assert make_settings(admin_listen=address).admin_token is None


def test_two_listeners_cannot_share_a_port() -> None:
    with pytest.raises(OptionFault, match=r"both 127\.0\.0\.1:8080"):
        make_settings(admin_listen="127.0.0.1:8080")

    assert make_settings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0").listen.port == 0


@pytest.mark.parametrize(
    "values",
    [
        {"upstream": "http://127.0.0.1:8080"},
        {"upstream": "http://me:secret@localhost:8080/v1"},
        {"upstream": "http://127.0.0.1:8081"},
        {"route": "x=http://localhost:8080"},
        {"listen": "0.0.0.0:8080", "upstream": "http://127.0.0.1:8080"},
        {"listen": "[::1]:80", "upstream": "http://[::1]"},
        {"upstream_proxy": "http://me:secret@localhost:8080"},
        {"listen": "127.0.0.1:80", "upstream_proxy": "http://127.0.0.1"},
    ],
)
def test_an_upstream_that_is_tapeway_itself_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(OptionFault, match="tapeway's own listener") as caught:
        make_settings(**values)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"store": "http://127.0.0.1:8081"},
        {"store": "HTTP://secret@localhost:8081/"},
        {"store": "http://127.0.0.1:8080"},
        {"store": "http://[::1]:80", "listen": "[::1]:80"},
    ],
)
def test_a_store_that_is_tapeway_itself_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(OptionFault, match="tapeway's own listener") as caught:
        make_settings(**values)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("store", ["http://h:8081", "https://localhost", "http://:to/ken@h"])
def test_another_store_is_not_tapeway_itself(store: str) -> None:
    assert make_settings(store=store).store == store


@pytest.mark.parametrize(
    "upstream", ["http://127.0.0.1:8082", "http://other-host:8080", "https://localhost"]
)
def test_another_service_on_this_machine_is_not_tapeway_itself(upstream: str) -> None:
    assert make_settings(upstream=upstream).upstream == upstream


def test_the_text_form_shows_no_secret() -> None:
    settings = make_settings(
        admin_token="canary-token",
        upstream="https://me:canary-pass@host",
        route=["x=https://canary-user@host"],
        store="postgresql://me:canary-store@host/db",
        store_token="canary-far",
    )

    assert "canary" not in repr(settings) + str(settings)


def test_the_secrets_a_log_must_not_show_are_known() -> None:
    settings = make_settings(
        admin_token="the-token",
        upstream="https://me:p%40ss@host/x",
        route=["x=https://key@host"],
        store="postgresql://me:store-pass@host/db",
        store_token="the-far-token",
    )

    secrets = known_secrets(settings)

    assert {
        "the-token",
        "the-far-token",
        "p%40ss",
        "p@ss",
        "me:p%40ss",
        "key",
        "store-pass",
    } <= set(secrets)
    assert "" not in secrets


def test_no_secret_is_known_where_none_is_set() -> None:
    assert known_secrets(make_settings(upstream="https://host/a@b:c")) == ()


@pytest.mark.parametrize(
    ("store", "secrets"),
    [
        ("postgresql://tapeway@db.internal/calls", ()),
        ("postgres://tapeway@db.internal/calls?sslmode=require", ()),
        ("postgresql://tapeway:hidden@db/calls", ("hidden", "tapeway:hidden")),
        ("postgresql://tapeway@db/calls?password=hidden", ("hidden",)),
        ("https://a-token@other/store", ("a-token",)),
    ],
)
def test_the_user_of_a_database_is_no_secret(store: str, secrets: tuple[str, ...]) -> None:
    assert tuple(sorted(known_secrets(make_settings(store=store)))) == secrets


def test_without_an_upstream_every_built_in_route_is_there_and_no_default() -> None:
    table = resolve_routes(Settings(), {})

    assert set(table.routes) == set(PROVIDERS)
    assert table.default is None
    assert table.routes["openai"] == Route("openai", "https://api.openai.com")
    assert table.routes["azure"] == Route("azure", None)


def test_an_upstream_owns_every_path() -> None:
    table = resolve_routes(make_settings(upstream="http://host:9/base/"), {})

    assert table.routes == {}
    assert table.default == Route("default", "http://host:9/base")


@pytest.mark.parametrize(
    ("upstream", "name"),
    [
        ("https://api.groq.com", "groq"),
        ("https://API.Groq.com:443/openai/", "groq"),
        ("https://me:pw@api.openai.com", "openai"),
        ("http://127.0.0.1:11434", "ollama"),
        ("http://api.groq.com", "default"),
        ("https://api.groq.com:444", "default"),
        ("https://api.groq.com.example", "default"),
    ],
)
def test_an_upstream_with_a_provider_s_origin_takes_its_name(upstream: str, name: str) -> None:
    assert resolve_routes(make_settings(upstream=upstream), {}).default == Route(
        name, upstream.rstrip("/")
    )


@pytest.mark.parametrize(
    ("upstream", "choices", "expected"),
    [
        (None, ["x=http://h"], {**dict.fromkeys(PROVIDERS), "x": None}),
        (None, ["openai=off", "groq=off"], dict.fromkeys(set(PROVIDERS) - {"openai", "groq"})),
        ("http://u", ["openai"], {"openai": "https://api.openai.com"}),
        ("http://u", ["azure"], {"azure": None}),
        ("http://u", ["openai=http://h", "groq"], {"openai": "http://h"} | {"groq": None}),
        ("http://u", ["openai", "openai=off"], {}),
        ("http://u", ["all"], dict.fromkeys(PROVIDERS)),
        ("http://u", ["all", "voyage=off"], dict.fromkeys(set(PROVIDERS) - {"voyage"})),
    ],
)
def test_routes_are_added_brought_back_and_taken_away(
    upstream: str | None, choices: list[str], expected: dict[str, str | None]
) -> None:
    table = resolve_routes(make_settings(upstream=upstream, route=choices), {})

    assert set(table.routes) == set(expected)
    assert all(table.routes[name].name == name for name in expected)
    assert {n: table.routes[n].url for n, url in expected.items() if url is not None} == {
        n: url for n, url in expected.items() if url is not None
    }


@pytest.mark.parametrize("choices", [["all", "openai=http://h"], ["openai=http://h", "all"]])
def test_a_route_s_own_url_wins_over_all_wherever_it_stands(choices: list[str]) -> None:
    table = resolve_routes(make_settings(upstream="http://u", route=choices), {})

    assert table.routes["openai"].url == "http://h"
    assert table.default == Route("default", "http://u")
