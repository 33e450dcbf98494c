"""A value that is decided once."""

import threading

from streamguard._core.once import Once


def test_the_first_value_wins() -> None:
    """Only the first call returns True; the value stays, also if it is false or None."""
    for first in ("a", None, 0):
        once: Once[object] = Once()
        assert not once
        assert once.value is None
        assert once.set(first)
        assert not once.set("b")
        assert once
        assert once.value == first


def test_of_many_threads_one_wins() -> None:
    """Of any number of threads that set it at once, one gets True."""
    once: Once[int] = Once()
    barrier = threading.Barrier(16)
    winners: list[int] = []

    def compete(number: int) -> None:
        barrier.wait(5)
        if once.set(number):
            winners.append(number)

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert winners == [once.value]
