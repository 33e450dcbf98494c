"""A slow decoder of event streams, written from the standard's rules: what ours is compared with."""

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Reference"]


@dataclass
class Reference:
    """The rules of WHATWG HTML 9.2.6 word for word: slow, one character at a time, the whole stream at once."""

    data: str = ""
    event_type: str = ""
    id_buffer: str = ""
    last_event_id: str = ""
    reconnection_time: int | None = None
    retry: int | None = None
    comments: int = 0
    events: list[tuple[Any, ...]] = field(default_factory=list)

    def decode(self, stream: bytes) -> "Reference":
        text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
        line, position = "", 0
        while position < len(text):
            char = text[position]
            position += 1
            if char not in "\r\n":
                line += char
                continue
            if char == "\r" and text[position : position + 1] == "\n":
                position += 1
            self.take_line(line)
            line = ""
        return self

    def take_line(self, line: str) -> None:
        if line == "":
            self.dispatch()
        elif line[0] == ":":
            self.comments += 1
        elif ":" in line:
            name, value = line.split(":", 1)
            self.take_field(name, value[1:] if value[:1] == " " else value)
        else:
            self.take_field(line, "")

    def take_field(self, name: str, value: str) -> None:
        if name == "event":
            self.event_type = value
        elif name == "data":
            self.data += value + "\n"
        elif name == "id" and "\0" not in value:
            self.id_buffer = value
        elif name == "retry" and value and all(char in "0123456789" for char in value):
            self.reconnection_time = self.retry = int(value)

    def dispatch(self) -> None:
        self.last_event_id = self.id_buffer
        if self.data:
            self.events.append((self.event_type or "message", self.data[:-1], self.last_event_id, self.retry))
        self.data, self.event_type, self.retry = "", "", None
