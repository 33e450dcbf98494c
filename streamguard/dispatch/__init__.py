"""Members under exactly one output timeout: one timer, one stop, one outcome (`pip install 'streamguard[dispatch]'`)."""

from typing import TYPE_CHECKING

from .callable_member import CallableMember
from .command import CommandStream, iter_command, run_command
from .command_member import CommandMember
from .dispatcher import Dispatcher, DispatchStream
from .events import Event, Kind
from .members import Member, TurnContext
from .outcome import ExecutionStatus, ResponseStatus, TurnStatus, routing_signal
from .queue import DispatchQueue
from .result import CommandResult, Stall
from .route import MemberEvent
from .spawn import CommandStartError
from .stream_member import StreamMember
from .summary import DispatchOutcome, TurnOutcome

if TYPE_CHECKING:
    from .records import RecordStore

__all__ = [
    "CallableMember",
    "CommandMember",
    "CommandResult",
    "CommandStartError",
    "CommandStream",
    "DispatchOutcome",
    "DispatchQueue",
    "DispatchStream",
    "Dispatcher",
    "Event",
    "ExecutionStatus",
    "Kind",
    "Member",
    "MemberEvent",
    "RecordStore",
    "ResponseStatus",
    "Stall",
    "StreamMember",
    "TurnContext",
    "TurnOutcome",
    "TurnStatus",
    "iter_command",
    "routing_signal",
    "run_command",
]

if not TYPE_CHECKING:  # else a type checker would believe in any name

    def __getattr__(name: str) -> object:
        """Load `RecordStore` where it is asked for: SQLAlchemy takes its time, and not everyone needs it."""
        if name != "RecordStore":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .records import RecordStore

        return RecordStore
