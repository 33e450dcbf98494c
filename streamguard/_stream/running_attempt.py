"""The attempt that runs: the reader thread, what it has reported, and the decoder of its blocks."""

import queue
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import requests

from .._core.bounded import GRACE_SECONDS, count_abandoned
from .._core.cancel import CancelToken
from .._core.clock import monotonic
from .._core.deadline import Deadline, deadline
from .._core.pump import End, Pump
from .._http import request_id
from ..errors import StreamguardError
from .interfaces import Source
from .options import StreamOptions
from .recorder import Recorder
from .stream_notifier import StreamNotifier
from .timing.clocks import Phase, StreamClocks
from .upstream.cut_off import CutOff
from .upstream.decode import Decoder
from .upstream.response import BAD_BODY_SECONDS, BodyBlock, Opened, Rejected

_DRAIN_SECONDS = 0.05
"""How long a body may take to end after the end marker, if its connection could then serve others."""


class RunningAttempt:
    """One attempt after another of one stream, and the clocks that run while the consumer waits for it."""

    def __init__(
        self, source: Source, options: StreamOptions, token: CancelToken, recorder: Recorder, notifier: StreamNotifier
    ) -> None:
        self.source = source
        self.clocks = StreamClocks(options.limits, options.heartbeat, recorder.entered)
        self.response: requests.Response | None = None
        self.decoder: Decoder = options.make_decoder()
        self.is_open = False
        """Whether the headers are here, and the response is what was asked for."""
        self.body_ended = False
        self.missing = ""
        """What the body may lack, if its framing cannot vouch for its end."""
        self.rejection: StreamguardError | None = None
        """The error for a response that is not a stream, as long as its body is being read."""
        self.arrived = 0.0
        """When the chunks that were returned last arrived."""
        self._make_decoder = options.make_decoder
        self._token = token
        self._recorder = recorder
        self._notifier = notifier
        self._pump: Pump[None] | None = None
        """That of the running attempt; None between attempts, and once it was cut."""

    def start(self, until: Deadline | None) -> None:
        """Start the reader thread, which runs with *until* as its ambient deadline."""
        self.response = None
        self.is_open = False
        self.clocks.begin(reports_phases=self.source.reports_phases)
        token = self._token.child()
        # The deadline is for what the reader itself calls: an auth that fetches a key, a header.
        with self._notifier.attempt(), deadline(until):
            pump = self._pump = Pump(self.source.read, token, name=f"reader-{self._recorder.id}")
        token.on_cancel(token.detach)
        pump.start()  # not `self._pump`: a close() in another thread takes it away

    def take(self, seconds: float | None) -> object | None:
        """Return the next item of the reader; wait at most *seconds* (None: without end; 0: not at all)."""
        pump = self._pump  # once: a close() in another thread takes it away
        if pump is None:
            if seconds != 0:
                self._token.wait(seconds)
            return None
        try:
            return pump.get(seconds)
        except queue.Empty:
            return None

    def handle(self, item: object) -> Iterator[Any] | None:
        """Note what the reader reported; return the chunks that came with it, if any can have."""
        match item:
            case BodyBlock():
                return self._received(item)
            case Phase():
                self.clocks.enter(item)
            case Opened():
                self._opened(item)
            case Rejected():
                self._note_headers(item)
                self.rejection = item.error
                self.clocks.rejected(2 * BAD_BODY_SECONDS)
            case CutOff():
                self.missing = item.missing
            case End() if not self._token.cancelled:
                self.body_ended, self.arrived = True, monotonic()
                return self.decoder.finish()
        return None

    def drain(self) -> None:
        """Give the body a moment to end after its end marker, if its connection can serve others then."""
        pump = self._pump
        if pump is not None and not self.body_ended and self.source.keeps_connection:
            pump.join(_DRAIN_SECONDS)

    def cut(self) -> None:
        """Stop the attempt that is running, if one is, and count its thread if it stays. From any thread."""
        pump, self._pump = self._pump, None
        if pump is not None and not pump.stop("cut", GRACE_SECONDS):
            self._recorder.abandoned.add(self._recorder.attempts)
            count_abandoned(pump)

    def forget(self) -> None:
        """Drop what the attempt that failed has left to judge: the pause before the next one begins."""
        self.body_ended, self.missing, self.rejection, self.decoder = False, "", None, self._make_decoder()

    def leave(self) -> Iterator[Any]:
        """Cut; return the chunks of what had arrived and was not yet taken."""
        pump = self._pump
        self.cut()
        return self._untaken(pump)

    def _untaken(self, pump: Pump[None] | None) -> Iterator[Any]:
        while pump is not None:
            try:
                item = pump.get(0)
            except queue.Empty:
                return  # a thread that is just cancelling has yet to put the end there
            if isinstance(item, End):
                return
            if isinstance(item, Opened) and item.decoder is not None:
                self.decoder = item.decoder
            if isinstance(item, BodyBlock):
                yield from self.decoder.feed(item.data)

    def _opened(self, item: Opened) -> None:
        if item.decoder is not None:
            self.decoder = item.decoder
        self._note_headers(item)
        self.is_open = item.judged
        self.clocks.opened()

    def _note_headers(self, item: Opened | Rejected) -> None:
        if item.response is None:
            return
        recorder, self.response = self._recorder, item.response
        recorder.headers_at = recorder.headers_at or item.at
        recorder.host = recorder.host or urlsplit(item.response.url or "").netloc.rpartition("@")[2]
        recorder.status_code = item.response.status_code
        recorder.request_id = request_id(item.response)

    def _received(self, block: BodyBlock) -> Iterator[Any]:
        self.clocks.bytes_came()
        pump = self._pump  # once: a close() in another thread takes it away
        if pump is not None:
            pump.feed.take(block.weight)
        known = self.decoder.comments
        chunks = self.decoder.feed(block.data)
        self._recorder.received(block.at, block.size, self.decoder.comments - known)
        self.arrived = block.at
        return chunks
