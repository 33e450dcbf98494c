"""Put the pieces of tool calls together, and tell which calls are safe to run. Linear in the pieces, however they come."""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from .chunk import joined

ANSWERED_BY_SERVER: Final = "answered_by_server"
"""The answer went on with text after the call: the server has run it."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call as the model wrote it."""

    id: str
    """The server's id of the call; `""` if it gave none."""
    name: str
    """The function's or tool's name."""
    arguments: str
    """The arguments as text: a JSON object, or no text at all, if the call is one of a message's `tool_calls`; of a custom
    tool any text."""
    kind: str = "function"
    """`"function"`; `"custom"`, whose arguments are free text; `"mcp"`; or the API's word for another call to answer."""
    invalid_reason: str | None = None
    """Why the call must not be run; None for a message's `tool_calls`. One of `no_name`, `incomplete_arguments` (not a
    whole JSON object), `incomplete_answer`, `no_finish_reason`, `finish_reason: WORD`, `answered_by_server` and
    `unsupported_kind`."""

    def parse(self) -> Any:
        """Return the arguments as a Python value; no text means no arguments, `{}`.

        Raises ValueError if they are not JSON.
        """
        if not self.arguments.strip():
            return {}
        try:
            return json.loads(self.arguments)
        except RecursionError as error:
            raise ValueError("the arguments are nested too deeply") from error

    @property
    def usable(self) -> bool:
        """Whether the call has a name and complete arguments."""
        return self._fault == ""

    @property
    def _fault(self) -> str:
        """What the call itself lacks, as an `invalid_reason`; `""` if it is complete."""
        if not self.name:
            return "no_name"
        if self.kind == "custom":
            return ""
        if self.kind not in _RUNNABLE:
            return "unsupported_kind"
        try:
            return "" if isinstance(self.parse(), dict) else "incomplete_arguments"
        except ValueError:
            return "incomplete_arguments"


_RUNNABLE: Final = ("function", "mcp")


class ToolCallCollector:
    """Collect the pieces of one choice's calls, and offer each call once.

    A piece belongs to the call of its call id, else of its known item id, else of its known index, else, if it is nameless,
    to the last call. A named piece begins a new call if the call found holds a whole object already and the new arguments
    differ. A repetition of the whole call is the same call.
    """

    __slots__ = ("_by_id", "_by_index", "_by_item", "_calls")

    def __init__(self) -> None:
        self._calls: list[_Draft] = []
        self._by_id: dict[str, _Draft] = {}
        self._by_item: dict[str, _Draft] = {}
        self._by_index: dict[int, _Draft] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, piece: object) -> None:
        """Add one element of a delta's `tool_calls`; anything but a non-empty object is skipped."""
        if not isinstance(piece, dict) or not piece:
            return
        custom = piece.get("custom")
        function = custom if isinstance(custom, dict) else piece.get("function")
        function = function if isinstance(function, dict) else {}
        id_, item, name = _text(piece.get("id")), _text(piece.get("item_id")), _text(function.get("name"))
        arguments = _arguments(function.get("arguments", function.get("input")))
        if not (id_ or item or name or arguments):
            return
        draft = self._find(id_, item, piece.get("index"), name, arguments)
        draft.add(id_, name, arguments)
        if kind := _text(piece.get("type")):
            draft.kind = "custom" if isinstance(custom, dict) else kind
        self._remember(draft, id_, item, piece.get("index"))

    def complete(self, piece: dict[str, Any]) -> None:
        """Add a call that the server sends as a whole: what it says replaces what its pieces said."""
        function = piece["function"]
        id_, item, name = _text(piece.get("id")), _text(piece.get("item_id")), _text(function.get("name"))
        draft = self._known(id_, item, piece.get("index")) or self._begin()
        draft.complete(id_, name, _arguments(function.get("arguments")))
        draft.kind = _text(piece.get("type")) or draft.kind
        self._remember(draft, id_, item, piece.get("index"))

    def answered(self) -> None:
        """Mark the calls so far as answered by the server: the model goes on writing after them."""
        for draft in self._calls:
            draft.answered = True

    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls so far, in the order in which they began."""
        return tuple(draft.call() for draft in self._calls)

    def sorted_out(self, why_none: str) -> tuple[tuple[ToolCall, ...], tuple[ToolCall, ...]]:
        """Return the calls to run and the others; *why_none* is why the answer as a whole offers none, or `""`."""
        valid, invalid = [], []
        for call in self.calls():
            why = call.invalid_reason or call._fault if call.invalid_reason or not why_none else why_none
            if why:
                invalid.append(replace(call, invalid_reason=why))
            else:
                valid.append(call)
        return tuple(valid), tuple(invalid)

    def _find(self, id_: str, item: str, index: object, name: str, arguments: str) -> "_Draft":
        found = self._known(id_, item, index)
        if found is None:
            last = self._calls[-1] if self._calls and not id_ else None
            # Without any key a name may be repeated with each piece, or come in pieces of its own.
            goes_on = last is not None and (not name or (not isinstance(index, int) and last.may_be_named(name)))
            return last if last is not None and goes_on else self._begin()
        renamed = bool(name) and bool(id_) and bool(found.id) and id_ != found.id
        return self._begin() if renamed or (name and found.is_followed_by(name, arguments)) else found

    def _known(self, id_: str, item: str, index: object) -> "_Draft | None":
        found = self._by_id.get(id_) if id_ else None
        if found is None and item:
            found = self._by_item.get(item)
        if found is None and isinstance(index, int):
            found = self._by_index.get(index)
        return found

    def _remember(self, draft: "_Draft", id_: str, item: str, index: object) -> None:
        if id_:
            self._by_id[id_] = draft
        if item:
            self._by_item[item] = draft
        if isinstance(index, int):
            self._by_index[index] = draft

    def _begin(self) -> "_Draft":
        self._calls.append(_Draft())
        return self._calls[-1]


class _Draft:
    """A call while its pieces come."""

    __slots__ = (
        *("_arguments", "_depth", "_escaped", "_in_text", "_length", "_name", "_name_length", "_scanned"),
        *("answered", "id", "kind"),
    )

    def __init__(self) -> None:
        self.id = ""
        self.kind = "function"
        self.answered = False
        self._name: list[str] = []
        self._name_length = 0
        self._arguments: list[str] = []
        self._length = 0
        # How far the brackets of the arguments were counted, so that counting stays linear.
        self._scanned = 0
        self._depth = 0
        self._in_text = self._escaped = False

    def add(self, id_: str, name: str, arguments: str) -> None:
        """Add a piece. A name, or the whole arguments, that are only repeated add nothing."""
        self.id = self.id or id_
        if name and not self._is_named(name):
            self._name.append(name)
            self._name_length += len(name)
        if not arguments or (name and self._is_whole() and self._same(arguments)):
            return
        if name and self._length and self._is_longer(arguments):
            self._restart()
        self._arguments.append(arguments)
        self._length += len(arguments)

    def complete(self, id_: str, name: str, arguments: str) -> None:
        """Take a whole call; what is empty in it leaves what the pieces said."""
        self.id = id_ or self.id
        if name:
            self._name, self._name_length = [name], len(name)
        if arguments:
            self._restart()
            self._arguments.append(arguments)
            self._length = len(arguments)

    def is_followed_by(self, name: str, arguments: str) -> bool:
        """Return whether a named piece begins another call: this one is whole, and the piece does not repeat it."""
        if not self._is_whole():
            return False
        return not self._is_named(name) or (bool(arguments) and not self._same(arguments))

    def may_be_named(self, name: str) -> bool:
        """Return whether a named piece without any key goes on with this call."""
        return not self._is_whole() if self._is_named(name) else not self._arguments

    def call(self) -> ToolCall:
        """Return the call so far."""
        why = ANSWERED_BY_SERVER if self.answered else None
        return ToolCall(self.id, joined(self._name), joined(self._arguments), self.kind, why)

    def _restart(self) -> None:
        self._arguments.clear()
        self._length = self._scanned = self._depth = 0
        self._in_text = self._escaped = False

    def _is_named(self, name: str) -> bool:
        return len(name) == self._name_length and "".join(self._name) == name

    def _is_longer(self, arguments: str) -> bool:
        """Return whether *arguments* repeat all that came and go on: some servers send them from the start each time."""
        return len(arguments) > self._length and arguments.startswith("".join(self._arguments))

    def _same(self, arguments: str) -> bool:
        if len(arguments) == self._length and "".join(self._arguments) == arguments:
            return True
        # Comparing must cost no more than the piece itself, however large the call is.
        alike = self._length <= 2 * len(arguments) + 64 and len(arguments) <= 2 * self._length + 64
        return alike and _value(arguments) == _value("".join(self._arguments))

    def _is_whole(self) -> bool:
        """Return whether the brackets of the arguments, an object, are closed."""
        if self._scanned < len(self._arguments):
            for piece in self._arguments[self._scanned :]:
                self._scan(piece)
            self._scanned = len(self._arguments)
        return bool(self._arguments) and self._depth == 0 and self._arguments[0].lstrip()[:1] == "{"

    def _scan(self, piece: str) -> None:
        for sign in piece:
            if self._escaped:
                self._escaped = False
            elif self._in_text:
                self._escaped = sign == "\\"
                self._in_text = sign != '"'
            elif sign == '"':
                self._in_text = True
            elif sign in "{[":
                self._depth += 1
            elif sign in "}]":
                self._depth -= 1


def function_piece(
    index: object,
    id_: object = None,
    name: object = None,
    arguments: object = None,
    *,
    item_id: object = None,
    kind: str = "",
) -> dict[str, Any]:
    """Return a piece of a call in the shape of a chat delta's, from what another API calls by other names."""
    piece: dict[str, Any] = {"index": index, "id": id_, "function": {"name": name, "arguments": arguments}}
    if item_id is not None:
        piece["item_id"] = item_id
    if kind:
        piece["type"] = kind
    return piece


def _arguments(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value)
    return _text(value)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
