"""The two services that `examples/agent.py` calls: an optional profile, and a policy that decides."""

import json

from ..errors import UsageError
from .gateway import Gateway
from .request_log import Request
from .response_plan import ResponsePlan, make_plan
from .script import parse_script

_HTML = "<!doctype html><title>Maintenance</title><p>Please come back later."


class AgentAPI(Gateway):
    """A real local API: `GET /profile` answers with a name, `GET /policy` with `{"allowed": true}`; an ID may follow.

    profile_ms, policy_ms: milliseconds until each of them answers. Default 50.
    policy_status: the HTTP status of the policy. Default 200.
    allowed:       the decision of the policy. Default True.
    garbage:       the policy answers with a page of HTML. Default False.
    profile_status, profile_garbage: the same for the profile.
    host, port:    the address to listen on. Default: loopback, and a free port.

    Everything else is as in `Gateway`: use it in a `with` block, then read what it recorded. Any other path is a 404.

    Raises UsageError for a negative or infinite delay.
    """

    def __init__(
        self,
        *,
        profile_ms: float = 50,
        policy_ms: float = 50,
        policy_status: int = 200,
        allowed: bool = True,
        garbage: bool = False,
        profile_status: int = 200,
        profile_garbage: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__("headers 404", framing="length", host=host, port=port)
        policy = _HTML if garbage else json.dumps({"allowed": allowed})
        profile = _HTML if profile_garbage else json.dumps({"name": "Ada", "tone": "formal"})
        self._profile = _plan("profile_ms", profile_ms, profile_status, profile)
        self._policy = _plan("policy_ms", policy_ms, policy_status, policy)

    def _plan_for(self, request: Request, number: int) -> ResponsePlan:
        service = request.target.partition("?")[0].split("/")[1]
        if request.method == "GET" and service in ("profile", "policy"):
            return self._profile if service == "profile" else self._policy
        return super()._plan_for(request, number)


def _plan(option: str, milliseconds: float, status: int, body: str) -> ResponsePlan:
    if not 0 <= milliseconds < float("inf"):
        raise UsageError(f"{option}= must be a number of milliseconds >= 0, got {milliseconds!r}")
    script = [f"wait {milliseconds / 1000:.3f}", f"headers {status}", f"body {body}"]
    return make_plan(parse_script(script), framing="length", encoding=None, length=None)
