"""One supervised process, from its start to its end."""

import threading
from pathlib import Path

import psutil
import pytest

from streamguard import CancelToken, StreamguardError, UsageError, deadline
from streamguard._core import monotonic
from streamguard.dispatch._command.command import iter_command, run_command
from streamguard.dispatch._data.turn_events import Event, Kind

from ...helpers import wait_until
from ..programs import SLACK, alive, group_is_gone, shell


def test_everything_of_a_normal_run() -> None:
    """Output, errors, exit code and the last event of a program that just works."""
    with iter_command(shell("echo out; echo err >&2; exit 0")) as stream:
        events = [*stream]
    assert sorted((event.kind, event.text) for event in events[:-1]) == [("stderr", "err\n"), ("text", "out\n")]
    assert events[-1] == Event.done()
    result = stream.result
    assert (result.ok, result.exit_code, result.signal, result.stopped, result.killed) == (True, 0, None, False, False)
    assert (result.text, result.stdout, result.stderr) == ("out\n", "out\n", "err\n")
    assert [*stream] == []


@pytest.mark.parametrize(("script", "exit_code", "number"), [("exit 3", 3, None), ("kill -9 $$", None, 9)])
def test_a_failing_run(script: str, exit_code: int | None, number: int | None) -> None:
    """The exit code, or the signal, and a reason in words."""
    result = run_command(shell(script))
    assert (result.outcome, result.exit_code, result.signal) == ("failed", exit_code, number)
    assert result.error_code == (f"exit_{exit_code}" if number is None else f"signal_{number}")
    assert result.message


def test_limits_hold_with_no_reader() -> None:
    """The limit fires even if the next event is never read."""
    with iter_command(shell("sleep 60"), idle=0.2) as stream:
        wait_until(lambda: not alive(stream.pid), 5)
        assert [event.kind for event in stream] == [Kind.ERROR, Kind.DONE]
    assert stream.result.limit == "idle"


def test_leaving_a_with_block_stops_it() -> None:
    """Breaking out of the loop inside `with` leaves nothing running."""
    with iter_command(shell("while :; do echo x; sleep 0.01; done")) as stream:
        for _ in stream:
            break
    assert group_is_gone(stream.pid)


def test_a_stream_that_is_dropped_stops_it() -> None:
    """Dropping the last reference to a stream ends its program."""
    stream = iter_command(shell("while :; do echo x; sleep 0.01; done"))
    next(stream)
    group = stream.pid
    del stream
    wait_until(lambda: group_is_gone(group))


def test_the_result_is_not_there_while_it_runs() -> None:
    """Asking too early is a UsageError that says so."""
    with iter_command(shell("sleep 60")) as stream, pytest.raises(UsageError, match="still running"):
        _ = stream.result


def test_a_cancelled_token_starts_and_stops_at_once() -> None:
    """A token that is cancelled before the start ends the run as cancelled."""
    token = CancelToken()
    token.cancel("before")
    begun = monotonic()
    result = run_command(shell("sleep 60"), cancel=token)
    assert (result.outcome, result.reason) == ("cancelled", "before")
    assert monotonic() - begun < SLACK


def test_what_was_to_be_stopped_before_its_start_is_not_started(tmp_path: Path) -> None:
    """A spent deadline, a cancelled token: the outcome is theirs, and the program has done nothing."""
    mark = tmp_path / "mark"
    with deadline(0):
        late = run_command(["touch", str(mark)])
    assert (late.outcome, late.limit, late.stopped, late.exit_code) == ("timeout", "deadline", False, None)
    token = CancelToken()
    token.cancel("early")
    with iter_command(["touch", str(mark)], cancel=token) as stream:
        assert [event.error_code for event in stream] == ["cancelled"]
    assert (stream.result.outcome, stream.result.reason, stream.pid) == ("cancelled", "early", 0)
    assert "not started" in late.message
    assert not mark.exists()


def test_many_at_once_from_many_threads() -> None:
    """Thirty trees that hang, stopped at once, leave nothing: the leak checks are the witness."""
    token = CancelToken()
    results = []

    def run() -> None:
        results.append(run_command(shell("sleep 60 & sleep 60"), cancel=token))

    threads = [threading.Thread(target=run) for _ in range(30)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(psutil.Process().children(recursive=True)) >= 90, 20)
    token.cancel()
    for thread in threads:
        thread.join(20)
    assert [result.outcome for result in results] == ["cancelled"] * 30


def test_a_thread_that_cannot_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be had, the program is ended again, and the error is ours."""

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(StreamguardError, match="cannot start the thread"):
        run_command(shell("sleep 60"))


@pytest.mark.stress
def test_200_hanging_trees_leave_nothing() -> None:
    """200 runs, each of a tree that hangs, one after another: no process, thread or descriptor is left."""
    for _ in range(200):
        result = run_command(shell("sleep 60 & (sleep 60 & wait) & echo hi; wait"), idle=0.02)
        assert result.limit == "idle"
