"""A member's own thread: it waits for the session, runs the member, and passes its events on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..._core import CancelToken
from ..._core.cancel import set_current_token
from ..._core.once import Once
from ..._core.pump import Feed
from ..._stream.options import stream_defaults_off
from ..._text import storable
from .._data.status import TurnEnd, may_restart
from .._data.turn_events import Event, Kind, checked
from .._members.failure_codes import failure_code
from .._members.member import Member, TurnContext
from .dispatch_options import Prompt
from .session_lock import Entrance, SessionLocks, Ticket
from .timer import Timer

_NO_FRAMES = frozenset({Kind.ERROR, Kind.STDERR, Kind.DIAGNOSTIC, Kind.DONE})
"""Kinds that a program may send although it never started to work."""
_FOR_THE_TURN = frozenset({Kind.SESSION, Kind.ERROR, Kind.DONE})
"""Kinds that the turn's own thread acts on."""


@dataclass(slots=True, kw_only=True, eq=False)
class TurnState:
    """What the threads of one turn share. One thread writes each field."""

    turn_id: str
    timer: Timer
    end: Once[TurnEnd] = field(default_factory=Once)
    """How the turn ends. Completion, failure and stop compete for it; the first one wins (T5)."""
    gate: CancelToken = field(default_factory=CancelToken)
    """Cancelled to wake the turn's thread. Its closers are ours, and take no lock."""
    token: CancelToken = field(default_factory=CancelToken)
    """The member's token. Its closers may be the member's, or the user's."""
    first: float | None = None
    phase: str = "custody"
    """For the diagnosis: custody (waiting for the session lock), starting, running."""
    attempts: int = 0
    session_id: str | None = None

    @property
    def leaving(self) -> bool:
        """Whether the member's thread ends now. After a stop it first waits until its token is cancelled."""
        end = self.end.value
        return self.token.cancelled or (end is not None and end.stop is None)


class Reader:
    """Runs *member* on *prompt* once, or once more with a new session (R27).

    resumable: returns the session to resume, or None.
    route:     takes each event that counts.
    """

    def __init__(
        self,
        state: TurnState,
        member: Member,
        prompt: Prompt,
        locks: SessionLocks,
        resumable: Callable[[], str | None],
        route: Callable[[Event], object],
    ) -> None:
        self._state = state
        self._member = member
        self._prompt = prompt
        self._locks = locks
        self._resumable = resumable
        self._route = route
        self._tickets: dict[str, Ticket] = {}

    def read(self, feed: Feed) -> None:
        """Run the member, and set the turn's end at `done` or a failure. *feed* gets the events that the turn acts on."""
        set_current_token(self._state.token)
        stream_defaults_off.set(True)  # the turn has its output timeout (T36)
        try:
            self._run(feed)
        except BaseException as exc:
            self._state.end.set(TurnEnd(failed=True, error=failure_code(exc), message=text_of(exc)))
            raise
        finally:
            # Not earlier: a thread that was abandoned may use its session until here.
            for ticket in self._tickets.values():
                ticket.release()

    def _run(self, feed: Feed) -> None:
        state = self._state
        state.session_id = self._wait_for(self._resumable())
        if state.gate.cancelled:
            return
        state.phase = "starting"
        text = self._prompt_text()
        if self._attempt(text, feed):
            state.session_id = None
            state.phase = "starting"
            self._attempt(text, feed)

    def _prompt_text(self) -> str:
        text = self._prompt if isinstance(self._prompt, str) else self._prompt(self._member.name)
        if not isinstance(text, str):
            raise TypeError(f"the function given as prompt= must return text, got {type(text).__name__}")
        return storable(text)

    def _wait_for(self, session: str | None) -> str | None:
        if session is None:
            return None
        ticket = self._tickets[session] = self._locks.queue_up(session)
        return None if ticket.wait(self._state.gate) is Entrance.ABANDONED else session

    def _attempt(self, prompt: str, feed: Feed) -> bool:
        state = self._state
        state.attempts += 1
        number = state.attempts
        context = TurnContext(
            token=state.token,
            session_id=state.session_id,
            turn_id=state.turn_id,
            probe=lambda probe: state.timer.set_probe(probe, number),
            first=state.first,
        )
        attempt = _Attempt(state, feed, self._route, self._hold_session)
        events = iter(self._member.run(prompt, context))
        try:
            attempt.read(events)
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()
        return attempt.restarts()

    def _hold_session(self, session: str) -> None:
        self._state.session_id = session
        if session not in self._tickets:
            self._tickets[session] = self._locks.queue_up(session)


class _Attempt:
    """One run of the member. Events of a resumed session are held back until the first frame: the run may be repeated."""

    def __init__(
        self, state: TurnState, feed: Feed, route: Callable[[Event], object], hold_session: Callable[[str], None]
    ) -> None:
        self._state = state
        self._feed = feed
        self._route = route
        self._hold_session = hold_session
        self._resumed = state.session_id is not None
        self._frames = 0
        self._held: list[Event] = []

    def read(self, events: Iterator[Event]) -> None:
        """Take events until `done`, the end, or a stop."""
        for event in map(checked, events):
            if self._state.gate.cancelled:
                if self._state.leaving:
                    return
                continue
            self._state.timer.observe(event)
            self._take(event)
            if event.kind is Kind.DONE:
                return

    def restarts(self) -> bool:
        """Whether the member is run again. If not, pass on the events that were held back."""
        codes = [event.error_code for event in self._held if event.error_code is not None]
        again = may_restart(
            error=codes[0] if codes else None,
            frames=self._frames,
            resumed=self._resumed,
            attempt=self._state.attempts,
            stopped=self._state.gate.cancelled,
        )
        if not again:
            self._release_held()
        return again

    def _take(self, event: Event) -> None:
        if event.kind not in _NO_FRAMES:
            self._frames += 1
            self._state.phase = "running"
            if event.kind is Kind.SESSION and event.session_id:
                self._hold_session(event.session_id)
        if self._resumed and not self._frames:
            self._held.append(event)
            return
        if self._held:
            self._release_held()
        self._deliver(event)

    def _release_held(self) -> None:
        held, self._held = self._held, []
        for event in held:
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        if not self._counts(event):
            return
        if event.kind is not Kind.DONE:
            self._route(event)
        if event.kind in _FOR_THE_TURN:
            self._state.timer.pause()
            self._feed.put(event, 1)
            self._state.timer.resume()

    def _counts(self, event: Event) -> bool:
        """Set the turn's end if *event* is one; return whether it counts: after the end only `done` does (T3)."""
        end, code = self._state.end, event.error_code
        if event.kind is Kind.ERROR:
            return end.set(TurnEnd(failed=True, error=code, message=event.text))
        if event.kind is Kind.DONE:
            end.set(TurnEnd(done=code is None, failed=code is not None, error=code, message=event.text))
            return True
        return not end


def text_of(exc: BaseException) -> str:
    """Return the type and the text of *exc*; the type alone if it has no text."""
    try:
        return f"{type(exc).__name__}: {exc}"
    except Exception:  # __str__ may be foreign code
        return type(exc).__name__
