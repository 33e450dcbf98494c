"""What a step gets: its inputs, the values it needs, and calls that end with its budget."""

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

__all__ = ["Results", "SessionSource", "StepContext"]

T = TypeVar("T")

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class SessionSource:
    """The run's Session: the caller's, or one that is made when the first step asks, and closed behind the run.

    One per run, and not per chain: a session keeps cookies, which are one user's.
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
        """Close the session, if it is not the caller's."""
        self._stack.close()


class Results(Mapping[str, Any]):
    """The values of the steps that a step needs, by step or by name; `results[step]` keeps the step's type."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    @overload
    def __getitem__(self, step: StepKey[T]) -> T: ...
    @overload
    def __getitem__(self, step: str) -> Any: ...
    def __getitem__(self, step: StepKey[Any] | str) -> Any:
        name = step if isinstance(step, str) else step.name
        if name not in self._values:
            raise UsageError(f"a step sees the values of the steps it needs: declare needs=({name!r},)")
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
    """What a step gets as its one argument: inputs, dependencies, and calls that end with the step's budget.

    Everything of streamguard's that is used inside of the step ends with its budget, also without this object: the budget
    is the ambient `deadline()` there, and `token` the current token.
    """

    __slots__ = ("_source", "_until", "_wrote", "attempt", "idempotency_key", "inputs", "results", "token")

    attempt: int
    """The attempt that is being made, from 1."""
    inputs: Mapping[str, Any]
    """What `run()` was given."""
    results: Results
    """The values of the steps in `needs=`."""
    token: CancelToken
    """Cancelled when the step must stop: register closers with it, or `wait()` on it instead of sleeping."""
    idempotency_key: str | None
    """The same for all attempts of this run of the step; None unless it was declared with `idempotency_key=True`."""

    def __init__(
        self,
        *,
        inputs: Mapping[str, Any],
        results: Results,
        token: CancelToken,
        until: Deadline | None,
        source: SessionSource,
        idempotency_key: str | None = None,
    ) -> None:
        self.attempt = 0
        self.inputs = inputs
        self.results = results
        self.token = token
        self.idempotency_key = idempotency_key
        self._until = until
        self._source = source
        self._wrote = False

    def __repr__(self) -> str:
        return f"<StepContext, token {self.token!r}>"  # no inputs: they are the caller's

    @property
    def session(self) -> Session:
        """A `streamguard.Session` whose calls end with the step's budget; one for all steps of the run."""
        return self._source.get()._observed(self._note_method)

    @property
    def wrote(self) -> bool:
        """Whether the step has begun a request through `session` that may change something: a POST, say."""
        return self._wrote

    def remaining(self) -> float | None:
        """Return the seconds left of the step's budget, never negative; None if nothing bounds it."""
        return None if self._until is None else self._until.remaining()

    def get_json(self, url: str, **options: Any) -> Any:
        """Return the parsed JSON that *url* answers with, as `session.get_json` does."""
        return self.session.get_json(url, **options)

    def stream(self, method: str, url: str, **options: Any) -> GuardedStream[Any]:
        """Return a `guarded_stream()` that ends with the step's budget; it is not retried unless *options* say so.

        What may be repeated, and how often, is the step's to say: `retries=`.
        """
        return self._source.get().stream(method, url, **{"retry": None, **options})

    def _note_method(self, method: str) -> None:
        if method.upper() not in _SAFE_METHODS:
            self._wrote = True
