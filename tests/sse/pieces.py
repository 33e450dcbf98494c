"""Cutting streams into pieces."""

import itertools


def cut(stream: bytes, offsets: list[int]) -> list[bytes]:
    """Cut *stream* at the given offsets."""
    return [stream[a:b] for a, b in itertools.pairwise([0, *offsets, len(stream)])]


def bytewise(stream: bytes) -> list[bytes]:
    """Cut *stream* into single bytes."""
    return cut(stream, list(range(1, len(stream))))
