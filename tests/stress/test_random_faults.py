"""Hundreds of streams at a time, each with a fault and an act of its consumer's, both at random."""

import contextlib
import itertools
import queue
import random
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from streamguard import CancelToken, DeadlineExceededError, StreamCancelledError, deadline, guarded_stream
from streamguard._core.clock import monotonic
from streamguard.testing import no_leaks

from .faults import FAULTS, FaultyGateway, numbers_of

pytestmark = [pytest.mark.stress, pytest.mark.timeout(300)]

SIDE_BY_SIDE = 200
AT_LEAST = 1000
SECONDS = 30.0
SHORT = 0.5
"""Seconds: the limit that ends a stream which hangs. The others have a minute, so that no busy machine ends them."""

ACTS = {"read": (), "break": (), "close": (), "cancel": (StreamCancelledError,), "deadline": (DeadlineExceededError,)}
"""What a consumer does, and the error that it may get for that."""
WEIGHTS = (6, 1, 1, 1, 1)


@dataclass(slots=True)
class Story:
    """One stream: what was asked for, what the consumer did, what came."""

    fault: str
    count: int
    framing: str
    encoding: str
    act: str
    moment: float
    """Seconds until the act."""
    texts: list[str] = field(default_factory=list)
    error: Exception | None = None
    outcome: str = ""
    chunks: int = 0

    @property
    def path(self) -> str:
        return f"/{self.fault}/{self.count}/{self.framing}/{self.encoding}"

    def options(self) -> dict[str, Any]:
        """Return the limits: a short one where only a limit can end it."""
        silent = SHORT if self.fault in ("stall", "comments") else 60.0
        response = SHORT if self.fault == "mute" else 60.0
        return {"first": silent, "idle": silent, "response": response, "end_grace": 30, "retry": None}


def invent(chance: random.Random) -> Story:
    """Return a story that has yet to happen."""
    return Story(
        fault=chance.choice(sorted(FAULTS)),
        count=chance.choice((0, 1, 2, 7, 40, 300)),
        framing=chance.choice(("chunked", "chunked", "close", "http10")),
        encoding=chance.choice(("identity", "identity", "gzip", "deflate")),
        act=chance.choices(list(ACTS), WEIGHTS)[0],
        moment=chance.choice((0.0005, 0.005, 0.02, 0.1, 0.3)),
    )


def live(story: Story, url: str) -> None:
    """Let the story happen."""
    token = CancelToken()
    stream = guarded_stream("GET", url + story.path, cancel=token, **story.options())
    end = {"close": stream.close, "cancel": token.cancel}.get(story.act)
    with acting(end, story.moment), deadline(story.moment if story.act == "deadline" else None):
        try:
            for number, chunk in enumerate(stream):
                story.texts.append(chunk.text)
                if story.act == "break" and number == story.count // 2:
                    break
        except Exception as error:
            story.error = error
    stream.close()
    story.outcome, story.chunks = stream.report.outcome, stream.report.chunks
    handed_over = "".join(story.texts)
    if isinstance(story.error, StreamCancelledError | DeadlineExceededError):  # what had arrived besides is kept
        numbers = numbers_of(stream.text.split())
        assert numbers == list(range(1, len(numbers) + 1))
        assert stream.text.startswith(handed_over)
        assert stream.text == story.error.partial_text
    else:
        assert stream.text == handed_over
    assert list(stream) == []


@contextlib.contextmanager
def acting(end: Any, moment: float) -> Iterator[None]:
    """Call *end*, if there is one, from another thread after *moment* seconds."""
    timer = threading.Timer(moment, end or (lambda: None))
    if end:
        timer.start()
    try:
        yield
    finally:
        if end:
            timer.join()


def fault_of(story: Story) -> str | None:
    """Return what is wrong with how the story went, or None."""
    fault, numbers = FAULTS[story.fault], numbers_of(story.texts)
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) > story.count:
        return "chunks lost, doubled or out of order"
    if story.chunks != len(story.texts):
        return f"the report counts {story.chunks} chunks"
    own = not fault.errors if story.error is None else type(story.error) in fault.errors
    if own and story.outcome in ("completed", "timeout", "error"):
        whole = fault.before is not None or not fault.whole or len(numbers) == story.count
        complete = story.outcome != "completed" or not fault.errors
        return None if whole and complete else "an incomplete answer"
    acted = story.outcome == "closed" if story.error is None else type(story.error) in ACTS[story.act]
    return None if acted and story.act != "read" else "the wrong end"


def work(url: str, stories: "queue.SimpleQueue[Story | None]", told: list[Story], faults: list[str]) -> None:
    while (story := stories.get()) is not None:
        try:
            live(story, url)
            fault = fault_of(story)
        except Exception as error:
            fault = repr(error)
        told.append(story)
        if fault:
            faults.append(f"{fault}: {story}")


def hanging(threads: list[threading.Thread]) -> list[str]:
    """Return the stacks of the threads that are still there."""
    frames = sys._current_frames()
    return ["".join(traceback.format_stack(frames[t.ident])) for t in threads if t.is_alive() and t.ident in frames]


def test_random_faults_side_by_side() -> None:
    """200 at a time for half a minute: each ends as its fault or its act says, its chunks in order, and leaves nothing."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)
    stories: queue.SimpleQueue[Story | None] = queue.SimpleQueue()
    told: list[Story] = []
    faults: list[str] = []
    with no_leaks(settle=10), FaultyGateway() as gateway:
        threads = [threading.Thread(target=work, args=(gateway.url, stories, told, faults)) for _ in range(SIDE_BY_SIDE)]
        for thread in threads:
            thread.start()
        end = monotonic() + SECONDS
        for number in itertools.count():
            if faults or (monotonic() > end and len(told) >= AT_LEAST):
                break
            stories.put(invent(chance))
            while number - len(told) > 2 * SIDE_BY_SIDE:
                CancelToken().wait(0.005)
        for _ in threads:
            stories.put(None)
        for thread in threads:
            thread.join(120)
        assert not hanging(threads), f"a consumer hangs (seed {seed}): {hanging(threads)}"
        gateway.wait_connections(1, still_open=0, timeout=10)
    assert not faults, f"seed {seed}: {len(faults)} of {len(told)}; {faults[:5]}"
    assert Counter(story.fault for story in told).keys() == FAULTS.keys()
    assert Counter(story.act for story in told).keys() == ACTS.keys()
