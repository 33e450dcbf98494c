"""From bytes to chunks: framing, events, chunks, the assembled message. Pure: no I/O, no thread, no clock."""

from .anthropic import AnthropicAssembler, AnthropicChunk, AnthropicDecoder
from .chat import ChatDecoder
from .chunk import Chunk
from .content import has_content, text_of
from .error_frames import in_stream_error, lone_error, unframed_error
from .event_stream.event_parser import Event, EventClient, new_event
from .event_stream.framing import Framer
from .event_stream.heartbeats import is_heartbeat_name
from .frame_decoder import FrameDecoder
from .message import Message, MessageAssembler
from .objects import Assembler, ObjectAssembler, ObjectWatcher
from .responses_api import ResponseChunk, ResponsesAssembler, ResponsesDecoder
from .tool_calls import ToolCall

__all__ = [
    "AnthropicAssembler",
    "AnthropicChunk",
    "AnthropicDecoder",
    "Assembler",
    "ChatDecoder",
    "Chunk",
    "Event",
    "EventClient",
    "FrameDecoder",
    "Framer",
    "Message",
    "MessageAssembler",
    "ObjectAssembler",
    "ObjectWatcher",
    "ResponseChunk",
    "ResponsesAssembler",
    "ResponsesDecoder",
    "ToolCall",
    "has_content",
    "in_stream_error",
    "is_heartbeat_name",
    "lone_error",
    "new_event",
    "text_of",
    "unframed_error",
]
