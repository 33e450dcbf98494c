"""The events of a real dispatch, which hold nothing that its members print."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard.dispatch import CallableMember, Dispatcher, DispatchQueue, TurnContext
from streamguard.dispatch import Event as Said
from streamguard.telemetry import ConcurrencyChanged, DispatchFinished, Event, ThreadAbandoned, TurnFinished
from streamguard.telemetry.words import word

from .test_events import only
from .test_secrets import SECRET, Everything


def talks(prompt: str, context: TurnContext) -> str:
    return SECRET


def hangs(prompt: str, context: TurnContext) -> Iterator[str]:
    yield SECRET
    context.token.wait(30)


def raises(prompt: str, context: TurnContext) -> str:
    raise KeyError(SECRET)


def complains(prompt: str, context: TurnContext) -> Iterator[Said]:
    yield Said.failure(SECRET, SECRET)


def members() -> list[CallableMember]:
    return [CallableMember(run.__name__, run) for run in (talks, hangs, raises, complains)]  # type: ignore[arg-type]


def test_each_turn_and_the_dispatch_are_emitted(emitted: list[Event]) -> None:
    """One event for each turn, with its member, status and reason, and one for the dispatch."""
    with Dispatcher() as dispatcher:
        outcome = dispatcher.dispatch("c", members()[:2], "p", output_timeout=0.2)
    turns = {event.member: event for event in only(emitted, TurnFinished)}
    assert {name: (turn.status, turn.reason) for name, turn in turns.items()} == {
        turn.member: (turn.turn_status, turn.turn_reason) for turn in outcome.turns
    }
    assert (turns["hangs"].status, turns["hangs"].reason) == ("failed", "timeout")
    assert turns["hangs"].silence >= 0.2
    (end,) = only(emitted, DispatchFinished)
    assert (end.id, end.status, end.members) == (outcome.execution_id, outcome.status, 2)
    assert {turn.execution_id for turn in turns.values()} == {outcome.execution_id}
    assert end.seconds >= max(turn.seconds for turn in turns.values())


def test_an_abandoned_member_is_emitted(emitted: list[Event]) -> None:
    """Its thread has the kind `turn`."""
    end = threading.Event()

    def stubborn(prompt: str, context: TurnContext) -> str:
        end.wait()
        return ""

    member = CallableMember("stubborn", stubborn)
    member.stop_grace = 0.05
    with Dispatcher() as dispatcher:
        dispatcher.dispatch("c", [member], "p", output_timeout=0.1)
        end.set()
    assert only(emitted, ThreadAbandoned) == [ThreadAbandoned(kind="turn")]


def test_a_queues_places_are_taken_and_freed(emitted: list[Event]) -> None:
    """The pool is `dispatch_queue` for all entries; at the end no place is taken."""
    with Dispatcher() as dispatcher, DispatchQueue(dispatcher, members()) as entries:
        entries.wait(entries.submit("c", ["talks"], "p"), 20)
    changes = only(emitted, ConcurrencyChanged)
    assert [(change.pool, change.in_use) for change in changes] == [("dispatch_queue", 1), ("dispatch_queue", 0)]


def test_nothing_that_members_print_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Prompt, output, the text and code of an error, an exception's text: in no log, metric or span."""
    everything = Everything(caplog)
    with Dispatcher() as dispatcher:
        dispatcher.dispatch(SECRET, members(), SECRET, output_timeout=0.2)
    shown: dict[str, Any] = everything.shown()
    assert [place for place, text in shown.items() if SECRET in text] == []
    turns = 'streamguard_member_turns_total{member="%s",reason="%s",status="%s"} 1.0'
    assert turns % ("hangs", "timeout", "failed") in shown["prometheus"]
    assert turns % ("complains", "_OTHER", "failed") in shown["prometheus"]
    assert "turn hangs failed" in shown["log"]


def test_a_reason_is_a_word() -> None:
    """Codes and reasons in use are words; any other text becomes `_OTHER`."""
    assert [word(text) for text in (None, "timeout", "ETIMEDOUT", "http_500", "error.max_turns")] == [
        *(None, "timeout", "ETIMEDOUT", "http_500", "error.max_turns"),
    ]
    assert {word(text) for text in ("", "two words", "sk-1", "a" * 41, "línea", "a\n", "7")} == {"_OTHER"}


@given(st.text())
def test_a_word_is_short_and_plain(text: str) -> None:
    """For any input, the output fits into a label."""
    said = word(text)
    assert said is not None
    assert said.isascii()
    assert len(said) <= 40
    assert said.replace("_", "").replace(".", "").isalnum()
