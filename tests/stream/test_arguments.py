"""Wrong arguments: each is refused at the call, by name, with what was expected and what came."""

import threading
import warnings
from typing import Any

import pytest
import requests
import tenacity

from streamguard import (
    DeadlineExceededError,
    Timeouts,
    TransportError,
    UsageError,
    classify,
    guard,
    guarded_stream,
    has_content,
)
from streamguard._core.limits import LIMITS
from streamguard._stream.options import LimitKeywords

from ..helpers import Serve
from .helpers import ENDLESS, consume, failure, stream_from

URL = "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("connect", b"10"),
        ("response", [1]),
        ("first", True),
        ("idle", b"5"),
        ("dead", {"seconds": 1}),
        ("total", object()),
        ("total", 1j),
        ("timeouts", 5),
        ("timeouts", {"idle": 5}),
        ("heartbeat", b"5s"),
        ("end_grace", False),
        ("counts", "text"),
        ("cancel", threading.Event()),
        ("name", 5),
        ("session", requests),
        ("session", requests.Session),
        ("retry", "2"),
        ("retry", True),
        ("retry", 1.5),
        ("retry", tenacity.stop_after_attempt(3)),
        ("headers", 5),
        ("headers", "Accept: x"),
        ("headers", [("Accept", "x")]),
        ("proxies", "http://localhost:1"),
        ("cookies", 5),
        ("cookies", "a=b"),
        ("auth", "user:password"),
        ("auth", ("user",)),
        ("auth", 5),
        ("hooks", len),
        ("files", 5),
        ("params", 5),
        ("verify", 5),
        ("cert", 5),
        ("cert", True),
    ],
)
def test_a_wrong_type_is_a_type_error_that_names_the_argument(argument: str, wrong: object) -> None:
    """An argument of a wrong type is a TypeError that names it."""
    with pytest.raises(TypeError, match=f"{argument}="):
        guarded_stream("POST", URL, **{argument: wrong})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"idle": float("nan")}, "idle="),
        ({"total": float("nan")}, "total="),
        ({"heartbeat": float("nan")}, "heartbeat="),
        ({"idle": 10, "total": 5}, "idle=10 .* total=5"),
        ({"idle": 10, "first": 5, "dead": 20}, "dead=20 .* first=5 .* idle=10"),
        ({"timeouts": Timeouts(total=5), "idle": 10}, "idle=10 .* total=5"),
        ({"retry": -1}, "max_retries="),
        ({"decode": "xml"}, "decode="),
        ({"decode": None}, "decode="),
        ({"decode": 5}, "decode="),
        ({"timeout": 5}, "idle= is silence, total= the whole call"),
        ({"timeout": None}, "timeout="),
        ({"timeout": (3, 5)}, "timeout="),
        ({"stream": True}, "stream="),
        ({"stream": False}, "stream="),
        ({"verify": "/no/such/bundle.pem"}, "verify="),
        ({"cert": "/no/such/cert.pem"}, "cert="),
        ({"cert": ("/no/such/cert.pem", "/no/such/key.pem")}, "cert="),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_the_argument(options: dict[str, Any], words: str) -> None:
    """Impossible limits, limits that contradict each other, and keywords that do not belong here."""
    with pytest.raises(UsageError, match=words):
        guarded_stream("POST", URL, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("typo", ["idel", "max_retries", "read_timeout", "chunk_size", "decode_unicode"])
def test_an_unknown_keyword_is_named(typo: str) -> None:
    """A misspelt or unknown keyword is refused."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{typo}'"):
        guarded_stream("POST", URL, **{typo: 5})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/v1/chat",
        "localhost:8000/v1",
        "127.0.0.1:8000",
        "//example.com/v1",
        "/v1/chat",
        "http:/example.com",
        "http:example.com",
        "https//example.com",
        "://example.com",
        "http://",
        "http:///v1",
        "http://:8000/",
        "http://user:key@/v1",
        "http://[::1/",
        "http://host:port/",
        "http://host:99999/",
        "http://host:-1/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "wss://example.com/",
        "unix:///run/x.sock",
    ],
)
def test_a_url_that_cannot_be_requested_is_refused_at_the_call(url: str) -> None:
    """No scheme, no host, a wrong port, another protocol: url= is refused by name."""
    with pytest.raises(UsageError, match=r"^url= "):
        guarded_stream("POST", url)


@pytest.mark.parametrize("url", ["http://*.example/", "http://a b/", "http://./", "http://exa\0mple/"])
def test_a_host_that_requests_refuses_is_named_at_the_start(url: str) -> None:
    """A host that only requests can judge is a UsageError, with requests' error as its cause."""
    error = failure(guarded_stream("POST", url, retry=3))
    if isinstance(error, TransportError):
        assert error.code == "EAI_NONAME"  # older versions of requests leave the judgement to the resolver
        return
    assert isinstance(error, UsageError)
    assert "url=" in str(error)
    assert isinstance(error.__cause__, requests.exceptions.InvalidURL)


@pytest.mark.parametrize("url", [None, 5, b"http://localhost/", ["http://localhost/"]])
def test_a_url_is_a_str(url: Any) -> None:
    """Anything else is a TypeError."""
    with pytest.raises(TypeError, match=r"^url= takes a str"):
        guarded_stream("POST", url)


@pytest.mark.parametrize("method", ["", "GE T", "GET\n", "POST /x HTTP/1.1\r\nHost: evil", "PÖST", ":"])
def test_a_method_is_a_token(method: str) -> None:
    """A method that is not a token of HTTP is refused."""
    with pytest.raises(UsageError, match=r"^method= "):
        guarded_stream(method, URL)


@pytest.mark.parametrize("method", [None, 5, b"GET"])
def test_a_method_is_a_str(method: Any) -> None:
    """Anything else is a TypeError."""
    with pytest.raises(TypeError, match=r"^method= takes a str"):
        guarded_stream(method, URL)


def test_no_message_holds_a_secret_of_the_url() -> None:
    """A password in a URL that is refused is not in the error."""
    for url in ("http://user:hunter2@host:port/", "http://user:hunter2@", "http://u:hunt/er2@host/", "x://u:hunter2@h/"):
        with pytest.raises(UsageError) as caught:
            guarded_stream("POST", url)
        assert "hunt" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"headers": {"X-A": "a\nb"}}, "headers="),
        ({"headers": {"X-A\n": "a"}}, "headers="),
        ({"headers": {"X-A": 5}}, "headers="),
        ({"headers": {"X-A": "日本"}}, "header"),
        ({"headers": {"é": "a"}}, "header"),
        ({"data": "\ud800"}, "UTF-8"),
        ({"json": float("nan")}, "json="),
    ],
)
def test_what_requests_refuses_is_a_usage_error(streamguard_gateway: Serve, options: dict[str, Any], words: str) -> None:
    """Nothing is sent, nothing is retried, the argument is named, and its value is not repeated."""
    gateway = streamguard_gateway("chat a\ndone")
    error = failure(guarded_stream("POST", gateway.url, retry=3, **options))
    assert isinstance(error, UsageError)
    assert words in str(error)
    assert "日本" not in str(error)
    assert gateway.requests == []
    assert classify(error).diagnosis == "fail-fast"


@pytest.mark.parametrize("options", [{"json": object()}, {"json": {"a": b"x"}}, {"data": 5}, {"data": object()}])
def test_a_body_that_cannot_be_sent_is_a_type_error(streamguard_gateway: Serve, options: dict[str, Any]) -> None:
    """The original TypeError is raised, once."""
    gateway = streamguard_gateway("chat a\ndone")
    stream = guarded_stream("POST", gateway.url, **options)
    with pytest.raises(TypeError):
        next(stream)
    assert (next(stream, "over"), gateway.requests, stream.report.outcome) == ("over", [], "error")


@pytest.mark.parametrize("total", [0, -1, -0.0])
def test_a_spent_total_raises_before_anything_connects(streamguard_gateway: Serve, total: float) -> None:
    """Through `next()`, `open()` and `with` alike."""
    gateway = streamguard_gateway("chat a\ndone")
    for start in (next, lambda stream: stream.open(), lambda stream: stream.__enter__(), lambda stream: stream.read()):
        with pytest.raises(DeadlineExceededError):
            start(stream_from(gateway, total=total))
    assert gateway.connections == 0


@pytest.mark.parametrize("value", ["", "soon", "-5", "nan", "1 2", "5 minutes", "0x10", "1e3", "inf", "5s5"])
@pytest.mark.parametrize("variable", ["STREAMGUARD_IDLE", "STREAMGUARD_TOTAL"])
def test_a_malformed_environment_is_ignored_with_a_warning_that_names_it(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """The call goes on with the default."""
    monkeypatch.setenv(variable, value)
    with pytest.warns(UserWarning, match=variable):
        stream = stream_from(streamguard_gateway("chat a\ndone"))
    assert consume(stream).text == "a"


@pytest.mark.parametrize("value", ["90", "90s", "1.5m", "90000ms", "1m30s", " 90 "])
def test_a_good_environment_warns_of_nothing(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """All spellings of a duration."""
    monkeypatch.setenv("STREAMGUARD_IDLE", value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Timeouts().idle == 90


@pytest.mark.parametrize("wrong", ["text", "", None, 5, b"chat"])
def test_a_wrong_decode_is_refused(wrong: Any) -> None:
    """Anything else is refused by its name."""
    with pytest.raises(UsageError, match="decode="):
        guarded_stream("GET", "http://127.0.0.1:9/", decode=wrong)


@pytest.mark.parametrize("wrong", ["text", 5, [has_content]])
def test_a_wrong_counts_is_refused(wrong: Any) -> None:
    """`counts=` takes a function of a chunk."""
    with pytest.raises(TypeError, match="counts="):
        guarded_stream("GET", "http://127.0.0.1:9/", counts=wrong)


def test_no_limit_is_mistaken_for_another(streamguard_gateway: Serve) -> None:
    """A steady stream outlives `idle`, only `total` ends it, and a bare `timeout=` is refused with both names (B017)."""
    seen = consume(stream_from(streamguard_gateway(ENDLESS), idle=0.2, total=0.6))
    assert isinstance(seen.error, DeadlineExceededError)
    assert len(seen.chunks) > 5
    with pytest.raises(UsageError, match=r"idle= is silence, total= the whole call"):
        guarded_stream("GET", "http://localhost/", timeout=5)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["connect", "response", "first", "idle", "dead", "total", "heartbeat", "end_grace"])
@pytest.mark.parametrize(("wrong", "kind"), [(float("nan"), ValueError), (True, TypeError), ("soon", ValueError)])
def test_nonsense_is_refused_by_name(name: str, wrong: object, kind: type[Exception]) -> None:
    """NaN, a bool and a text without a duration are refused, and the error says which argument it was (B018)."""
    with pytest.raises(kind, match=f"^{name}="):
        guarded_stream("GET", "http://localhost/", **{name: wrong})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("name", "wrong"), [("cancel", "token"), ("cancel", threading.Event()), ("name", 5), ("name", b"x")]
)
def test_a_wrong_token_or_name_is_refused(name: str, wrong: Any) -> None:
    """`cancel=` takes a CancelToken, `name=` a str."""
    options: dict[str, Any] = {name: wrong}
    with pytest.raises(TypeError, match=f"{name}="):
        guarded_stream("GET", "http://127.0.0.1:9/", **options)


@pytest.mark.parametrize("wrong", ["session", 5, requests, requests.Session])
def test_a_wrong_session_is_refused(wrong: Any) -> None:
    """Anything else is refused by its name."""
    with pytest.raises(TypeError, match="session="):
        guarded_stream("GET", "http://127.0.0.1:9/", session=wrong)


def test_the_keywords_of_a_stream_have_every_limit() -> None:
    """The limits that `guarded_stream()` and `guard()` take are those of the one table."""
    assert LimitKeywords.__annotations__.keys() == LIMITS.keys()


def test_guard_names_an_unknown_keyword() -> None:
    """guard() refuses it as a function with a fixed signature does, and `timeout=` with the way out."""
    with pytest.raises(TypeError, match=r"guard\(\) got an unexpected keyword argument 'idel'"):
        guard(lambda: None, idel=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"timeout= is ambiguous here: idle= is silence, total= the whole call"):
        guard(lambda: None, timeout=3)  # type: ignore[call-arg]
