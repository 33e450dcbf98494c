"""Numbered chunks, many of them, end to end: none lost, none doubled, none out of its place."""

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

import streamguard
from streamguard import guarded_stream
from streamguard.testing import Gateway, no_leaks
from streamguard.testing.wire import ENCODINGS, FRAMINGS

from ..helpers import Consumer, in_threads, join, switching_often
from .faults import FaultyGateway, numbers_of

pytestmark = [pytest.mark.stress, pytest.mark.timeout(300)]

Serve = Callable[..., Gateway]

MANY = 4000
SHORT_STREAMS = 10_000
SIDE_BY_SIDE = 8


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_every_framing_and_encoding(streamguard_gateway: Serve, framing: str, encoding: str | None, tls: bool) -> None:
    """4000 chunks come in order through each, though the consumer pauses now and then and lets them pile up."""
    script = f"loop {MANY}\ntick\nendloop\nfinish\ndone"
    gateway = streamguard_gateway(script, framing=framing, encoding=encoding, tls=tls)
    chance = random.Random(MANY)
    texts = []
    for chunk in guarded_stream("GET", gateway.url, verify=gateway.ca if tls else True):
        texts.append(chunk.text)
        if chance.random() < 0.002:
            time.sleep(chance.random() / 100)
    assert numbers_of(texts) == list(range(1, MANY + 1))


def test_back_pressure_loses_nothing(streamguard_gateway: Serve) -> None:
    """More than reader and kernel hold, for a consumer that sleeps: the server is held back, and all of it comes."""
    gateway = streamguard_gateway(f"loop 300\nraw : {'x' * 50_000}\\n\\n\ntick\nendloop\nfinish\ndone")
    texts = []
    for chunk in guarded_stream("GET", gateway.url):
        texts.append(chunk.text)
        if len(texts) == 1:
            time.sleep(0.5)
            behind = gateway.requests[0].bytes_sent
            assert behind < 300 * 50_000
    assert numbers_of(texts) == list(range(1, 301))


def test_several_consumers_of_one_stream(streamguard_gateway: Serve) -> None:
    """Eight threads take from one stream: each chunk goes to exactly one of them, and each of them sees rising numbers."""
    gateway = streamguard_gateway(f"loop {2 * MANY}\ntick\nendloop\nfinish\ndone")
    stream = guarded_stream("GET", gateway.url)
    consumers = [Consumer(stream) for _ in range(SIDE_BY_SIDE)]
    with switching_often():
        join(in_threads(SIDE_BY_SIDE, lambda number: consumers[number]()))
    taken = [numbers_of(consumer.texts) for consumer in consumers]
    assert sorted(itertools.chain(*taken)) == list(range(1, 2 * MANY + 1))
    assert all(numbers == sorted(numbers) for numbers in taken)


def own_connections(url: str, count: int, done: Callable[[list[int], Any], None]) -> None:
    for _ in range(count):
        stream = guarded_stream("GET", url)
        done(numbers_of([chunk.text for chunk in stream]), stream)


def kept_connection(url: str, count: int, done: Callable[[list[int], Any], None]) -> None:
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter())
        for _ in range(count):
            stream = guarded_stream("GET", url, session=session)
            done(numbers_of([chunk.text for chunk in stream]), stream)


@pytest.mark.parametrize("way", [own_connections, kept_connection], ids=lambda way: way.__name__)
def test_ten_thousand_short_streams(way: Callable[..., None]) -> None:
    """Each of 10 000 short streams, eight at a time, is whole and ends well; a kept connection never mixes two of them."""
    wrong: list[tuple[list[int], Any]] = []
    counted = threading.Semaphore(0)

    def done(numbers: list[int], stream: Any) -> None:
        if numbers != [1, 2, 3] or stream.report.outcome != "completed":
            wrong.append((numbers, stream.report))
        counted.release()

    with no_leaks(settle=10), FaultyGateway() as gateway:
        url, each = f"{gateway.url}/usage/3/chunked/identity", SHORT_STREAMS // 2 // SIDE_BY_SIDE
        threads = [threading.Thread(target=way, args=(url, each, done)) for _ in range(SIDE_BY_SIDE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert wrong == []
        assert sum(counted.acquire(blocking=False) for _ in range(SHORT_STREAMS)) == each * SIDE_BY_SIDE
        if way is kept_connection:
            assert gateway.connections <= len(gateway.requests) / 20
        gateway.wait_connections(1, still_open=0, timeout=10)
