"""Streams, runs and turns that end well or not, and entries as they leave them."""

import dataclasses
import datetime
from contextlib import suppress
from typing import Any

from streamguard import Chain, StreamguardError, guarded_stream
from streamguard.dispatch import CallableMember, Dispatcher
from streamguard.journal import JournalEntry, Moment
from streamguard.journal.limit_advice import AdviceOptions, advise
from streamguard.journal.report_text import report_text
from streamguard.journal.summary import Summary
from streamguard.telemetry import GAP_BOUNDS
from streamguard.testing import Gateway

NO_GAPS = [[0, 0.0] for _ in range(len(GAP_BOUNDS) + 1)]


def stream(*scripts: str, **options: Any) -> str:
    """Read a stream to its end, whatever that is; return its id."""
    with Gateway(*scripts) as gateway:
        found = guarded_stream("POST", gateway.url, json={"stream": True}, **options)
        with suppress(StreamguardError):
            found.read()
        return found.report.id


def failing_stream(**options: Any) -> str:
    """Return the id of a stream that went silent after its first chunk."""
    return stream("chat a\nstall", **{"idle": 0.1, "name": "chat", **options})


def good_stream(**options: Any) -> str:
    """Return the id of a stream that completed."""
    return stream("chat a\nwait 0.03\nchat b\ndone", **{"name": "chat", **options})


def refused(ctx: Any) -> Any:
    raise ConnectionRefusedError


def run_that_waits() -> str:
    """Return the id of a run whose critical step failed."""
    chain = Chain("agent", deadline=5)
    chain.step(lambda ctx: 1, name="plain")
    chain.step(refused, name="optional", fallback=1, fallback_name="neutral")
    chain.step(refused, name="policy")
    return chain.run().id


def turn_that_hangs() -> tuple[str, str]:
    """Return the ids of a turn that was stopped for its silence, and of its execution."""
    member = CallableMember("agent-1", lambda prompt, context: str(context.token.wait(30)))
    with Dispatcher() as dispatcher:
        outcome = dispatcher.dispatch("c", [member], "p", output_timeout=0.1)
    return outcome["agent-1"].turn_id, outcome.execution_id


def stream_entry(**values: Any) -> JournalEntry:
    """Return the entry of a complete stream with these *values*; those of its numbers are among them."""
    numbers: dict[str, Any] = {
        "operation": "chat",
        "attempts": 1,
        "chunks": 2,
        "bytes": 300,
        "comments": 0,
        "time_to_headers": 0.5,
        "time_to_first_byte": 0.75,
        "time_to_first_chunk": 1.0,
        "max_gap": 0.2,
        "max_byte_gap": 0.15,
        "finish_reason": None,
        "status_code": 200,
        "abandoned_threads": 0,
        "gaps": NO_GAPS,
    }
    own = {name: values.pop(name) for name in numbers.keys() & values.keys()}
    defaults: dict[str, Any] = {
        "kind": "stream",
        "id": "s1",
        "name": "chat",
        "outcome": "completed",
        "stopped_in": "done",
        "started_at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "seconds": 2.0,
        "moments": (
            Moment(what="phase", name="connect", at=0.0, attempt=1),
            Moment(what="phase", name="response", at=0.1, attempt=1),
            Moment(what="phase", name="first", at=0.5, attempt=1),
            Moment(what="phase", name="idle", at=1.0, attempt=1),
        ),
    }
    return JournalEntry(**{**defaults, **values, "numbers": {**numbers, **own}})


def step(name: str, status: str, **values: Any) -> Moment:
    return Moment(what="step", name=name, status=status, **values)


def entry(kind: Any, outcome: str, stopped_in: str | None, **values: Any) -> JournalEntry:
    """Return an entry of a run or a turn."""
    defaults: dict[str, Any] = {"kind": kind, "outcome": outcome, "stopped_in": stopped_in, "moments": (), "numbers": {}}
    return dataclasses.replace(stream_entry(), **{**defaults, **values})


def gaps(**counts: int) -> list[list[float]]:
    return [[counts.get(f"b{number}", 0), 0.0] for number in range(len(NO_GAPS))]


ENTRIES = [
    *[stream_entry(gaps=gaps(b0=3, b2=1))] * 3,
    stream_entry(outcome="timeout", stopped_in="first", time_to_first_chunk=None, gaps=NO_GAPS),
    stream_entry(time_to_first_chunk=500.0, gaps=gaps(b14=1)),
    entry(
        *("run", "waiting_external_service", "policy"),
        name="agent",
        moments=(
            step("profile", "ok", at=0.0, seconds=0.25),
            step("policy", "timeout", at=0.25, seconds=0.5, limit=0.5, reason="step_limit"),
        ),
    ),
    entry("turn", "failed", "timeout", name="claude", numbers={"silence": 600.0}),
    entry("turn", "succeeded", None, name="claude", numbers={"silence": 20.0}),
    entry("gap", "lost", None, numbers={"entries": 4}),
]


SURE = AdviceOptions(0.5, 0.9, min_count=1)


def text_of(summary: Summary) -> str:
    return report_text(summary, advise(summary, SURE), SURE)
