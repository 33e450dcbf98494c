"""An entry, told: what was asked, each attempt, each phase, where it stopped. Pure: an entry in, text out."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .entries import JournalEntry, Moment

__all__ = ["headline", "one_line", "seconds_of", "story"]


def story(entry: "JournalEntry") -> str:
    """Return the story of *entry*, in lines."""
    return "\n".join((headline(entry), f"  {_ending(entry)}", *_way(entry), *_numbers(entry)))


def headline(entry: "JournalEntry") -> str:
    """Return what was asked, and when."""
    name = one_line(entry.name) if entry.name else "(no name)"
    asked = ", a call of a model" if entry.numbers.get("operation") == "chat" else ""
    belongs = f" of execution {one_line(entry.parent)}" if entry.parent else ""
    return f"{entry.kind} {name}, id {one_line(entry.id)}{belongs}{asked}, started {entry.started_at:%Y-%m-%d %H:%M:%S} UTC"


def one_line(text: str) -> str:
    """Return *text* in one line, without what could steer a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def seconds_of(value: float | None) -> str:
    """Return seconds to be read; a dash where there are none."""
    return "-" if value is None else f"{value:.3f} s"


def _ending(entry: "JournalEntry") -> str:
    stopped = entry.stopped_in if entry.stopped_in != "done" else None
    where = {"stream": "in phase", "run": "at step", "turn": "for"}.get(entry.kind, "in")
    raised = f": {entry.error_type}" if entry.error_type else ""
    return f"{entry.outcome}{f' {where} {one_line(stopped)}' if stopped else ''} after {entry.seconds:.3f} s{raised}"


def _way(entry: "JournalEntry") -> Iterator[str]:
    attempt: int | None = None
    for moment in entry.moments:
        if entry.kind == "stream" and moment.attempt != attempt:
            attempt = moment.attempt
            yield f"  attempt {attempt}"
        yield f"  {'' if moment.at is None else f'{moment.at:.3f} s':>12}  {one_line(_words(moment))}"


def _words(moment: "Moment") -> str:
    match moment.what:
        case "silence":
            return f"silent in phase {moment.name} for half of the limit, {seconds_of(moment.limit)}"
        case "limit" if moment.name == "deadline":
            return "the surrounding deadline() passed"
        case "limit" if moment.name == "total":
            return f"limit total={_bare(moment.limit)} fired"
        case "limit":
            return f"limit {moment.name}={_bare(moment.limit)} fired: silent for {seconds_of(moment.seconds)}"
        case "retry":
            return f"{moment.error_type} in phase {moment.name}; another attempt after {seconds_of(moment.seconds)}"
        case "step":
            return _step(moment)
    return moment.name


def _step(moment: "Moment") -> str:
    why = f" ({moment.reason})" if moment.reason else ""
    took = f", took {moment.seconds:.3f} s" if moment.seconds is not None else ""
    had = f" of {moment.limit:.3f} s" if took and moment.limit is not None else ""
    again = f", {moment.attempt} attempts" if (moment.attempt or 0) > 1 else ""
    stand_in = f", fallback {moment.fallback}" if moment.fallback else ""
    raised = f", {moment.error_type}" if moment.error_type else ""
    return f"{moment.name}: {moment.status}{why}{took}{had}{again}{stand_in}{raised}"


def _numbers(entry: "JournalEntry") -> Iterator[str]:
    numbers = entry.numbers
    if entry.kind == "stream":
        yield f"  chunks {numbers['chunks']}, bytes {numbers['bytes']}, heartbeats {numbers['comments']}"
        yield f"  status {numbers['status_code'] or '-'}, finish reason {numbers['finish_reason'] or '-'}"
        first, longest = seconds_of(numbers["time_to_first_chunk"]), seconds_of(numbers["max_gap"])
        yield f"  first chunk after {first}, longest gap {longest}"
        if numbers["abandoned_threads"]:
            yield f"  threads left behind: {numbers['abandoned_threads']}"
    elif entry.kind == "run" and numbers.get("deadline") is not None:
        yield f"  deadline {seconds_of(numbers['deadline'])}"
    elif entry.kind == "turn":
        yield f"  longest silence {seconds_of(numbers.get('silence'))}"


def _bare(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
