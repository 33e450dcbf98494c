"""A member that is a function: an SDK's generator, a local model, a test's script."""

from collections.abc import Callable, Iterable, Iterator

from ...errors import UsageError
from .._data.turn_events import Event, Kind
from .member import TurnContext

Said = str | Event


class CallableMember:
    """A function as a member.

    name: the member's name.
    run:  called with the prompt and the `TurnContext`; returns the answer as text, or yields pieces of text, or `Event`s.
          When it ends, the member is done; what it raises is its failure.

    `context.token` tells when to stop: look at `.cancelled`, or register what is to be closed with `.on_cancel(...)`.
    streamguard's own streams and sessions, called in it, are cut by themselves.

    Limits
        A function that blocks and registers nothing cannot be stopped: it is abandoned, and its late output is dropped.
        A generator is closed once the piece it is working on has come.
    """

    stop_grace = 1.0
    """Seconds that the function may take to return after the stop."""

    def __init__(self, name: str, run: Callable[[str, TurnContext], str | Iterable[Said]]) -> None:
        if not name or not callable(run):
            raise UsageError("a CallableMember takes a name and a function of prompt and context")
        self.name = name
        self._run = run

    def run(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        """Yield what the function says, as events."""
        said = self._run(prompt, context)
        done = False
        pieces = _pieces(said)
        try:
            for piece in pieces:
                event = _event(piece)
                done = done or event.kind is Kind.DONE
                yield event
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()
        if not done and not context.token.cancelled:
            yield Event.done()


def _pieces(said: object) -> Iterable[object]:
    if isinstance(said, str | Event):
        return [said]
    if isinstance(said, Iterable) and not isinstance(said, bytes | bytearray):
        return said
    raise TypeError(f"a CallableMember's function returns text, or yields text and Events; not {type(said).__name__}")


def _event(piece: object) -> Event:
    if isinstance(piece, Event):
        return piece
    if isinstance(piece, str):
        return Event(kind=Kind.TEXT, text=piece, delta=True)
    raise TypeError(f"a CallableMember's function yields text and Events, not {type(piece).__name__}")
