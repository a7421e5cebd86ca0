import asyncio
import gc
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientResponseError, RequestInfo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tapeway.errors import StoreError
from tapeway.logs import MASK, Level, LogFormat, Mask, configure
from tests.support.logging_state import logging_restored

SECRET = "canary-1234567890"
log = logging.getLogger("tapeway.test")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    with logging_restored():
        yield


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def configured(
    log_format: LogFormat = "json",
    level: Level = "info",
    secrets: tuple[str | bytes, ...] = (SECRET,),
    stream: io.StringIO | None = None,
) -> io.StringIO:
    stream = io.StringIO() if stream is None else stream
    configure(log_format, level, secrets, stream)
    return stream


def entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc  # noqa: TRY301 - to give it a trace
    except BaseException as caught:
        return caught


def test_an_event_is_one_json_object_a_line() -> None:
    stream = configured()

    log.info("listening on %s", "127.0.0.1:1", extra={"port": 1, "name_": "x"})

    (entry,) = entries(stream)
    assert entry["level"] == "info"
    assert entry["logger"] == "tapeway.test"
    assert entry["message"] == "listening on 127.0.0.1:1"
    assert (entry["port"], entry["name_"]) == (1, "x")
    assert entry["at"].endswith("+00:00")


@pytest.mark.parametrize(
    ("log_format", "stream", "is_json"),
    [
        ("auto", io.StringIO(), True),
        ("auto", Terminal(), False),
        ("human", io.StringIO(), False),
        ("json", Terminal(), True),
    ],
)
def test_a_terminal_gets_text_unless_told_otherwise(
    log_format: LogFormat, stream: io.StringIO, is_json: bool
) -> None:
    configured(log_format, stream=stream)

    log.warning("told")

    assert stream.getvalue().startswith("{") is is_json
    assert "warning" in stream.getvalue()
    assert "told" in stream.getvalue()


def test_levels_below_the_one_set_are_left_out() -> None:
    stream = configured(level="warning")

    log.info("no")
    log.warning("yes")

    assert [entry["message"] for entry in entries(stream)] == ["yes"]


def test_configuring_again_replaces_what_was_configured() -> None:
    first = configured()
    second = configured()

    log.info("once")

    assert first.getvalue() == ""
    assert len(entries(second)) == 1


NASTY = "a\r\nb\x1b[31mc\u2028d\u2029e\x85f\u202eg\x00h\ud800i\x7fj"


@pytest.mark.parametrize("log_format", ["human", "json"])
def test_no_value_breaks_a_line_or_steers_a_terminal(log_format: LogFormat) -> None:
    stream = configured(log_format)

    log.info("path %s", NASTY, extra={"agent": NASTY})

    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert all(c.isprintable() for c in text.rstrip("\n"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(), st.sampled_from(["human", "json"]))
def test_any_value_stays_on_its_line(value: str, log_format: LogFormat) -> None:
    stream = configured(log_format, secrets=())

    log.info("value %s", value)

    assert len(stream.getvalue().splitlines()) == 1
    stream.getvalue().encode("utf-8")


def test_in_text_a_trace_is_indented_so_that_it_cannot_pose_as_an_event() -> None:
    stream = configured("human")

    log.error("failed", exc_info=raised(StoreError("no room\n00:00:00 info    all is well")))

    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("failed")
    assert rest
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.parametrize("log_format", ["human", "json"])
@pytest.mark.parametrize(
    "secret", [SECRET, SECRET.encode(), 'quo"te\\back-slash', "p@ss/w\u00f6rd-1"]
)
def test_a_known_secret_is_cut_out_wherever_it_stands(
    log_format: LogFormat, secret: str | bytes
) -> None:
    stream = configured(log_format, secrets=(secret,))
    text = secret if isinstance(secret, str) else secret.decode()

    log.info(f"in the text {text}")
    log.info("as a value %s", text)
    log.info("as a field", extra={"url": f"http://h/?key={text}"})
    log.error("in an error", exc_info=raised(StoreError(f"no {text}")))
    log.error("in its cause", exc_info=raised(chained(OSError(f"no {text}"))))

    written = stream.getvalue()
    assert written.count(MASK) >= 5
    for form in (text, ascii(text)[1:-1], json.dumps(text)[1:-1]):
        assert form not in written


@pytest.mark.parametrize("log_format", ["human", "json"])
def test_an_event_whose_values_do_not_fit_is_still_told(log_format: LogFormat) -> None:
    stream = configured(log_format)

    log.info("took %d ms", "long")

    assert "took %d ms" in stream.getvalue()


def chained(cause: BaseException) -> BaseException:
    error = StoreError("failed")
    error.__cause__ = raised(cause)
    return error


def test_a_secret_is_also_known_percent_encoded() -> None:
    assert Mask(("p@ss/word",))("a p%40ss%2Fword b") == f"a {MASK} b"


def test_of_two_secrets_the_longer_is_cut_out_whole() -> None:
    assert Mask(("abcdef", "abcdefghi"))("x abcdefghi y") == f"x {MASK} y"


@pytest.mark.parametrize("secrets", [(), ("",), ("abc",)])
def test_nothing_is_cut_out_where_nothing_long_enough_is_secret(secrets: tuple[str, ...]) -> None:
    assert Mask(secrets)("abc") == "abc"


DIGITS = st.text("0123456789")


@given(st.text("0123456789", min_size=4), DIGITS, DIGITS)
def test_whatever_stands_around_a_secret_it_is_gone(secret: str, before: str, after: str) -> None:
    assert secret not in Mask((secret,))(before + secret + after)


LIBRARIES = ["aiohttp.server", "aiohttp.client", "aiohttp.web", "asyncio", "another.library"]


@pytest.mark.parametrize("log_format", ["human", "json"])
@pytest.mark.parametrize("name", LIBRARIES)
def test_what_another_library_quotes_is_not_repeated(name: str, log_format: LogFormat) -> None:
    stream = configured(log_format, "debug", secrets=())
    library = logging.getLogger(name)
    cause = ValueError(f"Invalid header line b'Authorization: Bearer {SECRET}'")

    library.error("Error handling request from %s", SECRET, exc_info=raised(cause))
    library.error(f"Task exception was never retrieved\nfuture: <Task exception={SECRET}>")
    library.error(f"Exception in callback handle({SECRET})")
    library.error("fields", extra={"request": SECRET})

    text = stream.getvalue()
    assert SECRET not in text
    assert f"{name}: Error handling request from" in text
    assert "ValueError" in text
    assert "test_logs.py" in text
    assert "Task exception was never retrieved" in text


def test_the_library_s_access_log_is_off() -> None:
    stream = configured(level="debug")

    logging.getLogger("aiohttp.access").error("GET /?key=%s", SECRET)

    assert stream.getvalue() == ""


def test_an_upstream_error_s_text_with_url_and_headers_is_not_shown() -> None:
    stream = configured(secrets=())
    url = URL(f"http://host/?key={SECRET}")
    headers = CIMultiDictProxy(CIMultiDict({"Authorization": SECRET}))
    error = ClientResponseError(RequestInfo(url, "GET", headers, url), (), message=SECRET)

    log.error("the upstream failed", exc_info=raised(error))

    assert SECRET not in stream.getvalue()
    assert "ClientResponseError" in stream.getvalue()


def test_what_went_wrong_on_this_machine_is_said() -> None:
    stream = configured()

    log.error("no", exc_info=raised(OSError(28, "No space left on device", "/cassettes/x.json")))

    assert "No space left on device: '/cassettes/x.json'" in entries(stream)[0]["exception"]


def test_every_error_of_a_group_is_named() -> None:
    stream = configured()

    log.error("no", exc_info=raised(ExceptionGroup("two", [KeyError("a"), StoreError("no room")])))

    trace = entries(stream)[0]["exception"]
    assert "KeyError\n" in trace
    assert "StoreError: no room\n" in trace
    assert trace.endswith("ExceptionGroup")


def test_a_warning_of_the_interpreter_is_a_line_like_any_other() -> None:
    stream = configured()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(f"old way of {SECRET}", DeprecationWarning, stacklevel=1)

    (entry,) = entries(stream)
    assert "DeprecationWarning: old way of [secret]" in entry["message"]


async def test_a_task_that_nobody_awaited_does_not_show_its_error() -> None:
    stream = configured(secrets=())

    async def fail() -> None:
        raise ValueError(SECRET)

    task = asyncio.get_running_loop().create_task(fail())
    await asyncio.wait([task])
    del task
    gc.collect()

    assert SECRET not in stream.getvalue()
    assert "asyncio: Task exception was never retrieved" in stream.getvalue()
