"""The limits of a command, its outcomes, and the diagnosis of a timeout."""

import json
import signal
import time
from datetime import timedelta

import pytest

from streamguard import CancelToken, deadline
from streamguard._core import bounded_call, monotonic
from streamguard._core.cancel import current_token
from streamguard.dispatch._command.command import iter_command, run_command
from streamguard.dispatch._command.command_clock import FINISHED, CommandClock, CommandLimits, LimitFired
from streamguard.dispatch._command.command_result import Stall
from streamguard.dispatch._data.output_timeout import LATE_SECONDS, Activity
from streamguard.dispatch._data.turn_events import Event, Kind

from ..programs import SLACK, alive, group_is_gone, json_lines, python, shell

SESSION = '{"type":"system","subtype":"init","session_id":"s1"}'
TEXT = '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"Hello"}]}}'
TOOL = '{"type":"assistant","message":{"id":"m2","content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}}'
RESULT = '{"type":"result","subtype":"success","is_error":false,"result":"Hello"}'
STATUS = '{"type":"system","subtype":"status"}'
BUSY = "while True: pass"


def test_idle_fires_at_the_limit_not_before() -> None:
    """A silent program is stopped at its limit; the result has the limit, its value, and the output so far."""
    result = run_command(shell("echo hi; sleep 60"), idle=0.3)
    assert (result.outcome, result.limit, result.limit_seconds, result.error_code) == ("timeout", "idle", 0.3, "timeout")
    assert result.diagnosis is not None
    assert 0.3 <= result.diagnosis.silence < 0.3 + SLACK
    assert result.diagnosis.deferrals == result.deferred_by_cpu == 0
    assert (result.stdout, result.stopped, result.killed, result.signal) == ("hi\n", True, False, signal.SIGTERM)
    assert "no output for 0." in result.message
    assert "idle=0.3" in result.message


def test_output_rearms() -> None:
    """A program that prints in time, for longer than the limit in total, completes."""
    started = monotonic()
    assert run_command(shell("for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done"), idle=1.0).ok
    assert monotonic() - started >= 1.2


def test_cpu_use_defers_to_twice_the_limit() -> None:
    """CPU use defers the firing to twice the limit, not longer; the result says so."""
    result = run_command(python(f"say('hi')\n{BUSY}"), idle=0.6)
    assert (result.outcome, result.limit) == ("timeout", "idle")
    assert result.diagnosis is not None
    assert 1.2 <= result.diagnosis.silence < 1.2 + SLACK
    assert result.diagnosis.activity is Activity.BUSY
    assert result.deferred_by_cpu >= 0.5
    assert "CPU use had deferred it" in result.message


def test_cpu_that_leads_to_output_completes() -> None:
    """A program that uses CPU for 1.5 times the limit completes; the result has the deferral."""
    result = run_command(python("end = time.monotonic() + 0.9\nwhile time.monotonic() < end: pass\nsay('done')"), idle=0.6)
    assert result.ok
    assert result.deferred_by_cpu > 0


def test_first_applies_until_output() -> None:
    """`first` may be longer than `idle`; after the first output `idle` applies."""
    assert run_command(shell("sleep 0.5; echo hi"), first=10, idle=0.2).ok
    result = run_command(shell("sleep 60"), first=0.3, idle=0.1)
    assert (result.limit, result.limit_seconds) == ("first", 0.3)
    assert "there was no output at all" in result.message
    assert run_command(shell("echo hi; sleep 60"), first=10, idle=0.2).limit == "idle"


def test_total_ends_a_chatty_program() -> None:
    """`total` fires whatever the program prints."""
    result = run_command(shell("while :; do echo x; sleep 0.02; done"), idle=5, total=0.4)
    assert (result.limit, result.limit_seconds) == ("total", 0.4)
    assert 0.4 <= result.duration < 0.4 + SLACK
    assert "total=0.4" in result.message


def test_limits_may_be_timedeltas_and_off() -> None:
    """Seconds or timedelta; None, 0 and less are off for silence."""
    assert run_command(shell("sleep 60"), idle=timedelta(milliseconds=200)).limit == "idle"
    assert run_command(shell("sleep 0.3"), idle=0, first=-1).ok


def test_a_surrounding_deadline_applies() -> None:
    """`deadline()` bounds the run, and the result names it."""
    with deadline(0.3):
        result = run_command(shell("sleep 60"), idle=30, total=60)
    assert (result.outcome, result.limit) == ("timeout", "deadline")
    assert "surrounding deadline()" in result.message


def test_the_current_token_stops_it() -> None:
    """A command inside a bounded call is stopped with it."""
    seen = []

    def work() -> None:
        assert current_token() is not None
        with iter_command(shell("echo $$; sleep 60")) as stream:
            seen.append(stream.pid)
            for _ in stream:
                pass

    with pytest.raises(TimeoutError):
        bounded_call(work, limit=0.4, grace=5)
    assert group_is_gone(seen[0])


def test_a_cancel_is_not_a_timeout() -> None:
    """The first reason wins: a cancel is reported as one."""
    token = CancelToken()
    with iter_command(shell("echo hi; sleep 60"), cancel=token, idle=10) as stream:
        next(stream)
        token.cancel("no longer needed")
        events = [*stream]
    assert [(event.kind, event.error_code) for event in events] == [(Kind.DONE, "cancelled")]
    result = stream.result
    assert (result.outcome, result.reason, result.limit, result.evidence) == ("cancelled", "no longer needed", None, None)


@pytest.mark.parametrize("again", [False, True])
def test_an_opening_signal_never_precedes_the_reason(again: bool) -> None:
    """A stop may send another signal before SIGTERM, also a second time; the reason is set first."""
    trap = "trap 'echo hup' HUP; trap '' TERM; echo hi; while :; do sleep 0.02; done"
    with iter_command(shell(trap if again else "echo hi; sleep 60"), idle=10, grace=0.5) as stream:
        next(stream)
        assert stream.stop("SIGHUP", opening=signal.SIGHUP)
        if again:
            assert not stream.stop("too late", opening=signal.SIGHUP)
        result = stream.read()
    assert (result.outcome, result.reason, result.stopped) == ("cancelled", "SIGHUP", True)
    assert result.signal == (signal.SIGKILL if again else signal.SIGHUP)
    assert ("hup" in result.stdout) == again


def test_a_result_line_ends_the_run_of_a_program_that_lingers() -> None:
    """After its result line the program has `linger` seconds to exit; then it is stopped, and the run is complete."""
    started = monotonic()
    result = run_command(json_lines(SESSION, TEXT, RESULT, then="sleep 60"), format="claude", idle=30, linger=0.3)
    assert 0.3 <= monotonic() - started < 0.3 + SLACK
    assert (result.outcome, result.text, result.session_id) == ("completed", "Hello", "s1")
    assert (result.stopped, result.exit_code, result.limit) == (True, None, None)


def test_completion_is_never_revoked_by_a_later_stop() -> None:
    """A cancel after the result changes nothing (T5)."""
    token = CancelToken()
    with iter_command(json_lines(TEXT, RESULT, then="sleep 60"), format="claude", linger=30, cancel=token) as stream:
        assert next(stream).text == "Hello"
        time.sleep(0.3)
        token.cancel()
        assert [event.error_code for event in stream] == [None]
    assert stream.result.ok


def test_a_result_during_the_grace_does_not_undo_the_timeout() -> None:
    """The last output of a stopped program is kept, and does not make the run a success."""
    code = f"""
        signal.signal(signal.SIGTERM, lambda *_: (say({RESULT!r}), sys.exit(0)))
        say({TEXT!r})
        while True: time.sleep(60)
    """
    result = run_command(python(code), format="claude", idle=0.3)
    assert (result.outcome, result.limit, result.exit_code) == ("timeout", "idle", 0)
    assert RESULT in result.stdout


@pytest.mark.parametrize("noise", [STATUS, "not JSON", '{"type":"novel"}'])
def test_signals_do_not_rearm_in_a_format(noise: str) -> None:
    """R3, B154: with a format only real output counts: heartbeats on stdout and lines on stderr do not."""
    script = f"echo '{TEXT}'; while :; do echo '{noise}'; echo chatter >&2; sleep 0.05; done"
    result = run_command(shell(script), format="claude", idle=0.4)
    assert result.limit == "idle"
    assert result.diagnosis is not None
    assert result.diagnosis.last_output_kind == Kind.TEXT
    assert result.diagnosis.uncounted.keys() >= {"stderr"}
    assert result.diagnosis.last_signal_at > result.diagnosis.last_output_at  # type: ignore[operator]
    assert "the last event that is not output was" in result.message


def test_instants_are_seconds_since_the_start() -> None:
    """The instants in the result, in its report and in the argument of `on_stall` count from the start."""
    told: list[Stall] = []
    argv = shell("sleep 0.2; echo one; sleep 0.1; echo two; sleep 60")
    result = run_command(argv, idle=0.5, first=20, on_stall=told.append)
    known = result.diagnosis
    assert known is not None
    assert known.first_output_at is not None
    assert known.last_output_at is not None
    assert 0.2 <= known.first_output_at < known.last_output_at
    assert known.last_output_at + known.silence == pytest.approx(known.lifetime, abs=0.1)
    assert known.lifetime <= result.duration
    assert result.to_dict()["diagnosis"]["first_output_at"] == known.first_output_at
    assert told[0].to_dict()["diagnosis"] == result.to_dict()["diagnosis"]
    silent = run_command(shell("sleep 60"), idle=0.2)
    assert silent.diagnosis is not None
    assert silent.diagnosis.first_output_at is None


def test_a_silent_tool_is_named_and_may_take_longer() -> None:
    """A silent tool call is named in the diagnosis, and may take `tool_timeout` if that is set."""
    argv = json_lines(SESSION, TOOL, then=f"sleep 0.7; echo '{TEXT}'; echo '{RESULT}'")
    assert run_command(argv, format="claude", idle=0.3, tool_timeout=10).ok
    result = run_command(argv, format="claude", idle=0.3)
    assert result.limit == "idle"
    assert result.evidence is not None
    assert result.evidence.tools == ("Bash",)
    assert "Bash" in result.message
    assert run_command(argv, format="claude", idle=0.2, tool_timeout=0.4).limit == "tool"


def test_the_evidence_is_from_before_the_kill() -> None:
    """The result has the end of the output, and the process tree with states from before the kill."""
    result = run_command(shell("echo out; echo err >&2; sleep 60 & sleep 60"), idle=0.3)
    assert result.evidence is not None
    assert (result.evidence.stdout, result.evidence.stderr) == ("out\n", "err\n")
    assert [(info.name, info.state) for info in result.evidence.processes] == [
        ("sh", "sleeping"),
        ("sleep", "sleeping"),
        ("sleep", "sleeping"),
    ]


def test_on_stall_runs_before_the_stop() -> None:
    """`on_stall` runs while the process is alive; the stop follows."""
    seen: list[tuple[Stall, bool]] = []

    def look(stall: Stall) -> None:
        time.sleep(0.2)
        seen.append((stall, alive(stall.pid)))

    result = run_command(shell("echo hi; sleep 60"), idle=0.2, on_stall=look)
    ((stall, living),) = seen
    assert living
    assert (stall.fired.limit, stall.evidence.stdout) == ("idle", "hi\n")
    assert json.loads(json.dumps(stall.to_dict()))["limit"] == "idle"
    assert result.limit == "idle"


def test_on_stall_is_for_limits_only() -> None:
    """A run that completes, or is cancelled, does not call `on_stall`."""
    calls: list[Stall] = []
    run_command(shell("echo hi"), idle=5, on_stall=calls.append)
    run_command(json_lines(RESULT, then="sleep 60"), format="claude", linger=0.1, on_stall=calls.append)
    with iter_command(shell("sleep 60"), on_stall=calls.append) as stream:
        stream.stop()
    assert calls == []


def test_an_on_stall_that_raises_does_not_keep_the_program_alive(caplog: pytest.LogCaptureFixture) -> None:
    """An exception of `on_stall` is logged, and the program is stopped."""

    def broken(_stall: Stall) -> None:
        raise ValueError("broken")

    result = run_command(shell("sleep 60"), idle=0.2, on_stall=broken)
    assert (result.limit, result.stopped) == ("idle", True)
    assert "on_stall failed" in caplog.text


def test_the_last_event_of_a_timeout_is_done() -> None:
    """After a timeout come `error`, with sentence and diagnosis, and one `done`."""
    with iter_command(shell("echo hi; sleep 60"), idle=0.2) as stream:
        text, error, done = stream
    assert (text.text, error.kind, error.error_code, done) == ("hi\n", Kind.ERROR, "timeout", Event.done("timeout"))
    assert error.text == stream.result.message
    assert error.data["diagnosis"]["timeout"] == 0.2


def test_the_result_is_plain_data() -> None:
    """`to_dict()` is JSON."""
    result = run_command(shell("echo hi; sleep 60"), idle=0.2, total=timedelta(days=10_000))
    plain = result.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    total = run_command(shell("sleep 60"), total=0.1).to_dict()
    assert json.loads(json.dumps(total, allow_nan=False))["diagnosis"]["timeout"] == 0.1


def test_five_megabytes_without_a_newline() -> None:
    """A line without an end is read, counted and kept."""
    result = run_command(shell("head -c 5000000 /dev/zero | tr '\\0' x"), idle=10)
    assert (result.ok, len(result.text), len(result.stdout)) == (True, 5_000_000, 65536)


def test_half_lines_and_bad_bytes() -> None:
    """Incomplete lines and invalid UTF-8 are kept."""
    result = run_command(shell("printf 'a\\377b\\nhalf'; printf 'err' >&2; sleep 60"), idle=0.3)
    assert (result.text, result.stdout, result.stderr) == ("a\ufffdb\nhalf", "a\ufffdb\nhalf", "err")


def test_at_one_instant_the_wider_limit_wins() -> None:
    """Pure: total before deadline before the phase's limit."""
    clock = CommandClock(CommandLimits(first=5, idle=5, total=5, deadline=5), 0)
    fired = clock.due(5, Activity.IDLE, None)
    assert isinstance(fired, LimitFired)
    assert fired.limit == "total"


def test_the_clock_of_a_finished_run_only_lingers() -> None:
    """Pure: after the result neither `first` nor `idle` fires."""
    clock = CommandClock(CommandLimits(first=1, idle=1, linger=3), 0)
    clock.observe(0.5, Event.done(), counts=False)
    assert clock.due(3, Activity.IDLE, None) == 0.5
    assert clock.due(3.5, Activity.IDLE, None) == FINISHED


def test_a_late_wake_up_is_excused_for_first_and_idle_alike() -> None:
    """Pure: the delay and 0.25 s more are subtracted from both, not from `total`."""
    clock = CommandClock(CommandLimits(first=5, total=20), 0)
    clock.excuse(9, 4)
    assert clock.due(9, Activity.IDLE, None) == LATE_SECONDS
    clock = CommandClock(CommandLimits(idle=5, total=9), 0)
    clock.excuse(9, 4)
    assert isinstance(clock.due(8.9, Activity.IDLE, None), float)
    fired = clock.due(9, Activity.IDLE, None)
    assert isinstance(fired, LimitFired)
    assert fired.limit == "total"


def test_a_frame_satisfies_first_only_if_told() -> None:
    """Pure: a start-up limit ends at any frame of the format, not at noise (R26)."""
    for frames, limit in ((True, None), (False, "first")):
        clock = CommandClock(CommandLimits(first=2, frames=frames), 0)
        clock.observe(1, Event(kind=Kind.UNKNOWN), counts=False)
        clock.observe(1, Event(kind=Kind.STDERR), counts=False)
        assert clock.due(1.5, Activity.IDLE, None) == 0.5
        clock.observe(1, Event(kind=Kind.SESSION), counts=False)
        due = clock.due(2, Activity.IDLE, None)
        assert (due.limit if isinstance(due, LimitFired) else None) == limit
