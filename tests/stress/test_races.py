"""Several threads at one stream, each doing something else at a moment of its own: one end, one error, no chunk twice."""

import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamguard import (
    HEARTBEAT,
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    guarded_stream,
)
from streamguard.dispatch import Dispatcher
from streamguard.testing import no_leaks

from ..dispatch.scripted import says
from ..helpers import in_threads, join, switching_often
from .faults import FaultyGateway, numbers_of

pytestmark = [pytest.mark.stress, pytest.mark.timeout(300)]

ROUNDS = 400
SHORT = 0.05
ENDLESS = 100_000

PATHS = {
    "flowing": f"/done/{ENDLESS}/chunked/identity",
    "silent": "/stall/5/chunked/identity",
    "heartbeats": "/comments/5/chunked/identity",
    "broken": "/reset/5/chunked/identity",
    "short": "/done/5/chunked/identity",
}
LIMITS: tuple[dict[str, Any], ...] = ({}, {"idle": SHORT}, {"total": SHORT}, {"idle": SHORT, "total": SHORT})
OWN_ERRORS = {"TransportError", "IncompleteStreamError"}


@dataclass(slots=True)
class Race:
    """One stream, its consumers' harvest, and what the others do to it."""

    stream: Any
    token: CancelToken
    numbers: list[list[int]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    stray: list[BaseException] = field(default_factory=list)
    """What was raised where nothing may be."""

    def consume(self, patience: int | None = None) -> None:
        """Loop over the stream, to its end or for *patience* chunks."""
        texts: list[str] = []
        try:
            for chunk in self.stream:
                texts += [chunk.text] if chunk is not HEARTBEAT else []
                if patience is not None and len(texts) >= patience:
                    break
        except StreamguardError as error:
            self.errors.append(error)
        except BaseException as error:
            self.stray.append(error)
        self.numbers.append(numbers_of(texts))

    def look(self) -> None:
        """Ask for everything that may be asked at any time."""
        for _ in range(20):
            report, text = self.stream.report, self.stream.text
            assert report.chunks >= 0
            assert isinstance(text, str)
            assert repr(self.stream)
            self.stream.heartbeat = random.choice((None, 0.01))

    def act(self, act: Callable[[], object], moment: float) -> None:
        """Do it at the moment; it may not raise."""
        time.sleep(moment)
        try:
            act()
        except BaseException as error:
            self.stray.append(error)


ACTS: dict[str, Callable[[Race], Callable[[], object]]] = {
    "close": lambda race: race.stream.close,
    "cancel": lambda race: lambda: race.stream.cancel("one"),
    "token": lambda race: lambda: race.token.cancel("two"),
    "exit": lambda race: lambda: race.stream.__exit__(None, None, None),
    "look": lambda race: race.look,
    "break": lambda race: lambda: race.consume(3),
    "consume": lambda race: race.consume,
}


def run(race: Race, chance: random.Random) -> list[str]:
    """Start two consumers and three others; wait for all of them; return what the others did."""
    names = [*chance.choices(list(ACTS), k=3), chance.choice(("close", "cancel", "token"))]
    acts = [race.consume, race.consume, *(ACTS[name](race) for name in names)]
    moments = [0.0, 0.0, *(chance.choice((0, 0.001, 0.01, SHORT, SHORT + 0.002)) for _ in names)]
    join(in_threads(len(acts), lambda number: race.act(acts[number], moments[number])))
    return names


def check(race: Race) -> None:
    """One end, at most one error, of a kind that was provoked; each chunk to one consumer; nothing after the end."""
    assert race.stray == []
    assert len(race.errors) <= 1, race.errors
    expected = (StreamCancelledError, DeadlineExceededError, StreamInactivityTimeoutError)
    assert all(isinstance(e, expected) or type(e).__name__ in OWN_ERRORS for e in race.errors), race.errors
    taken = sorted(itertools.chain(*race.numbers))
    assert taken == list(range(1, len(taken) + 1))
    assert all(numbers == sorted(numbers) for numbers in race.numbers)
    report = race.stream.report
    race.stream.close()
    race.stream.cancel()
    assert list(race.stream) == []
    assert race.stream.report == report
    assert report.outcome != "running"
    if race.errors:
        assert report.error_type == type(race.errors[0]).__name__ or report.outcome in ("closed", "cancelled")


def test_random_acts_on_one_stream() -> None:
    """400 streams, each at the mercy of six threads, with short limits besides."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    with no_leaks(settle=10), FaultyGateway() as gateway, switching_often():
        for number in range(ROUNDS):
            kind, token = chance.choice(sorted(PATHS)), CancelToken()
            limits: dict[str, Any] = chance.choice(LIMITS)
            race = Race(guarded_stream("GET", gateway.url + PATHS[kind], cancel=token, retry=None, **limits), token)
            names = run(race, chance)
            try:
                check(race)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, round {number}, {kind} {limits} {names}: {error}") from error
        gateway.wait_connections(1, still_open=0, timeout=10)


@pytest.mark.parametrize("moment", [0.04, 0.05, 0.06])
def test_an_expiry_a_cancel_and_a_close_at_one_instant(moment: float) -> None:
    """The first event decides: error, report and later calls agree, and the caller's cancel is never a timeout."""
    outcomes = set()
    with FaultyGateway() as gateway, switching_often():
        for _ in range(60):
            race = Race(guarded_stream("GET", gateway.url + PATHS["silent"], idle=0.05, retry=None), CancelToken())
            threads = in_threads(1, lambda _, race=race: race.consume())  # type: ignore[misc]
            race.act(race.stream.cancel, moment)
            race.act(race.stream.close, 0)
            join(threads)
            check(race)
            outcomes.add(race.stream.report.outcome)
            kinds = {"timeout": [StreamInactivityTimeoutError], "cancelled": [StreamCancelledError], "closed": []}
            assert [type(error) for error in race.errors] in (kinds[race.stream.report.outcome], [])
    assert outcomes <= {"timeout", "cancelled", "closed"}


def test_a_stop_at_the_instant_of_a_members_end() -> None:
    """Completion, timeout and stop compete for one turn: response, turn, queue and records tell the same story."""
    chance = random.Random(11)
    seen = set()
    with no_leaks(settle=10), Dispatcher() as dispatcher, switching_often():
        for number in range(300):
            conversation, moment = f"c{number}", chance.choice((0.0, 0.03, 0.05, 0.06))
            stopper = threading.Timer(moment, dispatcher.stop, (conversation, "a"))
            stopper.start()
            member = says("a", "x", "y", pause=chance.choice((0.0, 0.02, 0.05)))
            outcome = dispatcher.dispatch(conversation, [member], "p", output_timeout=0.05)
            stopper.join()
            turn = outcome["a"]
            seen.add((str(turn.status), turn.reason))
            (record,) = dispatcher.records.turns(outcome.execution_id)
            (response,) = dispatcher.records.responses(outcome.execution_id)
            assert (record.status, record.terminal_reason) == (turn.turn_status, turn.turn_reason)
            assert (response.status, response.reason, response.text) == (turn.status, turn.reason, turn.text)
            assert (turn.reason == "timeout") is turn.timed_out is (turn.signal == "provider_timeout")
    assert {reason for _, reason in seen} >= {"completed", "timeout", "user_cancel"}
