"""Members that follow a script."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from streamguard.dispatch import CallableMember, Event, Kind, TurnContext
from streamguard.dispatch._turn.channel import MemberEvent

Q = 0.3
"""The output timeout of most tests, in seconds."""


def text(words: str) -> Event:
    return Event(kind=Kind.TEXT, text=words, delta=True)


def says(name: str, *words: str, pause: float = 0.0) -> CallableMember:
    """Return a member that yields *words*, with a pause before each, and completes."""

    def run(prompt: str, context: TurnContext) -> Iterator[str]:
        for word in words:
            context.token.wait(pause)
            yield word

    return CallableMember(name, run)


def hangs(name: str, *words: str, beat: Kind | None = None) -> CallableMember:
    """Return a member that yields *words*, and then waits for its stop, with a *beat* every 0.05 s."""

    def run(prompt: str, context: TurnContext) -> Iterator[Event]:
        for word in words:
            yield text(word)
        while not context.token.wait(0.05 if beat else None):
            assert beat
            yield Event(kind=beat)

    return CallableMember(name, run)


class Stuck(CallableMember):
    """A member that nothing can stop until *free* is set."""

    stop_grace = 0.05

    def __init__(self, name: str, *first: Event) -> None:
        self.free = threading.Event()
        self.inside = threading.Event()
        self.contexts: list[TurnContext] = []
        self._first = first
        super().__init__(name, self._stick)

    def _stick(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        self.contexts.append(context)
        yield from self._first
        self.inside.set()
        self.free.wait(20)
        yield text("too late")


class Scripted:
    """A member with a script for each run: events to yield; a number is a pause, an exception is raised."""

    def __init__(self, name: str, *runs: list[Any]) -> None:
        self.name = name
        self.contexts: list[TurnContext] = []
        self._runs = list(runs)

    def run(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        self.contexts.append(context)
        for item in self._runs.pop(0):
            if isinstance(item, int | float):
                time.sleep(item)
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item


def of(events: list[MemberEvent], member: str) -> list[Event]:
    return [event.event for event in events if event.member == member]


def kinds(events: list[Event]) -> list[str]:
    return [str(event.kind) for event in events]
