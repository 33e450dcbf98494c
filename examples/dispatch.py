"""Three scripted agents on one prompt, under one output timeout of a second each.

`make example-dispatch` runs it: one agent hangs while heartbeats flow and is stopped at the timeout, one uses CPU without
output and is stopped at twice the timeout, the third one answers. For each, what the response, the turn, the queue and the
routing signal say is printed side by side; it exits with 0 only if they agree, and nothing of the agents is left.
"""

import json
import sys

import psutil

from streamguard.dispatch import CommandMember, Dispatcher, DispatchQueue, TurnOutcome

TIMEOUT = 1.0
LATEST = 0.1
"""How long after its limit a stop may come."""

SESSION = json.dumps({"type": "system", "subtype": "init", "session_id": "a-session"})
WORDS = json.dumps({"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "Let me see. "}]}})
BEAT = json.dumps({"type": "system", "subtype": "status"})
RESULT = json.dumps({"type": "result", "subtype": "success", "is_error": False})

HANGS = f"echo '{SESSION}'; echo '{WORDS}'; while :; do echo '{BEAT}'; sleep 0.1; done"
PIECES = [f"sleep 0.4; echo '{WORDS}'".replace('"m"', f'"m{number}"') for number in range(4)]
ANSWERS = "; ".join((f"echo '{SESSION}'", *PIECES, f"echo '{RESULT}'"))
BURNS = "import os; os.write(1, b'begun\\n')\nwhile True: pass"

MEMBERS = [
    CommandMember("hangs", ["sh", "-c", HANGS], format="claude"),
    CommandMember("burns", [sys.executable, "-I", "-S", "-c", BURNS]),
    CommandMember("answers", ["sh", "-c", ANSWERS], format="claude"),
]
TIMED_OUT = ("failed/timeout", "failed/timeout", "failed", "provider_timeout")
SUCCEEDED = ("completed/completed", "succeeded/succeeded", "succeeded", "completed")
EXPECTED = {"hangs": (TIMED_OUT, TIMEOUT), "burns": (TIMED_OUT, 2 * TIMEOUT), "answers": (SUCCEEDED, None)}


def accounts(turn: TurnOutcome) -> tuple[str, str, str, str]:
    """Return what response, turn, queue and routing signal say."""
    return (f"{turn.status}/{turn.reason}", f"{turn.turn_status}/{turn.turn_reason}", turn.queue_status, turn.signal)


def main() -> int:
    """Run the dispatch, show its events and outcome, and check them."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with Dispatcher() as dispatcher:
        with dispatcher.stream("example", MEMBERS, "Review this.", output_timeout=TIMEOUT) as stream:
            for event in stream:
                if event.event.kind not in ("status", "session"):
                    print(f"{event.member:>8}  {event.event.kind:6}  {event.event.text.strip()}")
        broken = [complaint for turn in stream.outcome.turns for complaint in check(turn)]
        broken += check_queue(dispatcher)
    left = {process.pid for process in psutil.Process().children(recursive=True)} - before
    broken += [f"{len(left)} processes are left"] if left else []
    for complaint in broken:
        print(f"WRONG: {complaint}")
    return 1 if broken else 0


def check(turn: TurnOutcome) -> list[str]:
    """Show one turn; return what is not as it must be."""
    wanted, limit = EXPECTED[turn.member]
    silence = None if turn.diagnosis is None else turn.diagnosis["silence"]
    print(f"\n{turn.member}: {turn.message or 'it answered.'}")
    for name, said in zip(("response", "turn", "queue", "signal"), accounts(turn), strict=True):
        print(f"    {name:8}  {said}")
    if turn.diagnosis is not None:
        print(f"    silence   {silence:.3f} s, {turn.diagnosis['activity']}, deferred {turn.diagnosis['deferrals']} times")
    broken = [] if accounts(turn) == wanted else [f"{turn.member} was to be {wanted}"]
    if limit is not None and (silence is None or not limit <= silence < limit + LATEST):
        broken.append(f"{turn.member} was to be stopped at {limit} s, within {LATEST} s")
    return broken


def check_queue(dispatcher: Dispatcher) -> list[str]:
    """Run the same as an entry of a queue; return what is not as it must be."""
    with DispatchQueue(dispatcher, MEMBERS) as queue:
        record = queue.wait(queue.submit("queued", list(EXPECTED), "Review this.", output_timeout=TIMEOUT))
    print(f"\nThe same as an entry of the queue: {record.status}/{record.reason}, {record.outcomes}")
    wanted = {member: accounts[2] for member, (accounts, _) in EXPECTED.items()}
    return [] if (record.status, record.reason, record.outcomes) == ("failed", "timeout", wanted) else ["the queue's entry"]


if __name__ == "__main__":
    sys.exit(main())
