"""From bytes to chat chunks: framing, events, chunks, the assembled message. Pure: no I/O, no thread, no clock."""

from .chat import ChatDecoder
from .chunk import Chunk, has_content
from .events import Event, EventClient
from .framing import Framer
from .message import Message, MessageAssembler
from .tool_calls import ToolCall

__all__ = [
    "ChatDecoder",
    "Chunk",
    "Event",
    "EventClient",
    "Framer",
    "Message",
    "MessageAssembler",
    "ToolCall",
    "has_content",
]
