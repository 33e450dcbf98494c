"""Hooks: who is told, that they cannot break a stream, and what a finalizer leaves to tell."""

import contextvars
import gc
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamguard import guarded_stream
from streamguard.telemetry import (
    AttemptStarted,
    ConcurrencyChanged,
    Event,
    StreamFinished,
    ThreadAbandoned,
    emit,
    flush,
    get_hooks,
    log_event,
    set_hooks,
)
from streamguard.telemetry.hooks import defer, scope
from streamguard.testing import Gateway

Serve = Callable[..., Gateway]

SOMETHING = ThreadAbandoned(kind="reader")
OTHER = ConcurrencyChanged(pool="p", in_use=1)
GOOD = "chat a\nchat b\nfinish\ndone"


def failing(event: Event) -> None:
    """A hook that is broken."""
    raise RuntimeError("sk-secret")


def test_by_default_the_log_is_told() -> None:
    """Nothing is configured: the one hook is `log_event`, and None brings it back."""
    assert get_hooks() == (log_event,)
    set_hooks([])
    assert get_hooks() == ()
    set_hooks(None)
    assert get_hooks() == (log_event,)


def test_hooks_are_told_in_order() -> None:
    """Each hook is called with the event, in the order in which they were given."""
    seen: list[tuple[str, Event]] = []
    set_hooks([lambda event: seen.append(("first", event)), lambda event: seen.append(("second", event))])
    emit(SOMETHING)
    assert seen == [("first", SOMETHING), ("second", SOMETHING)]


def test_hooks_are_a_copy() -> None:
    """What was given may change afterwards: the hooks do not."""
    given: list[Any] = [log_event]
    set_hooks(given)
    given.clear()
    assert get_hooks() == (log_event,)


def test_what_cannot_be_called_is_refused() -> None:
    """A hook that is not callable is a TypeError at once, and the hooks stay as they were."""
    with pytest.raises(TypeError, match="hooks= must be callables, got str"):
        set_hooks(["log"])  # type: ignore[list-item]
    assert get_hooks() == (log_event,)


def test_a_hook_that_raises_is_skipped(told: list[Event]) -> None:
    """The hooks behind it are still told."""
    set_hooks([failing, *get_hooks()])
    emit(SOMETHING)
    assert told == [SOMETHING]


def test_a_hook_that_raises_is_logged_once_by_type(caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING for a hook and type of exception, without the exception's text."""
    set_hooks([failing])
    for _ in range(3):
        emit(SOMETHING)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    expected = {"event": "hook_failed", "hook": "failing", "error_type": "RuntimeError"}
    assert record.streamguard == expected  # type: ignore[attr-defined]
    assert "sk-secret" not in caplog.text


@pytest.mark.parametrize("script", [GOOD, "chat a\nstall", "headers 500", "reset"])
def test_a_hook_that_raises_never_breaks_a_stream(
    streamguard_gateway: Serve, script: str, told: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    """A stream ends as it would without hooks, with and without one that raises at each event."""

    def outcome() -> tuple[str, type[BaseException] | None, str]:
        stream = guarded_stream("POST", streamguard_gateway(script).url, idle=0.1, retry=None)
        try:
            stream.read()
        except Exception as error:
            return stream.report.outcome, type(error), stream.text
        return stream.report.outcome, None, stream.text

    undisturbed = outcome()
    set_hooks([failing, *get_hooks(), failing])
    told.clear()
    assert outcome() == undisturbed
    assert isinstance(told[-1], StreamFinished)
    assert "sk-secret" not in caplog.text


def test_what_is_no_exception_is_not_swallowed() -> None:
    """Ctrl-C inside a hook is still Ctrl-C, and later events are told again."""
    seen: list[Event] = []

    def interrupted(event: Event) -> None:
        if not seen:
            seen.append(event)
            raise KeyboardInterrupt
        seen.append(event)

    set_hooks([interrupted])
    with pytest.raises(KeyboardInterrupt):
        emit(SOMETHING)
    emit(OTHER)
    assert seen == [SOMETHING, OTHER]


def test_a_hook_may_use_a_stream(streamguard_gateway: Serve) -> None:
    """What a hook does itself is told to nobody: one that streams is not called for its own stream."""
    gateway = streamguard_gateway(GOOD)
    texts: list[str] = []

    def posting(event: Event) -> None:
        if isinstance(event, StreamFinished):
            texts.append(guarded_stream("POST", gateway.url).read())

    set_hooks([posting])
    guarded_stream("POST", gateway.url).read()
    assert texts == ["ab"]
    assert len(gateway.requests) == 2


def test_a_deferred_event_is_told_with_the_next(told: list[Event]) -> None:
    """`defer` tells nobody; the next event is told behind the deferred ones."""
    defer(SOMETHING)
    assert told == []
    emit(OTHER)
    assert told == [SOMETHING, OTHER]


def test_flush_tells_what_was_deferred(told: list[Event]) -> None:
    """`flush` tells it once, and has nothing to tell then."""
    defer(SOMETHING)
    flush()
    flush()
    assert told == [SOMETHING]


def test_what_waits_is_bounded(told: list[Event]) -> None:
    """A process that ends streams by collection only, and never emits, does not grow for ever."""
    for number in range(5000):
        defer(ConcurrencyChanged(pool="p", in_use=number))
    flush()
    assert len(told) == 1000
    assert told[-1] == ConcurrencyChanged(pool="p", in_use=4999)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_tell_for_its_parent(told: list[Event]) -> None:
    """What a finalizer left in the parent is told by the parent only."""
    defer(SOMETHING)
    child = os.fork()
    if child == 0:
        flush()
        os._exit(len(told))
    assert os.waitpid(child, 0)[1] == 0
    flush()
    assert told == [SOMETHING]


@pytest.mark.parametrize("cyclic", [False, True])
def test_a_collected_stream_calls_no_hook_and_is_told_later(
    streamguard_gateway: Serve, told: list[Event], cyclic: bool
) -> None:
    """The finalizer only leaves the event; `flush` tells it, with outcome closed."""
    gateway = streamguard_gateway("chat a\nstall")
    stream = guarded_stream("POST", gateway.url)
    next(stream)
    if cyclic:
        stream.me = stream  # type: ignore[attr-defined]
    del stream
    gc.collect()
    gateway.wait_left()
    assert not any(isinstance(event, StreamFinished) for event in told)
    flush()
    (finished,) = [event for event in told if isinstance(event, StreamFinished)]
    assert (finished.report.outcome, finished.report.chunks) == ("closed", 1)


def test_a_stream_that_never_started_tells_nothing_when_it_is_collected(told: list[Event]) -> None:
    """It was no call: there is only the ResourceWarning."""
    with pytest.warns(ResourceWarning, match="never started"):
        guarded_stream("POST", "http://127.0.0.1:9")
    flush()
    assert told == []


MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="nothing")


class Marking:
    """A hook that marks the context in its scope."""

    def __init__(self) -> None:
        self.entered: list[Event] = []
        self.left = 0

    def __call__(self, event: Event) -> None:
        """Nothing to note."""

    @contextmanager
    def scope(self, event: Event) -> Iterator[None]:
        """Set the mark."""
        token = MARK.set("inside")
        self.entered.append(event)
        try:
            yield
        finally:
            MARK.reset(token)
            self.left += 1


def test_the_reader_copies_the_context_of_a_scope(streamguard_gateway: Serve) -> None:
    """A hook's scope holds in the attempt's thread, and not in the consumer's, not even while the stream is open."""
    marking = Marking()
    set_hooks([marking])
    seen: list[tuple[str, str]] = []

    def look(response: Any, **options: Any) -> None:
        seen.append((threading.current_thread().name, MARK.get()))

    with guarded_stream("POST", streamguard_gateway(GOOD).url, hooks={"response": look}) as stream:
        assert MARK.get() == "nothing"
        stream.read()
    ((thread, mark),) = seen
    assert thread.startswith("streamguard-reader-")
    assert mark == "inside"
    assert [type(event) for event in marking.entered] == [AttemptStarted]
    assert marking.left == 1


def test_a_scope_that_raises_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """Whether it raises when it is made, entered or left: the block runs, and the other hooks' scopes hold."""

    class Broken:
        def __init__(self, where: str) -> None:
            self.where = where

        def __call__(self, event: Event) -> None:
            """Nothing to note."""

        def scope(self, event: Event) -> "Broken":
            return self.fail("made")

        def __enter__(self) -> "Broken":
            return self.fail("entered")

        def __exit__(self, *exc_info: object) -> None:
            assert exc_info == (None, None, None)
            self.fail("left")

        def fail(self, where: str) -> "Broken":
            if where == self.where:
                raise RuntimeError("sk-secret")
            return self

    marking = Marking()
    set_hooks([Broken("made"), marking, Broken("entered"), Broken("left")])
    with scope(SOMETHING):
        assert MARK.get() == "inside"
    assert (MARK.get(), marking.left) == ("nothing", 1)
    assert "sk-secret" not in caplog.text


def test_a_scope_is_not_told_of_what_is_raised_in_it() -> None:
    """What the block raises comes out as it is, and no hook's scope sees it."""
    marking = Marking()
    set_hooks([marking])
    with pytest.raises(ZeroDivisionError), scope(SOMETHING):
        _ = 1 / 0
    assert marking.left == 1
