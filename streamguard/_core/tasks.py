"""The threads of this package: each has a name, a copy of its maker's context, and runs the thread hooks at its end.

A new thread costs nearly as much as a request on a warm connection. So `run_in_worker()` uses a worker that has just
finished another task; a worker waits a tenth of a second for its next one, and then ends.
"""

import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

from ..errors import StreamguardError
from .forks import forks
from .thread_hooks import run_thread_hooks

_IDLE_SECONDS = 0.1

_Mailbox: TypeAlias = "queue.SimpleQueue[_Job]"


class _Job:
    """A function, and a copy of the context that the job is made in."""

    __slots__ = ("_context", "_run")

    def __init__(self, run: Callable[[], object]) -> None:
        self._run: Callable[[], object] | None = run
        self._context: contextvars.Context | None = contextvars.copy_context()

    def forget(self) -> None:
        """Drop what it holds."""
        self._run = self._context = None

    def do(self) -> None:
        """Run the function in its context, once, and then the thread hooks."""
        context, self._context = self._context, None
        try:
            if context is not None:
                context.run(self._do)
        finally:
            del context  # this frame and the next may be in a traceback that outlives them

    def _do(self) -> None:
        run, self._run = self._run, None
        try:
            if run is not None:
                run()
        finally:
            del run
            run_thread_hooks()


class Task:
    """Run *run* in a daemon thread called `streamguard-NAME`, in a copy of the context that the task is made in.

    An exception of *run* is not caught here: it is a bug, and goes to `threading.excepthook`.
    """

    __slots__ = ("_job", "thread")

    def __init__(self, run: Callable[[], object], *, name: str) -> None:
        self._job = _Job(run)
        self.thread = _thread(name, self._job.do)

    def start(self) -> None:
        """Start the thread. Raises StreamguardError if the interpreter cannot start one."""
        try:
            _start(self.thread)
        except StreamguardError:
            self._job.forget()
            raise

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self.thread.is_alive()

    def join(self, seconds: float | None) -> bool:
        """Wait at most *seconds* for the thread to end; return whether it is gone. Never waits for itself."""
        if self.thread is threading.current_thread():
            return False
        if self.thread.ident is not None:
            # Between its first step and the end of start() it cannot be joined; it checks itself whether it is stopped.
            with contextlib.suppress(RuntimeError):
                self.thread.join(seconds)
        return not self.thread.is_alive()


def run_in_worker(run: Callable[[], object]) -> None:
    """Run *run* as a task, in an idle worker if there is one. Raises StreamguardError if a new one cannot be started."""
    _workers.run(_Job(run))


class _Workers:
    """Threads that do one job after the other, and end when no further one comes."""

    def __init__(self) -> None:
        self._idle: list[_Mailbox] = []
        """Those of the waiting threads. Taking one out is a single step of the interpreter; only its taker fills it."""
        self._forks = 0

    def run(self, job: _Job) -> None:
        if self._forks != forks.count:  # these threads have stayed in the parent
            self._idle, self._forks = [], forks.count
        try:
            mailbox = self._idle.pop()
        except IndexError:
            mailbox = queue.SimpleQueue()
            _start(_thread("call", _work, mailbox, self._idle))
        mailbox.put(job)


def _work(mailbox: _Mailbox, idle: list[_Mailbox]) -> None:
    job: _Job | None = mailbox.get()
    while job is not None:
        job.do()
        job = None  # or else it would be kept while this thread waits
        job = _next_job(mailbox, idle)


def _next_job(mailbox: _Mailbox, idle: list[_Mailbox]) -> _Job | None:
    idle.append(mailbox)
    try:
        return mailbox.get(timeout=_IDLE_SECONDS)
    except queue.Empty:
        try:
            idle.remove(mailbox)
        except ValueError:  # taken out in this instant: a job is on its way
            return mailbox.get()
    return None


def _thread(name: str, target: Callable[..., object], *args: object) -> threading.Thread:
    return threading.Thread(target=target, args=args, name=f"streamguard-{name}", daemon=True)


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except RuntimeError as exc:
        raise StreamguardError(f"cannot start the thread {thread.name}: {exc}") from exc


_workers = _Workers()
