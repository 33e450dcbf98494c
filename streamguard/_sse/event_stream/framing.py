"""Cut a byte stream into the blocks of an event stream, whatever its line ends and wherever the network cut it."""

from ...errors import MalformedChunkError

_BOM = b"\xef\xbb\xbf"


class Framer:
    """Turn pieces of an event stream into complete blocks: the lines between two blank lines, joined by LF.

    A line ends with CR, LF or CRLF, in any mixture; one byte order mark at the very start is dropped (WHATWG HTML,
    section 9.2.5). A block is complete with the first byte of its blank line's end, so a stream that ends its lines
    with a lone CR is as prompt as any other. Blank lines without a block between them yield nothing.

    Time and memory are linear in the size of the stream, however small the pieces.

    *max_bytes* (default 16 MiB) caps one block, complete or not, comments included; *max_lines* (default one million)
    caps its lines.

    *Limits*: a `Framer` belongs to one stream and one thread at a time.
    """

    def __init__(self, max_bytes: int = 16 * 1024 * 1024, *, max_lines: int = 1_000_000) -> None:
        self._max_bytes = max_bytes
        self._max_lines = max_lines
        self._unsuspicious = min(max_bytes, max_lines)
        self._head: bytes | None = b""
        self._after_cr = False
        # The unfinished block without its last LF, which is held back: the next byte decides whether it ends the block.
        # A bytearray grows in place; appending to bytes would copy all of it for every piece.
        self._block = bytearray()
        self._held_lf = False
        self._counted = 0
        self._comments = 0
        self._fault: str | None = None

    @property
    def pending(self) -> int:
        """Bytes of the unfinished block, line ends normalised."""
        return len(self._block) + self._held_lf + len(self._head or b"")

    @property
    def open_line(self) -> bytes:
        """The last line of the unfinished block as far as it has come; empty if its end has come as well."""
        return b"" if self._held_lf else bytes(self._block[self._block.rfind(b"\n") + 1 :])

    @property
    def pending_comments(self) -> int:
        """Comment lines seen so far in the unfinished block. Asking often costs little: each byte is looked at once."""
        if not self._counted and self._block.startswith(b":"):
            self._comments = 1
        self._comments += self._block.count(b"\n:", self._counted)
        self._counted = len(self._block)
        return self._comments

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next piece and return the blocks that are complete by now.

        Raises `MalformedChunkError` when a block is above a cap. Complete blocks in front of it are returned first; the
        error then comes with the next call.
        """
        self._raise_fault()
        if self._head is not None:
            data = self._skip_bom(data)
        if not data:
            return []
        if self._after_cr or b"\r" in data:
            data = self._normalise(data)
        if self._held_lf:
            data = b"\n" + data
        suspicious = len(self._block) + len(data) > self._unsuspicious
        blocks = self._split(data)
        return self._checked(blocks) if suspicious else blocks

    def finish(self) -> bytes:
        """Return the unfinished last block, without its last line end; empty if there is none.

        Raises `MalformedChunkError` if a block was above a cap and the error has not been raised yet.
        """
        self._raise_fault()
        block = bytes(self._block) + (self._head or b"")
        self._head = None
        self._clear()
        self._refuse(block)
        self._raise_fault()
        return block

    def _skip_bom(self, data: bytes) -> bytes:
        data = (self._head or b"") + data
        if len(data) < len(_BOM) and _BOM.startswith(data):
            self._head = data
            return b""
        self._head = None
        return data.removeprefix(_BOM)

    def _normalise(self, data: bytes) -> bytes:
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _split(self, data: bytes) -> list[bytes]:
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        if not blocks:
            self._keep(rest)
            return blocks
        if self._block:
            self._block.extend(blocks[0])
            blocks[0] = bytes(self._block)
            self._clear()
        self._keep(rest)
        # A third line end in a row is one more blank line; split() left it at the front of the next block.
        return [block.lstrip(b"\n") for block in blocks if block]

    def _keep(self, piece: bytes) -> None:
        if not self._block:
            piece = piece.lstrip(b"\n")
        self._held_lf = piece.endswith(b"\n")
        self._block.extend(piece[:-1] if self._held_lf else piece)

    def _clear(self) -> None:
        self._block.clear()
        self._held_lf = False
        self._counted = self._comments = 0

    def _checked(self, blocks: list[bytes]) -> list[bytes]:
        for position, block in enumerate(blocks):
            if self._refuse(block):
                del blocks[position:]
                break
        else:
            if len(self._block) > self._max_bytes:
                self._fault = _too_much(_size(self._max_bytes))
        if self._fault:
            self._clear()
        if not blocks:
            self._raise_fault()
        return blocks

    def _refuse(self, block: bytes) -> bool:
        if len(block) > self._max_bytes:
            self._fault = _too_much(_size(self._max_bytes))
        elif len(block) > self._max_lines and block.count(b"\n") >= self._max_lines:
            self._fault = _too_much(f"{self._max_lines} lines")
        return self._fault is not None

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise MalformedChunkError(self._fault)


def _too_much(cap: str) -> str:
    return f"an event is above the cap of {cap}; does the server end its events with blank lines?"


def _size(count: int) -> str:
    mebibytes, rest = divmod(count, 1024 * 1024)
    return f"{mebibytes} MiB" if mebibytes and not rest else f"{count} bytes"
