"""Run agents, each under exactly one output timeout: one timer, one stop, one outcome (`streamguard[dispatch]`)."""

from typing import TYPE_CHECKING

from ._command.command import CommandStream, iter_command, run_command
from ._command.command_result import CommandResult, Stall
from ._data.outcome import DispatchOutcome, TurnOutcome
from ._data.status import ExecutionStatus, ResponseStatus, TurnStatus, routing_signal
from ._data.turn_events import Event, Kind
from ._members.callable_member import CallableMember
from ._members.command_member import CommandMember
from ._members.member import Member, TurnContext
from ._members.stream_member import StreamMember
from ._process.spawn import CommandStartError
from ._turn.channel import MemberEvent
from .dispatcher import Dispatcher, DispatchStream
from .queue import DispatchQueue

if TYPE_CHECKING:
    from ._records.records import RecordStore

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

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Load `RecordStore` at its first use: SQLAlchemy is slow to import, and not every program needs it."""
        if name != "RecordStore":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ._records.records import RecordStore

        return RecordStore
