"""The default hook: a log line for each event, with its fields under `extra`."""

import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import streamguard
from streamguard import StreamguardError, before_first_chunk, guarded_stream
from streamguard._sse import EventClient
from streamguard.dispatch import CallableMember, Dispatcher
from streamguard.telemetry import emit, get_hooks, set_hooks
from streamguard.testing import Gateway

from .samples import DISPATCH, OTHERS, RUN

Serve = Callable[..., Gateway]

GOOD = "chat a\nchat b\nfinish\ndone"


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[tuple[str, str]]:
    """Return the level and message of each record of ours."""
    ours = [record for record in caplog.records if record.name == "streamguard" and record.levelno >= level]
    return [(record.levelname, record.getMessage()) for record in ours]


def extras(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """Return the fields of each record of ours."""
    return [vars(record)["streamguard"] for record in caplog.records if record.name == "streamguard"]


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "streamguard")


def read(gateway: Gateway, **options: Any) -> Any:
    options.setdefault("retry", None)
    stream = guarded_stream("POST", gateway.url, **options)
    with contextlib.suppress(StreamguardError):
        stream.read()
    return stream


@pytest.mark.parametrize(
    ("script", "outcome"), [(GOOD, "completed"), ("chat a\nend", "error"), ("headers 500", "error"), ("stall", "timeout")]
)
def test_one_info_line_for_each_finished_stream(
    streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture, script: str, outcome: str
) -> None:
    """It has the outcome; the record has the report, without host and without text from the server."""
    stream = read(streamguard_gateway(script), response=0.1, name="mine")
    infos = [line for line in lines(caplog) if line[0] == "INFO"]
    assert infos == [("INFO", f"stream {outcome}")]
    assert extras(caplog)[-1] == {"event": "stream_finished", "operation": "chat", **stream.report.to_log()}


def test_attempts_are_debug(streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """The events inside a stream that ends well are at DEBUG only."""
    retry = before_first_chunk(1, on={"ECONNRESET"}, wait=lambda state: 0.0)
    read(streamguard_gateway("reset", GOOD), retry=retry)
    assert lines(caplog) == [
        ("DEBUG", "stream started"),
        ("DEBUG", "attempt started"),
        ("DEBUG", "attempt finished"),
        ("DEBUG", "stream retry after TransportError in phase response"),
        ("DEBUG", "attempt started"),
        ("DEBUG", "attempt finished"),
        ("INFO", "stream completed"),
    ]
    (fields,) = [fields for fields in extras(caplog) if fields["event"] == "stream_retry"]
    assert (fields["attempt"], fields["error_type"], fields["pause"]) == (1, "TransportError", 0.0)


def test_silence_is_a_warning(streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """One at half of a limit, one when it fires, each with its phase; none while chunks arrive."""
    read(streamguard_gateway("tick\ntick\ndone"), idle=5)
    assert lines(caplog, logging.WARNING) == []
    read(streamguard_gateway("headers\nwait 0.3\nchat a\nstall"), first=0.5, idle=0.2)
    assert lines(caplog, logging.WARNING) == [
        ("WARNING", "stream silent for half of its limit in phase first"),
        ("WARNING", "stream silent for half of its limit in phase idle"),
        ("WARNING", "stream silent for its whole limit in phase idle"),
    ]
    fields = next(fields for fields in extras(caplog) if fields["event"] == "stream_stalled")
    assert (fields["event"], fields["phase"], fields["fired"], fields["limit"]) == ("stream_stalled", "first", False, 0.5)


def test_runs_and_steps(caplog: pytest.LogCaptureFixture) -> None:
    """One INFO line for the run; steps at DEBUG; a fallback is a WARNING."""
    for event in RUN:
        emit(event)
    assert lines(caplog) == [
        ("DEBUG", "run started"),
        ("DEBUG", "step started"),
        ("DEBUG", "step budget reduced"),
        ("DEBUG", "step retry"),
        ("WARNING", "step profile fallback after step_limit"),
        ("DEBUG", "step profile timeout"),
        ("DEBUG", "step started"),
        ("DEBUG", "step policy ok"),
        ("INFO", "run agent completed_with_fallback"),
    ]
    assert extras(caplog)[-1] == {
        "event": "run_finished",
        "id": "r1",
        "run": "agent",
        "status": "completed_with_fallback",
        "seconds": 0.35,
        "error_type": None,
    }


def test_dispatches_and_turns(caplog: pytest.LogCaptureFixture) -> None:
    """One INFO line for the dispatch; a turn that timed out, and an abandoned thread, are WARNINGs."""
    for event in DISPATCH:
        emit(event)
    assert lines(caplog) == [
        ("DEBUG", "concurrency changed"),
        ("WARNING", "turn claude failed"),
        ("DEBUG", "turn codex succeeded"),
        ("DEBUG", "concurrency changed"),
        ("WARNING", "thread abandoned: turn"),
        ("INFO", "dispatch failed"),
    ]


def test_a_closer_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """It is a WARNING with the exception's type."""
    emit(OTHERS[0])
    assert lines(caplog) == [("WARNING", "a closer failed")]
    assert extras(caplog)[-1]["error_type"] == "RuntimeError"


def test_nothing_is_shown_until_logging_is_configured() -> None:
    """A program that configures no logging shows nothing, not even the warnings."""
    program = "from streamguard.telemetry import ThreadAbandoned, emit\nemit(ThreadAbandoned(kind='reader'))\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert (done.stdout, done.stderr) == ("", "")


class Strict(logging.Handler):
    """Formats every record as that of a finished stream."""

    def emit(self, record: logging.LogRecord) -> None:
        raise KeyError(vars(record)["streamguard"]["outcome"])


def test_a_handler_that_raises_breaks_nothing(streamguard_gateway: Serve) -> None:
    """Neither a stream with a stall, nor a hook that fails as well, nor a dispatch."""
    logger = logging.getLogger("streamguard")
    logger.addHandler(handler := Strict())
    try:
        set_hooks([*get_hooks(), lambda event: 1 / 0])
        stream = read(streamguard_gateway("chat a\nwait 0.3\nchat b\nfinish\ndone"), idle=0.5)
        assert (stream.text, stream.report.outcome) == ("ab", "completed")
        with Dispatcher() as dispatcher:
            assert dispatcher.dispatch("c", [CallableMember("a", lambda prompt, context: "hi")], "p").status == "succeeded"
    finally:
        logger.removeHandler(handler)
        set_hooks(None)


def test_every_line_is_written_in_one_place() -> None:
    """So each line has its kind, and none raises."""
    package = Path(streamguard.__file__).parent
    loggers = [path.name for path in package.rglob("*.py") if "getLogger(" in path.read_text()]
    assert sorted(loggers) == ["event_parser.py", "logs.py"]


def test_what_sseclient_logs_stays_out_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """Its clients have a logger below ours, which a configuration of logging enables again."""
    logger = logging.getLogger(EventClient.__module__)
    logger.disabled = False
    logger.setLevel(logging.NOTSET)
    EventClient()
    assert caplog.records == []
