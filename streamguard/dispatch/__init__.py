"""Members under exactly one output timeout: one timer, one stop, one outcome (`pip install 'streamguard[dispatch]'`)."""

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
