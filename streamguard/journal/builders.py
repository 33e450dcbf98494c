"""Build entries from the events that end a stream, run or turn, and from the notes before. Pure."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ..telemetry.events import (
    RunFinished,
    StepFinished,
    StepStarted,
    StreamFinished,
    StreamRetry,
    StreamStalled,
    TurnFinished,
)
from .entries import JournalEntry, Moment

Note = StreamStalled | StreamRetry | StepStarted | StepFinished
"""The events that are kept until the end of the stream or run."""

_DEADLINES = {"total": "total", "ambient": "deadline"}
"""The names of these scopes' limits in the journal."""

_BYSTANDERS = {"cancelled": 1, "skipped": 2}
"""Statuses of steps that stopped because of another step: that one is named as the cause, if it is known."""

_NUMBERS = (
    *("attempts", "chunks", "bytes", "comments", "time_to_headers", "time_to_first_byte", "time_to_first_chunk"),
    *("max_gap", "max_byte_gap", "finish_reason", "status_code", "abandoned_threads"),
)


def entry_of_stream(event: StreamFinished, notes: Sequence[Note]) -> JournalEntry:
    """Return the entry of a stream: the phases and problems of each attempt, and a deadline last."""
    report, values = event.report, event.report.to_log()
    return JournalEntry(
        kind="stream",
        id=report.id,
        name=report.name,
        outcome=report.outcome,
        stopped_in=report.phase,
        error_type=report.error_type,
        started_at=report.started_at,
        seconds=report.lifetime,
        moments=(*_course(event, notes), *_deadline(event)),
        numbers={"operation": event.operation, **{name: values[name] for name in _NUMBERS}, "gaps": _gaps(event)},
    )


def entry_of_run(event: RunFinished, notes: Sequence[Note], now: float) -> JournalEntry:
    """Return the entry of a chain's run that ended at *now*: its steps, and the step in which it stopped."""
    steps = tuple(map(_step, event.details.get("steps") or _last_states(notes)))
    return JournalEntry(
        kind="run",
        id=event.id,
        name=event.run,
        outcome=event.status or "raised",
        stopped_in=_stopped_in(steps),
        error_type=event.error_type,
        started_at=instant(now - event.seconds),
        seconds=event.seconds,
        moments=steps,
        numbers={"deadline": event.details.get("deadline")},
    )


def entry_of_turn(event: TurnFinished, now: float) -> JournalEntry:
    """Return the entry of a member's turn that ended at *now*."""
    return JournalEntry(
        kind="turn",
        id=event.id,
        parent=event.execution_id,
        name=event.member,
        outcome=str(event.status),
        stopped_in=event.reason,
        started_at=instant(now - event.seconds),
        seconds=event.seconds,
        numbers={"silence": event.silence},
    )


def _course(event: StreamFinished, notes: Sequence[Note]) -> tuple[Moment, ...]:
    """Merge the phases, which have times, with the notes, of which only the attempt is known."""
    phases = [Moment(what="phase", name=mark.phase, at=mark.at, attempt=mark.attempt) for mark in event.report.trace.phases]
    course: list[Moment] = []
    attempt = max(1, event.report.attempts - sum(isinstance(note, StreamRetry) for note in notes))
    for note in notes:
        moment = _noted(note, attempt)
        while phases and _comes_before(phases[0], moment, attempt):
            course.append(phases.pop(0))
        course.append(moment)
        attempt += isinstance(note, StreamRetry)
    return (*course, *phases)


def _comes_before(phase: Moment, moment: Moment, attempt: int) -> bool:
    """Whether *phase* began before *moment*: it is of an earlier attempt, or not after the phase of the moment."""
    if phase.attempt != attempt:
        return (phase.attempt or 0) < attempt
    return phase.name != "retry" and (moment.what == "retry" or _order(phase.name) <= _order(moment.name))


def _order(phase: str) -> int:
    return ("new", "connect", "response", "first", "idle", "dead", "grace", "retry", "done").index(phase)


def _noted(note: Note, attempt: int) -> Moment:
    if isinstance(note, StreamStalled):
        what: Literal["limit", "silence"] = "limit" if note.fired else "silence"
        return Moment(what=what, name=note.phase, attempt=attempt, seconds=note.silence, limit=note.limit)
    assert isinstance(note, StreamRetry)
    return Moment(what="retry", name=note.phase, attempt=note.attempt, seconds=note.pause, error_type=note.error_type)


def _last_states(notes: Iterable[Note]) -> list[Mapping[str, Any]]:
    """Return the last known state of each step of a run without a result."""
    states: dict[str, Mapping[str, Any]] = {}
    for note in notes:
        if isinstance(note, StepStarted):
            states[note.step] = {"name": note.step, "status": "started"}
        elif isinstance(note, StepFinished):
            states[note.step] = {"name": note.step, "status": note.status, **note.details}
    return list(states.values())


def _deadline(event: StreamFinished) -> tuple[Moment, ...]:
    if event.deadline is None:
        return ()
    report, name = event.report, _DEADLINES[event.deadline]
    return (Moment(what="limit", name=name, at=report.lifetime, attempt=report.attempts or None, limit=event.total),)


def _step(report: Mapping[str, Any]) -> Moment:
    return Moment(
        what="step",
        name=report["name"],
        at=report.get("started_after"),
        attempt=report.get("attempts"),
        seconds=report.get("duration"),
        limit=report.get("budget"),
        status=report["status"],
        reason=report.get("reason"),
        fallback=report.get("fallback"),
        error_type=report.get("error_type"),
    )


def _stopped_in(steps: Sequence[Moment]) -> str | None:
    """Return the step in which the run stopped: the first one without a value and without a fallback."""
    without = [step for step in steps if step.status != "ok" and step.fallback is None]
    first = min(without, key=lambda step: _BYSTANDERS.get(step.status or "", 0), default=None)
    return None if first is None else first.name


def _gaps(event: StreamFinished) -> list[list[float]]:
    return [[count, round(total, 6)] for count, total in event.gaps]


def instant(wall: float) -> datetime.datetime:
    """Return the UTC time of a wall clock's *wall* seconds."""
    return datetime.datetime.fromtimestamp(wall, datetime.UTC)
