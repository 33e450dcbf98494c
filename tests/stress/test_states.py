"""A stream under any sequence of calls, against a model of what each of them may do."""

import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamguard import HEARTBEAT, CancelToken, StreamCancelledError, StreamguardError, UsageError, guarded_stream

from .faults import FAULTS, FaultyGateway

pytestmark = [pytest.mark.stress, pytest.mark.timeout(300)]

COUNT = 4
QUIET = sorted(set(FAULTS) - {"mute", "html", "comments"})
"""The faults after which `next()` answers at once, or with a heartbeat."""


class StreamMachine(RuleBasedStateMachine):
    """One stream: numbers come in order, the first end counts, one error is raised; then only StopIteration."""

    gateway: FaultyGateway

    def __init__(self) -> None:
        super().__init__()
        self.stream: Any = None
        self.token = CancelToken()
        self.taken: list[int] = []
        self.decided = ""
        """What ended it, if something of ours did: closed or cancelled."""
        self.raised: list[StreamguardError] = []
        self.ended = False

    @initialize(fault=st.sampled_from(QUIET), count=st.sampled_from([0, COUNT]))
    def make(self, fault: str, count: int) -> None:
        self.fault = FAULTS[fault]
        url = f"{self.gateway.url}/{fault}/{count}/chunked/identity"
        self.stream = guarded_stream("GET", url, cancel=self.token, heartbeat=0.02, end_grace=0.05, retry=None)

    @rule()
    def take(self) -> None:
        try:
            chunk = next(self.stream)
        except StopIteration:
            self.ended = True
        except StreamguardError as error:
            self._failed(error)
        else:
            assert not self.ended
            assert not self.decided
            if chunk is not HEARTBEAT and chunk.text:
                self.taken.append(int(chunk.text))

    @rule(until=st.sampled_from(["headers", "first"]))
    @precondition(lambda self: self.fault.behind.rsplit("\n")[-1] not in ("stall", "linger"))
    def open(self, until: str) -> None:
        try:
            self.stream.open(until=until)
        except StreamguardError as error:
            self._failed(error)

    @rule()
    def close(self) -> None:
        self.stream.close()
        self.decided = self.decided or "closed"

    @rule(ours=st.booleans())
    def cancel(self, ours: bool) -> None:
        (self.stream.cancel if ours else self.token.cancel)("why")
        self.decided = self.decided or "cancelled"

    @rule(seconds=st.sampled_from([None, 0.01, 0.03]))
    def beat(self, seconds: float | None) -> None:
        if seconds is not None or self.fault.errors:
            self.stream.heartbeat = seconds or 0.02

    @rule()
    def ask(self) -> None:
        text, taken = self.stream.text, "".join(f"{number} " for number in self.taken)
        assert text == taken or (self.ended and text.startswith(taken))  # a cancel keeps the text of what had arrived
        try:
            assert self.stream.response.status_code in (200, 429, 500)
        except UsageError:
            assert self.stream.report.time_to_headers is None

    @invariant()
    def in_order(self) -> None:
        assert self.taken == list(range(1, len(self.taken) + 1))

    @invariant()
    def one_end(self) -> None:
        if self.stream is None:
            return
        assert len(self.raised) <= 1
        report = self.stream.report
        if self.ended or self.raised:
            assert report.outcome != "running"
            assert report == self.stream.report
        if report.outcome == "completed":
            assert not self.fault.errors

    def _failed(self, error: StreamguardError) -> None:
        """The first error is the only one, and of the kind that the fault or the cancel explains."""
        assert not self.ended
        cancelled = isinstance(error, StreamCancelledError) and self.decided == "cancelled"
        assert cancelled or type(error) in self.fault.errors, error
        self.raised.append(error)
        self.ended = True

    def teardown(self) -> None:
        if self.stream is None:
            return
        self.stream.close()
        if self.decided == "cancelled" and not self.ended:
            with pytest.raises(StreamCancelledError):  # a close takes back no cancel that was there first
                next(self.stream)
        assert list(self.stream) == []


def test_any_sequence_of_calls() -> None:
    """However next, open, close, cancel and questions follow each other, the stream keeps to its model."""
    with FaultyGateway() as gateway, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a stream that was closed before it was started
        machine: Any = type("Machine", (StreamMachine,), {"gateway": gateway})
        case = machine.TestCase
        case.settings = settings(
            max_examples=300,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=False,
            database=None,
        )
        case("runTest").runTest()
        gateway.wait_connections(1, still_open=0, timeout=10)
