"""Secrets, planted wherever a stream can read them: no log, metric or span holds one."""

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests
from prometheus_client import CollectorRegistry, generate_latest

from streamguard import CancelToken, before_first_chunk, guarded_stream
from streamguard.telemetry import Event, get_hooks, set_hooks
from streamguard.telemetry.prometheus import PrometheusHook
from streamguard.testing import Gateway

from .test_otel import Telemetry

Serve = Callable[..., Gateway]

SECRET = "sk-PLANTED"
USAGE = json.dumps({"choices": [], "usage": {SECRET: 1, "prompt_tokens": SECRET, "completion_tokens": 2}})
CHOICE = json.dumps({"id": SECRET, "model": SECRET, "choices": [{"delta": {"content": SECRET}, "finish_reason": SECRET}]})
SCRIPTS = {
    "good": f"headers 200 x-request-id: {SECRET}\ncomment {SECRET}\nevent {CHOICE}\nevent {USAGE}\ndone",
    "status": f'headers 500 {SECRET} x-request-id: {SECRET}; content-type: application/json\nraw {{"error": "{SECRET}"}}',
    "error-frame": f"event {json.dumps({'error': {'message': SECRET, 'type': SECRET, 'code': SECRET}})}",
    "not-json": f"chat a\nevent {SECRET}",
    "another-type": f"headers content-type: text/{SECRET}\nraw {SECRET}",
    "redirect": f"headers 307 location: http://127.0.0.1:1/{SECRET}; content-length: 0",
    "stall": f"chat {SECRET}\nstall",
    "reset": f"chat {SECRET}\nwait 0.05\nreset",
    "retried": "headers\nstall",
}


class Everything:
    """The log, the metrics and the spans, and what they received."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "streamguard")
        self.caplog = caplog
        self.registry = CollectorRegistry()
        self.otel = Telemetry()
        self.events: list[Event] = []
        set_hooks(None)
        set_hooks([*get_hooks(), PrometheusHook(self.registry), self.otel.hook, self.events.append])

    def shown(self) -> dict[str, str]:
        """Return all that a reader of logs, metrics or traces can see."""
        ours = [record for record in self.caplog.records if record.name.startswith("streamguard")]
        data = self.otel.reader.get_metrics_data()
        return {
            "log": self.caplog.text + "".join(str(vars(record)) for record in ours),
            "prometheus": generate_latest(self.registry).decode(),
            "metrics": "" if data is None else data.to_json(),
            "spans": "".join(span.to_json() for span in self.otel.spans),
        }

    def assert_clean(self) -> None:
        """Fail if one of them shows the secret, or if all are empty."""
        shown = self.shown()
        assert [place for place, text in shown.items() if SECRET in text] == []
        assert "stream_finished" in shown["log"]
        assert shown["spans"]


@pytest.fixture
def everything(caplog: pytest.LogCaptureFixture) -> Everything:
    """The log, the metrics and the spans."""
    return Everything(caplog)


def ask(gateway: Gateway, **options: Any) -> Any:
    """Return a stream whose request is full of secrets."""
    url = gateway.url.replace("http://", f"http://{SECRET}:{SECRET}@")
    return guarded_stream(
        "POST",
        f"{url}/{SECRET}?key={SECRET}",
        headers={"Authorization": f"Bearer {SECRET}", f"X-{SECRET}": SECRET},
        cookies={SECRET: SECRET},
        params={SECRET: SECRET},
        json={"model": f"{SECRET} and more", "messages": [{"content": SECRET}], SECRET: SECRET, "stream": True},
        **options,
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_nothing_of_request_or_response_is_shown(streamguard_gateway: Serve, everything: Everything, script: str) -> None:
    """URL, headers, cookies, body, the server's texts in status, body, frames and headers: at any end."""
    retry = before_first_chunk(1, wait=lambda state: 0.0)
    stream = ask(streamguard_gateway(SCRIPTS[script]), idle=0.15, retry=retry)
    raised: list[BaseException] = []
    try:
        stream.read()
    except Exception as error:
        raised.append(error)
    assert bool(raised) == (script != "good")
    everything.assert_clean()


def test_nothing_of_a_cancels_reason_is_shown(streamguard_gateway: Serve, everything: Everything) -> None:
    """The reason is an argument of the caller; an exception of a closer is not shown either."""
    token = CancelToken()

    def fail() -> None:
        raise RuntimeError(SECRET)

    token.on_cancel(fail)
    stream = ask(streamguard_gateway("chat a\nstall"), cancel=token)
    next(stream)
    token.cancel(SECRET)
    assert stream.report.outcome == "cancelled"
    stream.close()
    everything.assert_clean()
    assert "a closer failed" in everything.shown()["log"]


def test_nothing_of_the_callers_own_faults_is_shown(streamguard_gateway: Serve, everything: Everything) -> None:
    """An exception of a requests hook, `auth=` or `counts=` is shown by its type."""

    def broken(*arguments: Any, **options: Any) -> Any:
        raise KeyError(SECRET)

    for options in ({"hooks": {"response": broken}}, {"auth": broken}, {"counts": broken}):
        with pytest.raises(KeyError):
            ask(streamguard_gateway("chat a\ndone"), **options).read()
    everything.assert_clean()
    assert "KeyError" in everything.shown()["log"]


def test_no_event_holds_more_than_its_report(streamguard_gateway: Serve, everything: Everything) -> None:
    """A hook cannot leak what it does not receive: of the server's texts only the report's two fields."""
    ask(streamguard_gateway(SCRIPTS["good"])).read()
    *others, finished = everything.events
    assert SECRET not in str(others)
    report = finished.report  # type: ignore[union-attr]
    shown = {key for key, value in report.to_dict().items() if SECRET in str(value)}
    assert shown == {"finish_reason", "usage", "request_id"}
    assert SECRET not in str(report.to_log())


def test_the_servers_finish_reason_is_a_word_in_use(streamguard_gateway: Serve, everything: Everything) -> None:
    """A finish reason that no API documents becomes `_OTHER`."""
    stream = ask(streamguard_gateway(SCRIPTS["good"]))
    stream.read()
    assert stream.report.finish_reason == SECRET
    assert "'finish_reason': '_OTHER'" in everything.shown()["log"]
    (span,) = everything.otel.spans
    assert (span.attributes or {})["gen_ai.response.finish_reasons"] == ("_OTHER",)


def test_nothing_is_shown_of_a_session(streamguard_gateway: Serve, everything: Everything) -> None:
    """A session's own headers and cookies are the caller's, too."""
    with requests.Session() as session:
        session.headers["Authorization"] = SECRET
        session.cookies.set(SECRET, SECRET)
        thread = threading.Thread(target=lambda: ask(streamguard_gateway("chat a\ndone"), session=session).read())
        thread.start()
        thread.join()
    everything.assert_clean()
