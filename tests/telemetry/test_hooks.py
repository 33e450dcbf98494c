"""Hooks: which are called, that they cannot break a stream, and the events that a finalizer defers."""

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
    """Raise, as a broken hook does."""
    raise RuntimeError("sk-secret")


def test_by_default_the_log_is_the_hook() -> None:
    """Without a configuration the one hook is `log_event`, and None restores it."""
    assert get_hooks() == (log_event,)
    set_hooks([])
    assert get_hooks() == ()
    set_hooks(None)
    assert get_hooks() == (log_event,)


def test_hooks_are_called_in_order() -> None:
    """Each hook is called with the event, in the given order."""
    seen: list[tuple[str, Event]] = []
    set_hooks([lambda event: seen.append(("first", event)), lambda event: seen.append(("second", event))])
    emit(SOMETHING)
    assert seen == [("first", SOMETHING), ("second", SOMETHING)]


def test_hooks_are_a_copy() -> None:
    """Changing the given list later changes nothing."""
    given: list[Any] = [log_event]
    set_hooks(given)
    given.clear()
    assert get_hooks() == (log_event,)


def test_a_hook_must_be_callable() -> None:
    """A hook that is not callable is a TypeError at once, and the hooks stay as they were."""
    with pytest.raises(TypeError, match="hooks= must be callables, got str"):
        set_hooks(["log"])  # type: ignore[list-item]
    assert get_hooks() == (log_event,)


def test_a_hook_that_raises_is_skipped(emitted: list[Event]) -> None:
    """The hooks after it are still called."""
    set_hooks([failing, *get_hooks()])
    emit(SOMETHING)
    assert emitted == [SOMETHING]


def test_a_hook_that_raises_is_logged_once_by_type(caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING for each hook and type of exception, without the exception's text."""
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
    streamguard_gateway: Serve, script: str, emitted: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    """A stream ends as without hooks, with and without one that raises at each event."""

    def outcome() -> tuple[str, type[BaseException] | None, str]:
        stream = guarded_stream("POST", streamguard_gateway(script).url, idle=0.1, retry=None)
        try:
            stream.read()
        except Exception as error:
            return stream.report.outcome, type(error), stream.text
        return stream.report.outcome, None, stream.text

    undisturbed = outcome()
    set_hooks([failing, *get_hooks(), failing])
    emitted.clear()
    assert outcome() == undisturbed
    assert isinstance(emitted[-1], StreamFinished)
    assert "sk-secret" not in caplog.text


def test_a_base_exception_is_not_swallowed() -> None:
    """Ctrl-C inside a hook is still Ctrl-C, and later events are emitted again."""
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
    """A hook's own calls are not reported: one that streams is not called for its own stream."""
    gateway = streamguard_gateway(GOOD)
    texts: list[str] = []

    def posting(event: Event) -> None:
        if isinstance(event, StreamFinished):
            texts.append(guarded_stream("POST", gateway.url).read())

    set_hooks([posting])
    guarded_stream("POST", gateway.url).read()
    assert texts == ["ab"]
    assert len(gateway.requests) == 2


def test_a_deferred_event_is_emitted_with_the_next(emitted: list[Event]) -> None:
    """`defer` calls no hook; the next event follows the deferred ones."""
    defer(SOMETHING)
    assert emitted == []
    emit(OTHER)
    assert emitted == [SOMETHING, OTHER]


def test_flush_emits_deferred_events(emitted: list[Event]) -> None:
    """`flush` emits it once; a second call has nothing to emit."""
    defer(SOMETHING)
    flush()
    flush()
    assert emitted == [SOMETHING]


def test_deferred_events_are_bounded(emitted: list[Event]) -> None:
    """Memory stays bounded in a process that ends streams only by collection and never emits."""
    for number in range(5000):
        defer(ConcurrencyChanged(pool="p", in_use=number))
    flush()
    assert len(emitted) == 1000
    assert emitted[-1] == ConcurrencyChanged(pool="p", in_use=4999)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_emit_for_its_parent(emitted: list[Event]) -> None:
    """Only the parent emits what a finalizer deferred in the parent."""
    defer(SOMETHING)
    child = os.fork()
    if child == 0:
        flush()
        os._exit(len(emitted))
    assert os.waitpid(child, 0)[1] == 0
    flush()
    assert emitted == [SOMETHING]


@pytest.mark.parametrize("cyclic", [False, True])
def test_a_collected_stream_calls_no_hook_and_is_emitted_later(
    streamguard_gateway: Serve, emitted: list[Event], cyclic: bool
) -> None:
    """The finalizer only defers the event; `flush` emits it, with outcome closed."""
    gateway = streamguard_gateway("chat a\nstall")
    stream = guarded_stream("POST", gateway.url)
    next(stream)
    if cyclic:
        stream.me = stream  # type: ignore[attr-defined]
    del stream
    gc.collect()
    gateway.wait_left()
    assert not any(isinstance(event, StreamFinished) for event in emitted)
    flush()
    (finished,) = [event for event in emitted if isinstance(event, StreamFinished)]
    assert (finished.report.outcome, finished.report.chunks) == ("closed", 1)


def test_a_stream_that_never_started_emits_nothing(emitted: list[Event]) -> None:
    """There was no call: there is only the ResourceWarning."""
    with pytest.warns(ResourceWarning, match="never started"):
        guarded_stream("POST", "http://127.0.0.1:9")
    flush()
    assert emitted == []


MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="nothing")


class Marking:
    """A hook that marks the context in its scope."""

    def __init__(self) -> None:
        self.entered: list[Event] = []
        self.left = 0

    def __call__(self, event: Event) -> None:
        """Ignore the event."""

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
    """A hook's scope is in force in the attempt's thread, and never in the consumer's, not even during the stream."""
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
    """If it raises when it is made, entered or left, the block still runs, and the other hooks' scopes hold."""

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


def test_a_scope_does_not_see_an_exception_of_the_block() -> None:
    """An exception of the block is raised unchanged, and no hook's scope sees it."""
    marking = Marking()
    set_hooks([marking])
    with pytest.raises(ZeroDivisionError), scope(SOMETHING):
        _ = 1 / 0
    assert marking.left == 1
