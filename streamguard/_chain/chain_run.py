"""One run of a chain: start what is ready, wait for the next event, record each step once.

All of this happens in the caller's thread, except the steps. Each end of a step is an event in one queue; the caller's
thread waits on that queue, at most until the next limit.
"""

import contextvars
import functools
import graphlib
import math
import queue
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from .._core.bounded import GRACE_SECONDS, count_abandoned
from .._core.cancel import CancelToken, set_current_token
from .._core.clock import monotonic
from .._core.deadline import Deadline, deadline
from .._core.tasks import Task
from .._core.waits import take
from ..errors import StreamguardError, UsageError
from ..telemetry.pools import take_place
from .active_step import ActiveStep, OpenWrite, StepEnd, alarm, budget_facts
from .attempts import perform
from .bulkhead import Places
from .context import Results, SessionSource, StepContext
from .failure_reasons import Failure
from .run_state import RunState
from .step import Settled, Step
from .step_status import Budget, StopReason, plan_budget

Events: TypeAlias = "queue.SimpleQueue[tuple[ActiveStep, StepEnd] | None]"
"""The ends of steps; None if the run was cancelled, or if a place in a bulkhead is free."""


class ChainRun:
    """The work of one `Chain.run()`.

    steps:        by name, in the order in which they are declared.
    order:        their order by needs, prepared.
    until:        the deadline of the run, or None.
    parent:       the caller's token, or None: the run works under a child of it.
    max_parallel: how many steps run at once. A thread that was abandoned keeps its slot, but never the last one: the run
                  must not wait for it.
    """

    def __init__(
        self,
        *,
        steps: Mapping[str, Step[Any]],
        order: "graphlib.TopologicalSorter[str]",
        inputs: Mapping[str, Any],
        until: Deadline | None,
        parent: CancelToken | None,
        source: SessionSource,
        max_parallel: int,
        state: RunState,
    ) -> None:
        self._steps, self._order, self._inputs = steps, order, inputs
        self._until, self._source, self._max_parallel = until, source, max_parallel
        self._state = state
        self._token = CancelToken() if parent is None else parent.child()
        self._events: Events = queue.SimpleQueue()
        self._positions = {name: position for position, name in enumerate(steps)}
        self._ready: list[str] = []
        self._waiting: set[str] = set()
        """Ready steps that wait for a slot: they are checked again when there is one."""
        self._active: list[ActiveStep] = []
        self._places = Places(functools.partial(self._events.put, None))
        self._stuck: list[Task] = []
        self._bug: BaseException | None = None
        self._begun = monotonic()

    def go(self) -> None:
        """Run all steps and record them in the state. Raises only a bug of a step, unchanged.

        Sets the current token and the ambient deadline, so call it in a context of its own.
        """
        set_current_token(self._token)
        unregister = self._token.on_cancel(functools.partial(self._events.put, None))
        try:
            with deadline(self._until):
                self._work_through()
        except BaseException:  # Ctrl-C, or an exception of a signal handler: cancel the steps and do not wait for them
            self._abandon()
            raise
        finally:
            unregister()
            self._places.close()
            self._token.detach()
        self._raise_bug()

    def _work_through(self) -> None:
        self._start_ready()
        while self._active or self._ready:
            self._wait()
            self._start_ready()

    def _start_ready(self) -> None:
        while self._start_one():
            pass

    def _start_one(self) -> bool:
        """Start, or record as not started, the first step for which that is possible; return whether there was one."""
        self._note_cancel()
        if self._order.is_active():
            self._ready = sorted([*self._ready, *self._order.get_ready()], key=self._positions.__getitem__)
        for name in self._ready:
            step = self._steps[name]
            if self._begin(step):
                return True
            if step.inline:
                return False  # it needs all slots: no later step may take one
        return False

    def _begin(self, step: Step[Any]) -> bool:
        has_slot = self._has_slot(step)
        if step.name in self._waiting and not has_slot and self._state.stopped is None:
            return False
        budget = self._budget(step, reserve=step.reserve, min_budget=step.min_budget)
        obstacle = self._obstacle(step, budget)
        if obstacle is None and not has_slot:
            self._waiting.add(step.name)
            return False
        if obstacle is None and not self._places.enter(step.name, step.bulkhead, self._latest_start(step)):
            if self._places.waits(step.name):
                return False
            obstacle = Failure("skipped", "bulkhead_full")
        self._places.end_wait(step.name)
        self._ready.remove(step.name)
        if obstacle is not None:
            self._fail(step, obstacle, **budget_facts(step, budget))
        else:
            key = uuid.uuid4().hex if step.idempotency_key else None
            self._state.notify.step_started(step, budget)
            self._launch(self._prepare(step, budget, key), step.fn)
        return True

    def _obstacle(self, step: Step[Any], budget: Budget) -> Failure | None:
        """Return how the step ends without a start, if it cannot start."""
        if self._state.stopped == "run_cancelled":
            return Failure("cancelled", "run_cancelled")
        missing = [self._state.reports[need] for need in step.needs if need not in self._state.values]
        if any(report.reason != "critical_failed" for report in missing):
            return Failure("skipped", "dependency_failed")
        if self._state.stopped is not None:
            return Failure("skipped", self._state.stopped)
        return None if budget.starts else Failure("skipped", budget.limiter)

    def _budget(self, step: Step[Any], *, reserve: float = 0.0, min_budget: float = 0.0) -> Budget:
        remaining = None if self._until is None else self._until.remaining()
        return plan_budget(step.limit, remaining, reserve=reserve, min_budget=min_budget)

    def _latest_start(self, step: Step[Any]) -> float:
        """Return the instant after which the deadline leaves too little time for *step*."""
        return math.inf if self._until is None else self._until.at - step.reserve - step.min_budget

    def _has_slot(self, step: Step[Any]) -> bool:
        if step.inline:
            return not self._active
        self._stuck = [task for task in self._stuck if task.is_alive()]
        return len(self._active) < max(1, self._max_parallel - len(self._stuck))

    def _prepare(self, step: Step[Any], budget: Budget, key: str | None, asks: OpenWrite | None = None) -> ActiveStep:
        begun = monotonic()
        own = None if budget.seconds is None else Deadline(begun + budget.seconds)
        context = StepContext(
            inputs=self._inputs,
            results=Results({need: self._state.values[need] for need in step.needs}),
            token=self._token.child(),
            deadline=Deadline.nearest(own, self._until),
            source=self._source,
            idempotency_key=key,
        )
        free = take_place(self._state.notify.run)
        return ActiveStep(step, context, budget, begun, started_after=begun - self._begun, free=free, open_write=asks)

    def _launch(self, active: ActiveStep, call: Callable[[StepContext], Any]) -> None:
        notify, step = self._state.notify, active.step
        self._active.append(active)
        before_pause = functools.partial(notify.step_retried, step.name)
        work = functools.partial(perform, step, call, active.ctx, before_pause)
        if step.inline:
            self._run_inline(active, work)
            return
        leave = self._places.use(step.name)
        try:
            with notify.step_scope(step):
                report = functools.partial(_report_end, self._events, active, work, leave)
                active.task = Task(report, name=f"step-{step.name}")
            active.task.start()
        except BaseException as exc:
            leave()
            if not isinstance(exc, StreamguardError):
                raise
            self._events.put((active, StepEnd(None, exc, monotonic(), cancelled=False)))

    def _run_inline(self, active: ActiveStep, work: Callable[[], StepEnd]) -> None:
        with self._state.notify.step_scope(active.step):
            context = contextvars.copy_context()
        try:
            with alarm(active):
                end = context.run(work)
        except StreamguardError as exc:  # there is no thread for the alarm: nothing ran
            end = StepEnd(None, exc, monotonic(), cancelled=False)
        self._note_cancel()
        self._finish(active, end)

    def _wait(self) -> None:
        for active, end in self._next_events():
            if active in self._active:  # else it was abandoned, and this is its late result
                self._finish(active, end)
        self._cut_overdue(monotonic())

    def _next_events(self) -> Iterator[tuple[ActiveStep, StepEnd]]:
        """Wait for one event, at most until the next instant; then take all others that are there."""
        seconds = self._seconds_to_wait()
        while True:
            try:
                event = take(self._events, seconds)
            except queue.Empty:
                return
            seconds = 0.0
            self._note_cancel()
            if event is not None:
                yield event

    def _seconds_to_wait(self) -> float | None:
        instants = (self._places.next_instant(), *(active.next_instant for active in self._active))
        due = min((instant for instant in instants if instant is not None), default=None)
        return None if due is None else due - monotonic()

    def _cut_overdue(self, now: float) -> None:
        self._note_cancel()
        for active in list(self._active):
            if active.grace_ends is None:
                if active.is_late(now):
                    active.stop(active.budget.limiter, now + GRACE_SECONDS)
            elif now >= active.grace_ends:
                self._leave_behind(active)

    def _leave_behind(self, active: ActiveStep) -> None:
        active.overran = True
        if active.task is not None:
            count_abandoned(active.task, kind="step")
            self._stuck.append(active.task)
        self._finish(active, StepEnd(None, None, monotonic(), cancelled=True))

    def _finish(self, active: ActiveStep, end: StepEnd) -> None:
        self._active.remove(active)
        active.free()
        active.ctx.token.detach()
        failure, step = active.failure(end), active.step
        if failure is None and end.error is not None:
            self._give_up(step, end.error, active.facts(end) if active.open_write is None else active.open_write.facts)
        elif active.open_write is not None:
            self._settle(step, active.open_write, end.value if failure is None else None, overran=active.overran)
        elif failure is None:
            self._succeed(step, end.value, **active.facts(end))
        elif active.leaves_open(failure, end):
            error = active.error(failure, end, self._state.id)
            self._verify(active, OpenWrite(failure, error, active.facts(end)))
        else:
            self._fail(step, failure, active.error(failure, end, self._state.id), **active.facts(end))

    def _verify(self, active: ActiveStep, write: OpenWrite) -> None:
        """Run `verify=`, if there is one and time for it, to find out whether a write that timed out was done."""
        step, budget = active.step, self._budget(active.step)
        if step.verify is None or not budget.starts or self._state.stopped is not None:
            self._settle(step, write, None)
            return
        self._launch(self._prepare(step, budget, active.ctx.idempotency_key, asks=write), step.verify)

    def _settle(self, step: Step[Any], write: OpenWrite, found: object, *, overran: bool = False) -> None:
        facts = {**write.facts, "overran": write.facts["overran"] or overran}
        if found is None:
            self._fail(step, Failure("timeout", "unknown_outcome"), write.error, **facts)
        elif not isinstance(found, Settled):
            kind = type(found).__name__
            self._give_up(step, UsageError(f"step {step.name!r}: verify= must return a Settled or None, got {kind}"), facts)
        elif found.done:
            self._succeed(step, found.value, reason="verified", **facts)
        else:
            self._fail(step, write.failure, write.error, **facts)

    def _succeed(self, step: Step[Any], value: object, **facts: Any) -> None:
        self._state.succeed(step, value, **facts)
        self._done(step)

    def _fail(self, step: Step[Any], failure: Failure, error: BaseException | None = None, **facts: Any) -> None:
        self._state.fail(step, failure.status, failure.reason, error, **facts)
        self._ended_without_value(step)

    def _give_up(self, step: Step[Any], bug: BaseException, facts: Mapping[str, Any]) -> None:
        """End the run because of a bug. `run()` raises it once the other steps have ended."""
        self._bug = self._bug or bug
        self._state.fail_with_bug(step, bug, **facts)
        self._ended_without_value(step)

    def _ended_without_value(self, step: Step[Any]) -> None:
        self._done(step)
        if self._state.stopped is not None:
            self._stop(self._state.stopped)

    def _done(self, step: Step[Any]) -> None:
        self._order.done(step.name)
        self._places.leave(step.name)

    def _note_cancel(self) -> None:
        if self._token.cancelled and self._state.stopped is None:
            self._stop("run_cancelled")

    def _stop(self, reason: StopReason) -> None:
        """Start no further step, and cut the active ones."""
        self._state.stop(reason)
        grace_ends = monotonic() + GRACE_SECONDS
        for active in self._active:
            active.stop(reason, grace_ends)
        self._token.cancel(reason)

    def _abandon(self) -> None:
        self._token.cancel("left")
        for active in self._active:
            active.free()
            if active.task is not None:
                count_abandoned(active.task, kind="step")

    def _raise_bug(self) -> None:
        bug, self._bug = self._bug, None
        if bug is None:
            return
        try:
            raise bug
        finally:
            del bug  # its traceback refers to this frame


def _report_end(
    events: Events,
    active: ActiveStep,
    work: Callable[[], StepEnd],
    leave: Callable[[], None],
) -> None:
    try:
        end = work()
    except BaseException as exc:  # raised by a hook, for example: without an event the run would wait for ever
        end = StepEnd(None, exc, monotonic(), active.ctx.token.cancelled)
    try:
        leave()
        events.put((active, end))
    finally:
        del end  # the traceback of its error refers to this frame
