"""A forked child cannot use its parent's stream, and cannot harm it."""

import os

import pytest

from ..helpers import FORKING, Serve, run_script

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")

ACTS = {
    "next": "refused(lambda: next(stream)); refused(lambda: next(stream))",
    "open": "refused(stream.open); refused(lambda: stream.open(until='first'))",
    "with": "refused(stream.__enter__)",
    "read": "refused(stream.read)",
    "close": "stream.close(); stream.close(); stream.__exit__(None, None, None)",
    "cancel": "stream.cancel(); token.cancel()",
    "look": "stream.text, stream.message, stream.report, stream.response, repr(stream)",
    "collect": "global stream; del stream; gc.collect()",
    "exit": "pass",
}


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_whatever_a_child_does_the_parents_stream_goes_on(streamguard_gateway: Serve, tls: bool) -> None:
    """next() is refused in the child; its close, cancel, collection and exit close nothing of the parent's."""
    gateway = streamguard_gateway("loop forever\ntick\nwait 0.01\nendloop", tls=tls)
    acts = "".join(f"def {name}_():\n    {code}\nassert in_child({name}_)\nnext(stream)\n" for name, code in ACTS.items())
    output = run_script(
        f"""{FORKING}
token = CancelToken()
stream = guarded_stream("GET", sys.argv[1], verify=sys.argv[2] or None, cancel=token)
next(stream)
{acts}
numbers = [int(next(stream).text) for _ in range(50)]
assert numbers == list(range(numbers[0], numbers[0] + 50)), numbers
print(stream.report.outcome)
stream.close()
""",
        gateway.url,
        gateway.ca if tls else "",
    )
    assert output == "running\n"
    assert gateway.wait_left().how == "fin"
    assert gateway.connections == 1


def test_a_fork_while_another_thread_is_in_next(streamguard_gateway: Serve) -> None:
    """The child is refused at once, though at the fork another thread held the stream."""
    gateway = streamguard_gateway("chat hello\nwait 0.7\nchat world\nfinish\ndone")
    output = run_script(
        FORKING
        + """
stream = guarded_stream("GET", sys.argv[1])
texts = []
reader = threading.Thread(target=lambda: texts.extend(chunk.text for chunk in stream))
reader.start()
wait_for(lambda: texts)
wait_blocked("get")
def child():
    for action in (lambda: next(stream), stream.open, stream.read, stream.__enter__):
        refused(action)
    stream.close()
    stream.report
assert in_child(child)
reader.join()
print("".join(texts), stream.report.outcome)
""",
        gateway.url,
    )
    assert output == "helloworld completed\n"


def test_a_fork_inside_a_step(streamguard_gateway: Serve) -> None:
    """A function of the caller's forks and returns no chunk in the child: the step is refused there, without a wait."""
    gateway = streamguard_gateway("chat hello\nwait 0.7\nchat world\nfinish\ndone")
    output = run_script(
        FORKING
        + """
pids = []
def decode(event):
    if not pids:
        pids.append(os.fork())
        if not pids[0]:
            return None
    return event.data
stream = guarded_stream("GET", sys.argv[1], decode=decode, idle=60)
try:
    next(stream)
except UsageError as error:
    assert "parent" in str(error), error
    sys.exit(7)
if not pids[0]:
    sys.exit("not refused")
print(os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]), len(list(stream)))
""",
        gateway.url,
    )
    assert output == "7 3\n"


def test_a_child_may_have_streams_of_its_own(streamguard_gateway: Serve) -> None:
    """A stream made in the child works there, and one that the parent made but never started is refused there."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    output = run_script(
        FORKING
        + """
unstarted = guarded_stream("GET", sys.argv[1])
def child():
    refused(lambda: next(unstarted))
    assert guarded_stream("GET", sys.argv[1]).read() == "hello"
assert in_child(child)
print(unstarted.read())
""",
        gateway.url,
    )
    assert output == "hello\n"
    assert len(gateway.requests) == 2
