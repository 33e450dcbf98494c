"""One time budget for each request."""

import math
from collections.abc import Callable
from typing import Any

from django.http import HttpResponse

from .._core import deadline, parse_duration
from ..errors import DeadlineExceededError
from .client_errors import failure_response
from .settings import Settings, load_settings

BUDGET_ATTRIBUTE = "streamguard_deadline"
"""The attribute of a request that holds its `Deadline`."""


class DeadlineMiddleware:
    """Bound everything of streamguard's that a view does by one deadline, and answer 504 if it has passed.

    The budget is `STREAMGUARD["DEADLINE"]` seconds; or what the client asks for in the header that
    `STREAMGUARD["DEADLINE_HEADER"]` names (`1.5`, `800ms`), at most `STREAMGUARD["DEADLINE_MAX"]`. A header that is
    not a duration is ignored. A `DeadlineExceededError` that leaves the view becomes a 504 with a JSON body.

    Raises ImproperlyConfigured when the project starts.

    *Limits*: the view itself is not interrupted, only what streamguard does in it. A response that the view has returned
    is never replaced, however late it is. What `sse_response` streams afterwards is not under this budget: give the
    stream a `total=`.
    """

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response
        load_settings()

    def __call__(self, request: Any) -> Any:
        """Answer *request* within its budget."""
        with deadline(budget_of(request, load_settings())) as until:
            setattr(request, BUDGET_ATTRIBUTE, until)
            return self.get_response(request)

    def process_exception(self, request: Any, exception: BaseException) -> HttpResponse | None:
        """Answer 504 for a deadline that passed; leave everything else to others."""
        return failure_response(exception) if isinstance(exception, DeadlineExceededError) else None


def budget_of(request: Any, settings: Settings) -> float | None:
    """Return the seconds that *request* has; None: no limit."""
    asked = _asked(request.headers.get(settings.deadline_header)) if settings.deadline_header else None
    if asked is None:
        return settings.deadline
    most = settings.deadline if settings.deadline_max is None else settings.deadline_max
    return asked if most is None else min(asked, most)


def _asked(value: str | None) -> float | None:
    try:
        seconds = parse_duration(value or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None
