"""Decode gzipped bodies of one or more members completely, as far as they have arrived.

Needed for urllib3 2.6.0 and newer (2.8.0 is the newest that was tried): when the size of a read ends exactly at the end of
a member, its decoder keeps the bytes after that twice. The body then repeats itself without end, or data is dropped as
garbage after the body; no error is raised. A gateway that sends each event as a member has thousands of such places.
urllib3 before 2.6 decodes these bodies correctly. `tests/http/test_gunzip.py` fails once a new urllib3 does.
"""

import zlib

import urllib3
from urllib3.exceptions import DecodeError
from urllib3.response import ContentDecoder

_MAGIC = b"\x1f\x8b"


def unpack_gzip(raw: object) -> None:
    """Make `GzipDecoder` decode the body of *raw*, a response that is not read yet, if it is gzipped.

    Limits: a body with several content codings, of which gzip is one, stays urllib3's.
    """
    if not isinstance(raw, urllib3.HTTPResponse) or raw._decoder is not None:
        return
    if raw.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip"):
        raw._decoder = GzipDecoder()


class GzipDecoder(ContentDecoder):
    """Decode consecutive gzip members (RFC 1952, section 2.2).

    The data before an error is returned first, then urllib3's DecodeError is raised. Data after a member that does not
    begin another one is ignored, as gzip(1) and urllib3 do: some servers pad.
    """

    def __init__(self) -> None:
        self._member = _new_member()
        self._rest = b""
        self._is_full = False
        self._is_padding = False
        self._fault: DecodeError | None = None

    @property
    def has_unconsumed_tail(self) -> bool:
        """Whether the next call may return data, or raise, without new input."""
        return bool(self._rest) or self._is_full or self._fault is not None

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Decode *data*, after what an earlier call left, into at most *max_length* bytes (negative: no limit)."""
        if self._fault is not None:
            raise self._fault
        self._rest += data
        unpacked = bytearray()
        while (self._rest or self._is_full) and (max_length < 0 or len(unpacked) < max_length):
            unpacked += self._unpack(max(max_length - len(unpacked), 0))
        # zlib may hold output back although it has consumed all input.
        self._is_full = 0 <= max_length <= len(unpacked)
        if self._fault is not None and not unpacked:
            raise self._fault
        return bytes(unpacked)

    def flush(self) -> bytes:
        """Return the rest of a body that ended inside a member."""
        return self._member.flush()

    def _unpack(self, room: int) -> bytes:
        """Decode the input that belongs to one member, into at most *room* bytes (0: no limit)."""
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
            # Not zlib.error itself: urllib3 does not translate an error of its last call.
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
