"""Members under exactly one output timeout: one timer, one stop, one outcome (`pip install 'streamguard[dispatch]'`)."""

from .callable_member import CallableMember
from .command_member import CommandMember
from .dispatcher import Dispatcher, DispatchStream
from .events import Event, Kind
from .members import Member, TurnContext
from .outcome import ExecutionStatus, ResponseStatus, TurnStatus, routing_signal
from .queue import DispatchQueue
from .route import MemberEvent
from .stream_member import StreamMember
from .summary import DispatchOutcome, TurnOutcome

__all__ = [
    "CallableMember",
    "CommandMember",
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
    "StreamMember",
    "TurnContext",
    "TurnOutcome",
    "TurnStatus",
    "routing_signal",
]
