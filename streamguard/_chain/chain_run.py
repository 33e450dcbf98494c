"""One run of a chain: start what is ready, wait for whatever comes first, settle each step once.

All of it happens in the caller's thread, but for the steps themselves. Whatever ends puts an event into one queue; the
caller's thread waits on that queue, and never longer than until the next limit.
"""

import contextvars
import functools
import graphlib
import queue
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._core.bounded import GRACE_SECONDS, left_behind
from .._core.cancel import CancelToken, current_token
from .._core.clock import monotonic
from .._core.deadline import Deadline, deadline
from .._core.pump import Feed, Pump
from .._core.waits import take
from ..errors import StreamguardError, UsageError
from ..telemetry.pools import take_place
from .active_step import Running, Unsettled, alarm, budget_facts
from .attempts import Ended, perform
from .chain_report import StepReport
from .context import Results, SessionSource, StepContext
from .failure_reasons import Fault
from .run_state import Ledger, Stop
from .step import Settled, Step
from .step_status import Budget, plan_budget

__all__ = ["Run"]


class Run:
    """The work of one `Chain.run()`.

    steps:        by name, in the order in which they were declared.
    order:        their order by needs, prepared.
    until:        the deadline, or None.
    parent:       the caller's token, or None: the run works under a child of it.
    max_parallel: steps at work at the same time. A thread that was left behind keeps its slot, but never the last one: it
                  must not keep the run waiting.
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
        ledger: Ledger,
    ) -> None:
        self._steps, self._order, self._inputs = steps, order, inputs
        self._until, self._source, self._max_parallel = until, source, max_parallel
        self._ledger = ledger
        self._token = CancelToken() if parent is None else parent.child()
        self._events: queue.SimpleQueue[tuple[Running, Ended] | None] = queue.SimpleQueue()
        self._positions = {name: position for position, name in enumerate(steps)}
        self._ready: list[str] = []
        self._waiting: set[str] = set()
        """Those that are ready, and wait for a slot: they are judged again when there is one."""
        self._running: list[Running] = []
        self._stuck: list[Pump[None]] = []
        self._bug: BaseException | None = None
        self._begun = monotonic()

    def go(self) -> None:
        """Run all steps into the ledger. Raises only a bug of a step's, as itself.

        Sets the current token and the ambient deadline: to be called in a context of its own.
        """
        current_token.set(self._token)
        unregister = self._token.on_cancel(functools.partial(self._events.put, None))
        try:
            with deadline(self._until):
                self._work_through()
        except BaseException:  # Ctrl-C, or whatever a signal handler raised: let go of the steps, and do not wait for them
            self._let_go()
            raise
        finally:
            unregister()
            self._token.detach()
        self._raise_bug()

    def _work_through(self) -> None:
        self._start_ready()
        while self._running or self._ready:
            self._wait()
            self._start_ready()

    def _start_ready(self) -> None:
        while self._start_one():
            pass

    def _start_one(self) -> bool:
        """Start, or settle unstarted, the first step for which that can be done; return whether there was one."""
        self._note_cancel()
        if self._order.is_active():
            self._ready = sorted([*self._ready, *self._order.get_ready()], key=self._positions.__getitem__)
        for name in self._ready:
            step = self._steps[name]
            if self._begin(step):
                return True
            if step.inline:
                return False  # it waits to be alone: nothing may slip in before it
        return False

    def _begin(self, step: Step[Any]) -> bool:
        has_slot = self._has_slot(step)
        if step.name in self._waiting and not has_slot and self._ledger.stopped is None:
            return False
        budget = self._budget(step, reserve=step.reserve, min_budget=step.min_budget)
        obstacle = self._obstacle(step, budget)
        if obstacle is None and not has_slot:
            self._waiting.add(step.name)
            return False
        self._ready.remove(step.name)
        if obstacle is not None:
            self._fail(step, obstacle, **budget_facts(step, budget))
        else:
            key = uuid.uuid4().hex if step.idempotency_key else None
            self._ledger.tell.step_started(step, budget)
            self._launch(self._prepare(step, budget, key), step.fn)
        return True

    def _obstacle(self, step: Step[Any], budget: Budget) -> Fault | None:
        """Return how the step ends without having started, if anything is in its way."""
        if self._ledger.stopped == "run_cancelled":
            return Fault("cancelled", "run_cancelled")
        missing = [self._ledger.reports[need] for need in step.needs if need not in self._ledger.values]
        if any(report.reason != "critical_failed" for report in missing):
            return Fault("skipped", "dependency_failed")
        if self._ledger.stopped is not None:
            return Fault("skipped", self._ledger.stopped)
        return None if budget.starts else Fault("skipped", budget.limiter)

    def _budget(self, step: Step[Any], *, reserve: float = 0.0, min_budget: float = 0.0) -> Budget:
        remaining = None if self._until is None else self._until.remaining()
        return plan_budget(step.limit, remaining, reserve=reserve, min_budget=min_budget)

    def _has_slot(self, step: Step[Any]) -> bool:
        if step.inline:
            return not self._running
        self._stuck = [pump for pump in self._stuck if pump.thread.is_alive()]
        return len(self._running) < max(1, self._max_parallel - len(self._stuck))

    def _prepare(self, step: Step[Any], budget: Budget, key: str | None) -> Running:
        own = None if budget.seconds is None else Deadline.after(budget.seconds)
        until = min((d for d in (own, self._until) if d is not None), default=None)
        context = StepContext(
            inputs=self._inputs,
            results=Results({need: self._ledger.values[need] for need in step.needs}),
            token=self._token.child(),
            until=until,
            source=self._source,
            idempotency_key=key,
        )
        begun = monotonic()
        return Running(step, context, budget, until, begun=begun, started_after=begun - self._begun)

    def _launch(self, running: Running, call: Callable[[StepContext], Any]) -> None:
        tell, step = self._ledger.tell, running.step
        self._running.append(running)
        running.free = take_place(tell.run)
        retrying = functools.partial(tell.step_retried, step.name)
        work = functools.partial(perform, step, call, running.ctx, running.until, retrying)
        if step.inline:
            with tell.step_scope(step):
                context = contextvars.copy_context()
            try:
                with alarm(running):
                    ended = context.run(work)
            except StreamguardError as exc:  # no thread for the alarm: nothing was run
                ended = Ended(None, exc, monotonic(), cancelled=False)
            self._note_cancel()
            self._finish(running, ended)
            return
        with tell.step_scope(step):
            report = functools.partial(_report_end, self._events, running, work)
            running.pump = Pump(report, running.ctx.token, name=f"step-{step.name}")
        try:
            running.pump.start()
        except StreamguardError as exc:
            self._events.put((running, Ended(None, exc, monotonic(), cancelled=False)))

    def _wait(self) -> None:
        for running, ended in self._next_events():
            if running in self._running:  # else it was left behind, and this is its late result
                self._finish(running, ended)
        self._cut_overdue(monotonic())

    def _next_events(self) -> Iterator[tuple[Running, Ended]]:
        """Wait for one event, but not beyond the next instant; then take whatever else is there."""
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
        instants = (running.next_instant for running in self._running)
        due = min((instant for instant in instants if instant is not None), default=None)
        return None if due is None else due - monotonic()

    def _cut_overdue(self, now: float) -> None:
        self._note_cancel()
        for running in list(self._running):
            if running.grace_ends is not None and now >= running.grace_ends:
                self._leave_behind(running)
            elif running.until is not None and now >= running.until.at:
                running.stop(running.budget.limiter, now + GRACE_SECONDS)

    def _leave_behind(self, running: Running) -> None:
        running.overran = True
        if running.pump is not None:
            left_behind(running.pump, kind="step")
            self._stuck.append(running.pump)
        self._finish(running, Ended(None, None, monotonic(), cancelled=True))

    def _finish(self, running: Running, ended: Ended) -> None:
        self._running.remove(running)
        running.free()
        running.ctx.token.detach()
        fault, step = running.fault(ended), running.step
        if fault is None and ended.failure is not None:
            self._give_up(step, ended.failure, running.facts(ended) if running.settles is None else running.settles.facts)
        elif running.settles is not None:
            self._settle(step, running.settles, ended.value if fault is None else None, overran=running.overran)
        elif fault is None:
            self._succeed(step, ended.value, **running.facts(ended))
        elif running.is_unsettled(fault, ended):
            self._ask(running, Unsettled(fault, ended.failure, running.facts(ended)))
        else:
            self._fail(step, fault, ended.failure, **running.facts(ended))

    def _ask(self, running: Running, unsettled: Unsettled) -> None:
        """Ask the step's `verify=`, if there is one and time for it, what became of a write that timed out."""
        step, budget = running.step, self._budget(running.step)
        if step.verify is None or not budget.starts or self._ledger.stopped is not None:
            self._settle(step, unsettled, None)
            return
        asking = self._prepare(step, budget, running.ctx.idempotency_key)
        asking.settles = unsettled
        self._launch(asking, step.verify)

    def _settle(self, step: Step[Any], unsettled: Unsettled, found: object, *, overran: bool = False) -> None:
        facts = {**unsettled.facts, "overran": unsettled.facts["overran"] or overran}
        if found is None:
            self._fail(step, Fault("timeout", "unknown_outcome"), unsettled.failure, **facts)
        elif not isinstance(found, Settled):
            kind = type(found).__name__
            bug = UsageError(f"verify= of step {step.name!r} returns a Settled or None, not {kind}")
            self._give_up(step, bug, facts)
        elif found.done:
            self._succeed(step, found.value, reason="verified", **facts)
        else:
            self._fail(step, unsettled.fault, unsettled.failure, **facts)

    def _succeed(self, step: Step[Any], value: object, **facts: Any) -> None:
        self._ledger.succeed(step, value, **facts)
        self._order.done(step.name)

    def _fail(self, step: Step[Any], fault: Fault, error: BaseException | None = None, **facts: Any) -> None:
        self._ledger.fail(step, fault.status, fault.reason, error, **facts)
        self._ended_without_value(step)

    def _give_up(self, step: Step[Any], bug: BaseException, facts: Mapping[str, Any]) -> None:
        """End the run for a bug: it is raised once the other steps are gone."""
        self._bug = self._bug or bug
        report = StepReport(
            name=step.name,
            status="error",  # without a reason: a bug has no word
            critical=step.critical,
            limit=step.limit,
            error_type=type(bug).__name__,  # and not the bug itself: the ledger is among its frames
            **facts,
        )
        self._ledger.reports[step.name] = report
        self._ledger.tell.step_finished(report)
        self._ledger.stop("critical_failed")
        self._ended_without_value(step)

    def _ended_without_value(self, step: Step[Any]) -> None:
        self._order.done(step.name)
        if self._ledger.stopped is not None:
            self._stop(self._ledger.stopped)

    def _note_cancel(self) -> None:
        if self._token.cancelled and self._ledger.stopped is None:
            self._stop("run_cancelled")

    def _stop(self, reason: Stop) -> None:
        """Let nothing further start, and cut what is at work."""
        self._ledger.stop(reason)
        grace_ends = monotonic() + GRACE_SECONDS
        for running in self._running:
            running.stop(reason, grace_ends)
        self._token.cancel(reason)

    def _let_go(self) -> None:
        self._token.cancel("left")
        for running in self._running:
            running.free()
            if running.pump is not None:
                left_behind(running.pump, kind="step")

    def _raise_bug(self) -> None:
        bug, self._bug = self._bug, None
        if bug is None:
            return
        try:
            raise bug
        finally:
            del bug  # its traceback refers to this frame


def _report_end(
    events: "queue.SimpleQueue[tuple[Running, Ended] | None]",
    running: Running,
    work: Callable[[], Ended],
    _feed: Feed,
) -> None:
    try:
        ended = work()
    except BaseException as exc:  # a hook's, say: without a last word the run would wait for ever
        ended = Ended(None, exc, monotonic(), running.ctx.token.cancelled)
    try:
        events.put((running, ended))
    finally:
        del ended  # the traceback of its failure refers to this frame
