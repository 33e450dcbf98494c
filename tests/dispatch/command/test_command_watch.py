"""What the watch of a command counts, keeps and reports."""

import json
import signal

from streamguard.dispatch._command.command import iter_command, run_command
from streamguard.dispatch._data.turn_events import Kind

from ..programs import json_lines, shell

TEXT = '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"Hello"}]}}'


def test_a_stop_without_a_result_event_is_named() -> None:
    """B138: three lines, then silence: killed for idle, with the last line and the seconds in the report."""
    lines = [TEXT, '{"type":"system","subtype":"status"}', '{"type":"rate_limit_event"}']
    result = run_command(json_lines(*lines, then="sleep 60"), format="claude", idle=0.3)
    assert result.limit == "idle"
    assert result.diagnosis is not None
    assert result.diagnosis.silence >= 0.3
    assert result.stdout.splitlines()[-1] == lines[-1]


def test_exit_0_without_the_final_line_is_incomplete() -> None:
    """B139: exit code 0 is not enough where a final line was expected."""
    assert run_command(shell("echo one; echo two"), final="^DONE").outcome == "incomplete"
    assert run_command(json_lines(TEXT, TEXT), format="claude").outcome == "incomplete"
    assert run_command(shell("echo one; echo DONE 2"), final="^DONE").outcome == "completed"


def test_stderr_counts_for_plain_commands() -> None:
    """B140: chatter on stderr keeps a plain command alive, unless stdout_only; the limit is named apart from the signal."""
    script = "for i in 1 2 3 4 5 6 7 8; do echo warn >&2; sleep 0.1; done"
    assert run_command(shell(script), idle=0.6).ok
    result = run_command(shell(script), idle=0.4, stdout_only=True)
    assert (result.outcome, result.limit, result.signal) == ("timeout", "idle", signal.SIGTERM)


def test_a_mode_that_prints_at_the_end_gets_a_hint() -> None:
    """B141: nothing at all came: the message speaks of a streaming mode; with only `total` it completes."""
    script = "sleep 0.8; echo result"
    assert "streaming output mode" in run_command(shell(script), idle=0.3).message
    assert run_command(shell(script), idle=None, total=20).text == "result\n"


def test_carriage_returns_are_progress() -> None:
    """B146: a progress display without a single newline is output, and splits into records."""
    script = "for i in 1 2 3 4 5 6 7 8; do printf '%s0%%\\r' $i; sleep 0.1; done"
    with iter_command(shell(script), idle=0.6, ignore="no such line") as stream:
        texts = [event.text for event in stream if event.kind is Kind.TEXT]
    assert texts == [f"{i}0%\r" for i in range(1, 9)]
    assert run_command(shell(script), idle=0.6).ok


def test_output_before_the_timeout_is_kept() -> None:
    """B147: both pipes so far are in the result, as text."""
    result = run_command(shell("echo out; echo err >&2; sleep 60"), idle=0.3)
    assert (result.stdout, result.stderr, result.text) == ("out\n", "err\n", "out\n")


def test_a_heartbeat_that_says_still_running() -> None:
    """B153: with a pattern heartbeats do not count; without one they do, and `total` bounds them."""
    script = 'i=0; while :; do i=$((i+1)); echo "[${i}s] agent still running"; sleep 0.05; done'
    assert run_command(shell(script), idle=0.4, ignore=r"^\[\d+s\] agent still running$").limit == "idle"
    assert run_command(shell(script), idle=5, total=0.6).limit == "total"


def test_stderr_chatter_never_defers_a_member() -> None:
    """B154: with a format stderr does not count; the diagnosis has both instants. Progress without stderr goes on."""
    script = f"echo '{TEXT}'; while :; do echo warning >&2; sleep 0.05; done"
    result = run_command(shell(script), format="claude", idle=0.4)
    assert result.limit == "idle"
    known = result.diagnosis
    assert known is not None
    assert known.last_output_at is not None
    assert known.last_signal_at is not None
    assert (known.last_signal_kind, known.last_signal_at > known.last_output_at) == (Kind.STDERR, True)
    quick = json.loads(TEXT)
    progress = "".join(f"echo '{json.dumps({**quick, 'n': n})}'; sleep 0.1; " for n in range(8))
    assert run_command(shell(progress), format="claude", idle=0.6).outcome == "incomplete"


def test_idle_and_total_are_both_on() -> None:
    """B155: a program that is silent after its start ends at idle, a chatty and endless one at total."""
    assert run_command(shell("echo start; sleep 60"), idle=0.3, total=30).limit == "idle"
    assert run_command(shell("while :; do echo x; sleep 0.02; done"), idle=30, total=0.3).limit == "total"
