"""From bytes to chat chunks: framing, events, chunks, the assembled message. Pure: no I/O, no thread, no clock."""

from streamguard.sse.chat import ChatDecoder
from streamguard.sse.chunk import Chunk, has_content
from streamguard.sse.events import Event, EventClient
from streamguard.sse.framing import Framer
from streamguard.sse.message import Message, MessageAssembler
from streamguard.sse.tool_calls import ToolCall

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
