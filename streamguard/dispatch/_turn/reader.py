"""A member's own thread: it waits for the session, runs the member, and hands over what the member says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..._core import CancelToken
from ..._core.cancel import set_current_token
from ..._core.once import Once
from ..._core.pump import Feed
from ..._text import storable
from .._data.status import TurnEnd, may_restart
from .._data.turn_events import Event, Kind, checked
from .._members.member import Member, TurnContext
from .._process.spawn import CommandStartError
from .channel import size_of
from .session_lock import Entrance, SessionLocks, Ticket
from .timer import Timer

NOT_STARTED = "not_started"
"""The error code of a member whose program cannot be started: missing, or not executable."""

_NO_FRAMES = frozenset({Kind.ERROR, Kind.STDERR, Kind.DIAGNOSTIC, Kind.DONE})
"""What a program that never began may print."""
_FOR_THE_TURN = frozenset({Kind.SESSION, Kind.ERROR, Kind.DONE})
"""What the turn's own thread must know of."""


@dataclass(slots=True, kw_only=True, eq=False)
class TurnState:
    """What the threads of one turn share. Each field is written by one of them."""

    turn_id: str
    end: Once[TurnEnd] = field(default_factory=Once)
    """How the turn ends: completion, failure and stop compete for it, and the first one wins (T5)."""
    timer: Timer
    gate: CancelToken = field(default_factory=CancelToken)
    """Cancelled to end the pull loop: it closes only what is ours."""
    token: CancelToken = field(default_factory=CancelToken)
    """The member's: it may run closers of the member, or of the user."""
    first: float | None = None
    phase: str = "custody"
    attempts: int = 0
    session_id: str | None = None

    @property
    def to_leave(self) -> bool:
        """Whether the member's thread should end because its events are not read: if stopped, only once it is asked to."""
        end = self.end.value
        return self.token.cancelled or (end is not None and end.stop is None)


class Reader:
    """Runs *member* on *prompt* once, or once more with a new session (R27)."""

    def __init__(
        self,
        state: TurnState,
        member: Member,
        prompt: str | Callable[[str], str],
        locks: SessionLocks,
        resume: Callable[[], str | None],
        route: Callable[[Event], object],
    ) -> None:
        self._state = state
        self._member = member
        self._prompt = prompt
        self._locks = locks
        self._resume = resume
        self._route = route
        self._tickets: dict[str, Ticket] = {}

    def read(self, feed: Feed) -> None:
        """Route the member's events; settle the turn at `done` or a failure. *feed* gets what the turn must know of."""
        set_current_token(self._state.token)
        try:
            self._run(feed)
        except BaseException as exc:
            code = NOT_STARTED if isinstance(exc, CommandStartError) else None
            self._state.end.set(TurnEnd(failed=True, error=code, message=text_of(exc)))
            raise
        finally:
            # Only now the session is unused, however long ago the turn was abandoned.
            for ticket in self._tickets.values():
                ticket.release()

    def _run(self, feed: Feed) -> None:
        state = self._state
        state.session_id = self._enter(self._resume())
        if state.gate.cancelled:
            return
        state.phase = "starting"
        text = self._asked()
        if self._attempt(text, feed):
            state.session_id = None
            state.phase = "starting"
            self._attempt(text, feed)

    def _asked(self) -> str:
        text = self._prompt if isinstance(self._prompt, str) else self._prompt(self._member.name)
        if not isinstance(text, str):
            raise TypeError(f"prompt= is a function that returns text, not {type(text).__name__}")
        return storable(text)

    def _enter(self, session: str | None) -> str | None:
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
        attempt = _Attempt(state, feed, self._route, self._own_session)
        events = iter(self._member.run(prompt, context))
        try:
            attempt.listen(events)
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()
        return attempt.over()

    def _own_session(self, session: str) -> None:
        self._state.session_id = session
        if session not in self._tickets:
            self._tickets[session] = self._locks.queue_up(session)


class _Attempt:
    """What one start of the member has said. A resumed one's last words wait until it is known whether they count."""

    def __init__(
        self, state: TurnState, feed: Feed, route: Callable[[Event], object], own_session: Callable[[str], None]
    ) -> None:
        self._state = state
        self._feed = feed
        self._route = route
        self._own_session = own_session
        self._resumed = state.session_id is not None
        self._frames = 0
        self._held: list[Event] = []

    def listen(self, events: Iterator[Event]) -> None:
        """Take events until `done`, the end, or a stop."""
        for event in map(checked, events):
            if self._state.gate.cancelled:
                if self._state.to_leave:
                    return
                continue  # until the program is asked to end
            self._state.timer.observe(event)
            self._take(event)
            if event.kind is Kind.DONE:
                return

    def over(self) -> bool:
        """Hand over what was held back, unless the turn begins once more: then return True."""
        codes = [event.error_code for event in self._held if event.error_code is not None]
        begin_again = may_restart(
            error=codes[0] if codes else None,
            frames=self._frames,
            resumed=self._resumed,
            attempt=self._state.attempts,
            stopped=self._state.gate.cancelled,
        )
        if not begin_again:
            self._release_held()
        return begin_again

    def _take(self, event: Event) -> None:
        frame = event.kind not in _NO_FRAMES
        if frame:
            self._frames += 1
            self._state.phase = "running"
            if event.kind is Kind.SESSION and event.session_id:
                self._own_session(event.session_id)
        if self._resumed and not self._frames:
            self._held.append(event)
            return
        self._release_held()
        self._deliver(event)

    def _release_held(self) -> None:
        held, self._held = self._held, []
        for event in held:
            self._deliver(event)

    def _deliver(self, event: Event) -> None:
        state = self._state
        over = bool(state.end)
        if event.kind is Kind.DONE:
            self._settle(event)
        elif over:
            return  # after the end, or the stop, nothing counts (T3)
        elif event.kind is Kind.ERROR:
            state.end.set(TurnEnd(failed=True, error=event.error_code, message=event.text))
        state.timer.pause()
        if event.kind is not Kind.DONE:
            self._route(event)
        if event.kind in _FOR_THE_TURN:
            self._feed.put(event, size_of(event))
        state.timer.resume()

    def _settle(self, event: Event) -> None:
        failed = event.error_code is not None
        self._state.end.set(TurnEnd(done=not failed, failed=failed, error=event.error_code, message=event.text))


def text_of(exc: BaseException) -> str:
    """Return the type and the text of *exc*, if it has any."""
    try:
        return f"{type(exc).__name__}: {exc}"
    except Exception:  # the words of others are made by their code
        return type(exc).__name__
