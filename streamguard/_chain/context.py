"""The context of a step: its inputs, the values that it needs, and calls that end with its budget."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, TypeVar, overload

from .._core.cancel import CancelToken
from .._core.deadline import Deadline
from .._stream import GuardedStream
from ..errors import UsageError
from ..session import Session
from .step_key import StepKey

T = TypeVar("T")

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class SessionSource:
    """The Session of a run: the caller's, or one that the first use creates and the end of the run closes.

    Each run has its own, because a session keeps cookies, which belong to one user.
    """

    def __init__(self, session: Session | None) -> None:
        self._given = session
        self._own: Session | None = None
        self._lock = threading.Lock()
        self._stack = ExitStack()

    def get(self) -> Session:
        """Return the session."""
        if self._given is not None:
            return self._given
        with self._lock:
            if self._own is None:
                self._own = self._stack.enter_context(Session())
            return self._own

    def close(self) -> None:
        """Close the session, unless it is the caller's."""
        self._stack.close()


class Results(Mapping[str, Any]):
    """The values of the steps in `needs=`, by step or by name; `results[step]` keeps the type of the value."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    @overload
    def __getitem__(self, step: StepKey[T]) -> T: ...
    @overload
    def __getitem__(self, step: str) -> Any: ...
    def __getitem__(self, step: StepKey[Any] | str) -> Any:
        name = step if isinstance(step, str) else step.name
        if name not in self._values:
            raise UsageError(f"the value of step {name!r} is not in needs=: declare needs=({name!r},)")
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, step: object) -> bool:
        return getattr(step, "name", step) in self._values

    def __repr__(self) -> str:
        return f"<Results of {', '.join(self._values) or 'no step'}>"


class StepContext:
    """The one argument of a step: inputs, dependencies, and calls that end with the step's budget.

    Everything of streamguard's that the step uses ends with its budget, also without this object: the budget is the
    ambient `deadline()` in the step, and `token` is the current token.
    """

    __slots__ = ("_source", "_wrote", "attempt", "deadline", "idempotency_key", "inputs", "results", "token")

    attempt: int
    """The number of the attempt, from 1."""
    deadline: Deadline | None
    """The instant at which the step's budget ends; None if nothing bounds it."""
    inputs: Mapping[str, Any]
    """The inputs of `run()`."""
    results: Results
    """The values of the steps in `needs=`."""
    token: CancelToken
    """Cancelled when the step must stop: register closers with it, and `wait()` on it instead of sleeping."""
    idempotency_key: str | None
    """The same for all attempts of this run of the step; None unless it was declared with `idempotency_key=True`."""

    def __init__(
        self,
        *,
        inputs: Mapping[str, Any],
        results: Results,
        token: CancelToken,
        deadline: Deadline | None,
        source: SessionSource,
        idempotency_key: str | None = None,
    ) -> None:
        self.attempt = 0
        self.deadline = deadline
        self.inputs = inputs
        self.results = results
        self.token = token
        self.idempotency_key = idempotency_key
        self._source = source
        self._wrote = False

    def __repr__(self) -> str:
        return f"<StepContext, token {self.token!r}>"  # without the inputs, which may be secret

    @property
    def session(self) -> Session:
        """A `streamguard.Session` whose calls end with the step's budget; all steps of the run share it."""
        return self._source.get()._observed(self._note_method)

    @property
    def wrote(self) -> bool:
        """Whether the step started a request through `session` that may change something, such as a POST."""
        return self._wrote

    def remaining(self) -> float | None:
        """Return the seconds left of the step's budget, never negative; None if nothing bounds it."""
        return None if self.deadline is None else self.deadline.remaining()

    def get_json(self, url: str, **options: Any) -> Any:
        """Return the parsed JSON that *url* answers with, as `session.get_json` does."""
        return self.session.get_json(url, **options)

    def stream(self, method: str, url: str, **options: Any) -> GuardedStream[Any]:
        """Return a `guarded_stream()` that ends with the step's budget. It does not retry: use the step's `retries=`."""
        return self._source.get().stream(method, url, **{"retry": None, **options})

    def _note_method(self, method: str) -> None:
        if method.upper() not in _SAFE_METHODS:
            self._wrote = True
