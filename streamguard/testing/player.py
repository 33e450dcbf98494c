"""Plays one script on one connection, as the answer to one request."""

from .request_log import Request, RequestLog
from .response_plan import BodyPieces, ResponsePlan
from .script import Drip, Headers, Pause, Step, Wire, unroll
from .transport import Transport
from .wire import Framing

_IMPLICIT_HEAD = Headers("headers", "headers")


class Player:
    """Answers *request* by *plan*. *closing*: the connection ends with the response."""

    def __init__(
        self, plan: ResponsePlan, request: Request, transport: Transport, log: RequestLog, *, closing: bool
    ) -> None:
        self._plan = plan
        self._request = request
        self._transport = transport
        self._log = log
        self._framing = plan.framing
        self._closing = closing or self._framing.closes
        self._pieces = BodyPieces(plan.encoding)
        self._started = False
        self._ended = False
        self._over = False

    def play(self) -> bool:
        """Play the script; return whether the connection can serve another request.

        Raises ClientLeft as soon as the client leaves.
        """
        for step in unroll(self._plan.script):
            self._play(step)
            if self._over:
                break
        if not self._ended and not self._over:
            self._end()
        self._request.doing = "idle"
        return not (self._closing or self._over)

    def _play(self, step: Step) -> None:
        self._request.doing = step.verb
        takes_time = isinstance(step, Pause | Drip) or (isinstance(step, Headers) and step.seconds is not None)
        if takes_time:
            self._log.reached(self._request, step)
        self._do(step)
        self._log.completed(self._request, step)
        if not takes_time:
            self._log.reached(self._request, step)

    def _do(self, step: Step) -> None:
        match step:
            case Headers():
                self._send_head(step)
            case Pause():
                self._transport.watch(step.seconds)
            case Wire():
                self._send_wire(step)
            case Step(verb="end"):
                self._end()
            case Step(verb="close"):
                self._transport.finish(notify=False)
                self._over = True
            case Step(verb="reset"):
                self._transport.reset()
                self._over = True
            case _:
                self._send_body(step)

    def _send_head(self, step: Headers) -> None:
        self._framing = self._plan.framing_of(self._request.method, step.status)
        self._send_slowly(self._plan.head(step, self._framing, closing=self._closing), step.seconds)
        self._started = step.status >= 200

    def _send_slowly(self, block: bytes, seconds: float | None) -> None:
        if seconds is None:
            self._transport.send(block)
            return
        for number, byte in enumerate(block):
            self._transport.watch(seconds if number else 0)
            self._transport.send(bytes((byte,)))

    def _send_wire(self, step: Wire) -> None:
        if not self._started:
            self._started = self._closing = True
            self._framing = Framing("raw")
        self._transport.send(step.data)

    def _send_body(self, step: Step) -> None:
        self._start()
        for number, piece in enumerate(self._pieces.of(step)):
            if number and isinstance(step, Drip):
                self._transport.watch(step.seconds)
            self._transport.send(self._framing.frame(piece))
        if step.verb == "body":
            self._end()

    def _start(self) -> None:
        if not self._started:
            self._send_head(_IMPLICIT_HEAD)

    def _end(self) -> None:
        self._start()
        self._transport.send(self._framing.frame(self._pieces.end()) + self._framing.end())
        self._ended = True
        if self._closing:
            self._transport.finish(notify=True)
