"""Unpack a gzipped body, of one member or of many, as far as it has come.

urllib3 2.6 to 2.8 can lose data here, or repeat it, without a word: where its limit for a block falls on the very end
of a member, it keeps the bytes behind it twice, and drops what then makes no sense as garbage behind the body. A gateway
that makes a member of each event has thousands of such ends. So bodies that come through us are unpacked here.
"""

import zlib

import urllib3
from urllib3.exceptions import DecodeError
from urllib3.response import ContentDecoder

__all__ = ["GzipDecoder", "unpack_gzip"]

_MAGIC = b"\x1f\x8b"


def unpack_gzip(raw: object) -> None:
    """Have *raw*, a response that nobody read from yet, unpacked by `GzipDecoder` if its body is gzipped.

    Limits: not where gzip is one of several codings, one around the other.
    """
    if not isinstance(raw, urllib3.HTTPResponse) or raw._decoder is not None:
        return
    if raw.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip"):
        raw._decoder = GzipDecoder()


class GzipDecoder(ContentDecoder):
    """Unpack members of gzip (RFC 1952, section 2.2), one behind the other.

    What was packed before a fault is handed over first, then urllib3's DecodeError is raised. What begins no member where
    one has ended is ignored, as gzip(1) and urllib3 do: some servers pad.
    """

    def __init__(self) -> None:
        self._member = _new_member()
        self._rest = b""
        self._is_full = False
        self._is_padding = False
        self._fault: DecodeError | None = None

    @property
    def has_unconsumed_tail(self) -> bool:
        """Say whether there may be more to hand over, or a fault to raise, before anything else has come."""
        return bool(self._rest) or self._is_full or self._fault is not None

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Unpack *data*, and what an earlier call left, into at most *max_length* bytes (below zero: no limit)."""
        if self._fault is not None:
            raise self._fault
        self._rest += data
        unpacked = bytearray()
        while (self._rest or self._is_full) and (max_length < 0 or len(unpacked) < max_length):
            unpacked += self._unpack(max(max_length - len(unpacked), 0))
        # zlib may hold bytes back though it has taken all that came.
        self._is_full = 0 <= max_length <= len(unpacked)
        if self._fault is not None and not unpacked:
            raise self._fault
        return bytes(unpacked)

    def flush(self) -> bytes:
        """Return what is left of a body that ended amid a member."""
        return self._member.flush()

    def _unpack(self, room: int) -> bytes:
        """Unpack what is there of one member, into at most *room* bytes (0: no limit)."""
        data, self._rest, self._is_full = self._rest, b"", False
        if self._member.eof and data:
            self._is_padding = self._is_padding or not _MAGIC.startswith(data[:2])
            self._member = self._member if self._is_padding else _new_member()
        if self._is_padding:
            return b""
        before = self._member.copy()
        try:
            unpacked = self._member.decompress(data, room)
        except zlib.error as fault:
            # Not zlib.error itself: urllib3 does not translate what it meets in its last look.
            self._fault = DecodeError("Received response with content-encoding: gzip, but failed to decode it.", fault)
            return _unpack_up_to_a_fault(before, data)
        self._rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return unpacked


def _new_member() -> "zlib._Decompress":
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


def _unpack_up_to_a_fault(member: "zlib._Decompress", data: bytes) -> bytes:
    unpacked = bytearray()
    try:
        for at in range(len(data)):
            unpacked += member.decompress(data[at : at + 1])
    except zlib.error:
        pass
    return bytes(unpacked)
