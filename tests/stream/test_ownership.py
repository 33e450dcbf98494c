"""One thread takes chunks without a lock; other threads get in, and never at the same time."""

import itertools
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from streamguard import GuardedStream, guard, guarded_stream
from streamguard._stream.ownership import Ownership

from ..helpers import Serve, wait_until


def counting(count: int) -> GuardedStream[int]:
    """A stream of numbers, which never waits."""
    return guard(iter(range(count)), interrupt=lambda: None, idle=60)


@pytest.fixture
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_switching_often")
@pytest.mark.parametrize("round", range(20))
def test_each_chunk_goes_to_one_thread_whenever_the_others_come(round: int) -> None:
    """None twice and none lost, the report counts them all, and each thread sees them in order."""
    stream = counting(1500)
    taken: list[list[int]] = [[] for _ in range(3)]

    def take(mine: list[int]) -> None:
        mine.extend(stream)

    others = [threading.Thread(target=take, args=(mine,)) for mine in taken[1:]]
    for number in stream:
        taken[0].append(number)
        if len(taken[0]) == 7 * round:
            for other in others:
                other.start()
    for other in others:
        if other.ident is not None:
            other.join()
    assert sorted(itertools.chain(*taken)) == list(range(1500))
    assert all(mine == sorted(mine) for mine in taken)
    assert stream.report.chunks == 1500
    assert stream.report.outcome == "completed"


def test_never_two_at_once(streamguard_gateway: Serve) -> None:
    """The caller's functions are called by one thread at a time, also if others come while the owner is inside."""
    gateway = streamguard_gateway("\n".join([*["chat a"] * 60, "finish", "done"]))
    inside, most = list[int](), list[int]()
    others = [threading.Thread(target=lambda: [*stream]) for _ in range(3)]

    def decode(event: object) -> object:
        inside.append(1)
        most.append(len(inside))
        if len(most) == 5:
            for other in others:
                other.start()
        time.sleep(0.05 if len(most) == 5 else 0.002)
        inside.pop()
        return event

    stream = guarded_stream("GET", gateway.url, decode=decode)
    for _ in stream:
        pass
    for other in others:
        other.join()
    assert len(most) == 62
    assert max(most) == 1


@pytest.mark.usefixtures("_switching_often")
def test_two_threads_assemble_one_text_in_order(streamguard_gateway: Serve) -> None:
    """The message is assembled by one thread at a time."""
    words = [f"w{number} " for number in range(300)]
    gateway = streamguard_gateway("\n".join([*(f"chat {word!r}" for word in words), "finish", "done"]))
    stream = guarded_stream("GET", gateway.url)
    other = threading.Thread(target=lambda: [*stream])
    next(stream)
    other.start()
    for _ in stream:
        pass
    other.join()
    numbers = [word.strip("'\" ") for word in stream.text.split("w") if word.strip("'\" ")]
    assert numbers == [str(number) for number in range(300)]


def test_another_thread_waits_until_the_owner_is_out(streamguard_gateway: Serve) -> None:
    """It gets the chunk after the owner's, also if the owner has to wait long for that one."""
    gateway = streamguard_gateway("chat a\nwait 0.4\nchat b\nwait 0.2\nchat c\nfinish\ndone")
    stream = guarded_stream("GET", gateway.url)
    assert next(stream).text == "a"
    came: list[str] = []

    def take_one() -> None:
        wait_until(lambda: stream._ownership.inside)
        came.append(next(stream).text)

    other = threading.Thread(target=take_one)
    other.start()
    assert next(stream).text == "b"
    other.join()
    assert came == ["c"]
    assert stream._ownership.owner is None
    assert [chunk.text for chunk in stream] == [""]


def test_the_beginning_in_another_thread_leaves_the_chunks_to_the_consumer(streamguard_gateway: Serve) -> None:
    """`open()` takes no chunk; the first thread that takes one owns the stream."""
    gateway = streamguard_gateway("chat a\nchat b\nfinish\ndone")
    stream = guarded_stream("GET", gateway.url)
    opener = threading.Thread(target=lambda: stream.open(until="first"))
    opener.start()
    opener.join()
    assert stream._ownership.owner is None
    assert next(stream).text == "a"
    assert stream._ownership.owner == threading.get_ident()
    stream.heartbeat = 5
    assert stream._ownership.owner == threading.get_ident()
    stream.close()


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_a_stream_that_is_ended_while_its_owner_waits(streamguard_gateway: Serve, how: str) -> None:
    """The owner concludes it: the thread that ends it sees either no end yet, or the right one."""
    gateway = streamguard_gateway("chat a\nstall")
    stream = guarded_stream("GET", gateway.url)
    next(stream)
    outcomes: list[str] = []

    def end_it() -> None:
        gateway.wait_step("stall")
        wait_until(lambda: stream._ownership.inside)
        getattr(stream, how)()
        outcomes.append(stream.report.outcome)

    other = threading.Thread(target=end_it)
    other.start()
    try:
        rest = [*stream]
    except Exception as error:
        rest = [type(error).__name__]
    other.join()
    assert rest == ([] if how == "close" else ["StreamCancelledError"])
    final = "closed" if how == "close" else "cancelled"
    assert outcomes[0] in ("running", final)
    assert stream.report.outcome == final


def test_ownership_is_given_once() -> None:
    """The first thread that claims it owns it; after another one has come, none does."""
    ownership, here = Ownership(), threading.get_ident()
    ownership.end()
    assert ownership.owner is None
    ownership.claim()
    ownership.end()
    assert ownership.owner == here
    ownership.inside = True
    seen: list[bool] = []
    other = threading.Thread(target=lambda: seen.append(ownership.end_unless_inside()))
    other.start()
    other.join()
    assert (seen, ownership.owner) == ([False], None)
    ownership.inside = False
    ownership.claim()
    assert ownership.owner is None
