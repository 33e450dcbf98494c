"""How the choices of an OpenAI-compatible chat stream end. Pure."""

from typing import Any

from .chunk import chat_has_content, delta_of, finish_reason_of


class ChoiceEnds:
    """Notice which choices of one stream have their finish reason, and whether anything may follow.

    The last word of a choice counts: content without a finish reason reopens one that had finished, because a server that
    runs tools itself goes on after the finish reason of its own call.
    """

    __slots__ = ("_asked", "_clean", "_ended", "_resumed", "still_open")

    def __init__(self, asked: int = 1) -> None:
        """*asked*: how many choices the request asks for."""
        self._asked = asked
        self._ended: dict[int, bool] = {}
        self.still_open: set[Any] = set()
        """The choices that have begun and have no finish reason: a further piece without one changes nothing."""
        self._clean: set[int] = set()
        """The choices whose finish reason came without content."""
        self._resumed = False
        """Whether content came after a finish reason: then none of this stream's finish reasons is the last word."""

    @property
    def finished(self) -> bool:
        """Whether every choice that was asked for, and every other one seen, has a finish reason."""
        return len(self._ended) >= self._asked and all(self._ended.values())

    @property
    def settled(self) -> bool:
        """Whether the choices have `finished` in such a way that only usage and the end can follow."""
        return not self._resumed and self.finished and len(self._clean) == len(self._ended)

    def note(self, choice: dict[str, Any], index: int) -> None:
        """Note a piece of the choice with this *index*."""
        reason = choice.get("finish_reason")
        if not reason and self._ended.get(index) is False:
            return  # almost every piece
        reason = finish_reason_of(choice)
        has_content = chat_has_content({"choices": [choice]})
        if has_content and (self._ended.get(index) or self.finished):
            self._resumed = True
        if reason is None:
            if has_content or index not in self._ended:
                self._ended[index] = False
                self.still_open.add(index)
            return
        # Some servers put a finish reason into every chunk, also into the one that only announces the role.
        announces = index not in self._ended and bool(delta_of(choice).get("role"))
        self._ended[index] = True
        self.still_open.discard(index)
        (self._clean.discard if has_content or announces else self._clean.add)(index)
