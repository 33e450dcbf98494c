"""Put the pieces of tool calls together."""

import json
from dataclasses import dataclass
from typing import Any

from .chunk import joined


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model wrote it."""

    id: str
    """The server's id of the call; `""` if it gave none."""
    name: str
    """The function's name."""
    arguments: str
    """The arguments as text; JSON, or no text at all, if the call is one of a message's `tool_calls`."""

    def parse(self) -> Any:
        """Return the arguments as a Python value; no text means no arguments, `{}`.

        Raises ValueError if they are no JSON.
        """
        if not self.arguments.strip():
            return {}
        try:
            return json.loads(self.arguments)
        except RecursionError as error:
            raise ValueError("the arguments are nested too deeply") from error

    @property
    def usable(self) -> bool:
        """The call has a name, and its arguments can be read."""
        try:
            self.parse()
        except ValueError:
            return False
        return bool(self.name)


class ToolCallCollector:
    """Collect the pieces of one choice's calls.

    Pieces belong together by their index. Where a server leaves it out, the id decides, or else the piece goes to the
    last call. A server that numbers every call 0 is noticed by the new id and name that come together.
    """

    __slots__ = ("_by_index", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Draft] = []
        self._by_index: dict[int, _Draft] = {}

    def add(self, piece: object) -> None:
        """Add one element of a delta's `tool_calls`; what is no object, or empty, is skipped."""
        if not isinstance(piece, dict) or not piece:
            return
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        id_, name = _text(piece.get("id")), _text(function.get("name"))
        draft = self._find(piece.get("index"), id_, name)
        draft.add(id_, name, function.get("arguments"))

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls so far, in the order in which they began."""
        calls = (ToolCall(draft.id, draft.name, joined(draft.arguments)) for draft in self._calls)
        return tuple(call for call in calls if call != _NOTHING)

    def _find(self, index: object, id_: str, name: str) -> "_Draft":
        if isinstance(index, int):
            draft = self._by_index.get(index)
            if draft is None or (name and draft.is_other(id_)):
                draft = self._by_index[index] = self._begin()
            return draft
        if id_:
            return next((draft for draft in self._calls if draft.id == id_), None) or self._begin()
        last = self._calls[-1] if self._calls else None
        if last is None or (name and name != last.name and last.arguments):
            return self._begin()
        return last

    def _begin(self) -> "_Draft":
        self._calls.append(_Draft())
        return self._calls[-1]


class _Draft:
    __slots__ = ("arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []

    def is_other(self, id_: str) -> bool:
        return bool(id_ and self.id and id_ != self.id)

    def add(self, id_: str, name: str, arguments: object) -> None:
        self.id = self.id or id_
        # Some servers repeat the whole name with every piece.
        if name != self.name:
            self.name += name
        if isinstance(arguments, str):
            if arguments:
                self.arguments.append(arguments)
        elif isinstance(arguments, dict | list):
            self.arguments.append(json.dumps(arguments))


def function_piece(index: object, id_: object = None, name: object = None, arguments: object = None) -> dict[str, Any]:
    """Return a piece of a call in the shape of a chat delta's, from what another API calls by other names."""
    return {"index": index, "id": id_, "function": {"name": name, "arguments": arguments}}


_NOTHING = ToolCall("", "", "")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
