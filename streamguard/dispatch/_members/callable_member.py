"""A member that is a function, for example one that reads an SDK's generator or runs a local model."""

from collections.abc import Callable, Iterable, Iterator

from ...errors import UsageError
from .._data.turn_events import Event, Kind
from .member import TurnContext

Piece = str | Event


class CallableMember:
    """A function as a member.

    name: the member's name.
    run:  called with the prompt and the `TurnContext`. It returns the answer as text, or yields pieces of text or `Event`s.
          Its return is `done`; an exception is the member's failure.

    To stop, check `context.token.cancelled`, or register a closer with `context.token.on_cancel(...)`. streamguard's own
    streams, sessions and chains in the function are cut without that.

    Raises UsageError for an invalid argument.

    Limits
        A function that blocks and registers no closer cannot be stopped: it is abandoned, and its later output is dropped.
        A generator is closed after the piece that it is working on.
    """

    stop_grace = 1.0
    """Seconds that the function may take to return after a stop."""

    def __init__(self, name: str, run: Callable[[str, TurnContext], str | Iterable[Piece]]) -> None:
        if not name or not callable(run):
            raise UsageError(
                f"CallableMember needs a name and a function run(prompt, context), got {name!r} and {type(run).__name__}"
            )
        self.name = name
        self._run = run

    def run(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        """Run the function, and yield its events."""
        pieces = _pieces(self._run(prompt, context))
        done = False
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


def _pieces(result: object) -> Iterable[object]:
    if isinstance(result, str | Event):
        return [result]
    if isinstance(result, Iterable) and not isinstance(result, bytes | bytearray):
        return result
    raise TypeError(f"the function of a CallableMember must return or yield text or Events, got {type(result).__name__}")


def _event(piece: object) -> Event:
    if isinstance(piece, Event):
        return piece
    if isinstance(piece, str):
        return Event(kind=Kind.TEXT, text=piece, delta=True)
    raise TypeError(f"the function of a CallableMember must yield text or Events, got {type(piece).__name__}")
