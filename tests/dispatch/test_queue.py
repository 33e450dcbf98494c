"""The durable queue: order, slots, chains, pauses, retries, and several processes on one store."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from streamguard import UsageError
from streamguard.dispatch import CallableMember, Dispatcher, DispatchQueue, TurnContext
from streamguard.dispatch._records.queue_table import QueueTable
from streamguard.dispatch._records.records import RecordStore
from streamguard.dispatch._records.safe_writes import RecordsError

from ..helpers import wait_until
from .scripted import Scripted, hangs, says
from .stores import Store

pytestmark = pytest.mark.timeout(180)  # PostgreSQL may have to be installed first

MakeQueue = Callable[..., DispatchQueue]


class Gate:
    """A member whose turns wait until they are let through; it notes who runs when."""

    def __init__(self, name: str) -> None:
        self.member = CallableMember(name, self._run)
        self.running: list[str] = []
        self.begun: list[str] = []
        self.most = 0
        self._open: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def let(self, *prompts: str) -> None:
        for prompt in prompts:
            self._event(prompt).set()

    def _event(self, prompt: str) -> threading.Event:
        with self._lock:
            return self._open.setdefault(prompt, threading.Event())

    def _run(self, prompt: str, context: TurnContext) -> str:
        with self._lock:
            self.begun.append(prompt)
            self.running.append(prompt)
            self.most = max(self.most, len(self.running))
        unregister = context.token.on_cancel(self._event(prompt).set)
        self._event(prompt).wait(20)
        unregister()
        with self._lock:
            self.running.remove(prompt)
        return f"answer to {prompt}"


@pytest.fixture
def make_queue(open_store: Store) -> Iterator[MakeQueue]:
    """Return a factory: a URL and members, a started queue with a dispatcher and a store of its own."""
    with ExitStack() as stack:

        def make(url: str | None, *members: Any, start: bool = True, **options: Any) -> DispatchQueue:
            dispatcher = stack.enter_context(Dispatcher(open_store(url, timeout=10)))
            queue = DispatchQueue(dispatcher, members, **{"poll": 0.05, **options})
            stack.callback(queue.close)
            return queue.start() if start else queue

        yield make


def test_an_entry_is_run_and_recorded(records_url: str | None, make_queue: MakeQueue) -> None:
    """An entry is queued, then runs, then is over, with the outcome of each member; its answer is on record."""
    queue = make_queue(records_url, says("a", "x"), Scripted("b", [OSError("no")]), start=False)
    entry = queue.submit("c", ["a", "b"], "p", output_timeout=5)
    assert queue.entry(entry).status == "queued"
    queue.start()
    record = queue.wait(entry, 20)
    assert (record.status, record.reason) == ("failed", "provider_error")
    assert record.outcomes == {"a": "succeeded", "b": "failed"}
    found = {response.member: response.text for response in queue.dispatcher.records.responses(entry)}
    assert found == {"a": "x", "b": ""}


def test_entries_of_a_conversation_keep_their_order(records_url: str | None, make_queue: MakeQueue) -> None:
    """Order and per-slot exclusion: entries for one member run one at a time, in the order they were submitted."""
    gate = Gate("a")
    queue = make_queue(records_url, gate.member)
    entries = [queue.submit("c", ["a"], f"p{number}") for number in range(4)]
    gate.let("p3", "p2", "p1", "p0")
    for entry in entries:
        assert queue.wait(entry, 20).status == "succeeded"
    assert gate.begun == ["p0", "p1", "p2", "p3"]
    assert gate.most == 1


def test_a_slot_is_not_taken_twice_but_others_go_on(records_url: str | None, make_queue: MakeQueue) -> None:
    """An entry for another member starts beside the first; one that shares a member waits, and keeps later ones waiting."""
    a, b = Gate("a"), Gate("b")
    queue = make_queue(records_url, a.member, b.member)
    first = queue.submit("c", ["a"], "first")
    queue.submit("c", ["b"], "beside")
    shared = queue.submit("c", ["a", "b"], "shared")
    later = queue.submit("c", ["b"], "later")
    wait_until(lambda: a.running == ["first"] and b.running == ["beside"])
    b.let("beside", "later")
    wait_until(lambda: not b.running)
    time.sleep(0.2)
    assert (a.begun, b.begun) == (["first"], ["beside"])
    assert (queue.entry(shared).status, queue.entry(later).status) == ("queued", "queued")
    a.let("first", "shared")
    b.let("shared")
    assert queue.wait(later, 20).status == "succeeded"
    assert (a.begun, b.begun) == (["first", "shared"], ["beside", "shared", "later"])
    assert queue.entry(first).status == "succeeded"


def test_conversations_do_not_wait_for_each_other(make_queue: MakeQueue) -> None:
    """One member serves several conversations at once, up to `at_once` entries in all."""
    gate = Gate("a")
    queue = make_queue(None, gate.member, at_once=2)
    entries = [queue.submit(f"c{number}", ["a"], f"p{number}") for number in range(3)]
    wait_until(lambda: len(gate.running) == 2)
    time.sleep(0.15)
    assert sorted(gate.running) == ["p0", "p1"]
    gate.let("p0", "p1", "p2")
    assert [queue.wait(entry, 20).status for entry in entries] == ["succeeded"] * 3


def test_a_timeout_is_a_failure_for_the_queue(records_url: str | None, make_queue: MakeQueue) -> None:
    """R19, R20: one member timed out, one cancelled by the user: the entry has failed, it is not cancelled."""
    queue = make_queue(records_url, hangs("a"), hangs("b"))
    entry = queue.submit("c", ["a", "b"], "p", output_timeout=0.5)
    wait_until(lambda: queue.entry(entry).status == "running")
    wait_until(lambda: queue.stop(entry, "a"))
    record = queue.wait(entry, 20)
    assert (record.status, record.reason) == ("failed", "timeout")
    assert record.outcomes == {"a": "cancelled", "b": "failed"}


def test_only_cancelled_members_make_a_cancelled_entry(make_queue: MakeQueue) -> None:
    """R20: every target stopped by the user, one by one: cancelled by the user."""
    queue = make_queue(None, hangs("a"), hangs("b"))
    entry = queue.submit("c", ["a", "b"], "p")
    for member in "ab":
        wait_until(lambda member=member: queue.stop(entry, member))
    record = queue.wait(entry, 20)
    assert (record.status, record.reason) == ("cancelled", "user_cancel")


def test_cancelling_an_entry(records_url: str | None, make_queue: MakeQueue) -> None:
    """What waits is cancelled and never runs; what runs is stopped as a whole; what is over stays."""
    gate = Gate("a")
    queue = make_queue(records_url, gate.member)
    runs, waits = queue.submit("c", ["a"], "runs"), queue.submit("c", ["a"], "waits")
    wait_until(lambda: gate.running)
    assert queue.cancel(waits)
    assert queue.cancel(runs)
    assert [queue.wait(entry, 20).status for entry in (runs, waits)] == ["cancelled", "cancelled"]
    assert gate.begun == ["runs"]
    assert not queue.cancel(runs)
    with pytest.raises(UsageError, match="unknown entry_id"):
        queue.entry("unknown")


def test_a_paused_conversation_starts_nothing_until_it_is_resumed(records_url: str | None, make_queue: MakeQueue) -> None:
    """Pause: what runs goes on, what waits stays; other conversations are not concerned."""
    gate = Gate("a")
    queue = make_queue(records_url, gate.member)
    gate.let("first", "second", "other")
    queue.pause("c")
    first, second = queue.submit("c", ["a"], "first"), queue.submit("c", ["a"], "second")
    assert queue.wait(queue.submit("d", ["a"], "other"), 20).status == "succeeded"
    time.sleep(0.15)
    assert gate.begun == ["other"]
    assert queue.wait(first, 0.05).status == "queued"
    queue.resume("c")
    assert [queue.wait(entry, 20).status for entry in (first, second)] == ["succeeded", "succeeded"]
    assert gate.begun == ["other", "first", "second"]


def test_a_chain_goes_on_only_after_a_success(records_url: str | None, make_queue: MakeQueue) -> None:
    """Chain: an entry after another waits for its success, across conversations; where that fails, it is cancelled."""
    gate = Gate("a")
    queue = make_queue(records_url, gate.member, Scripted("b", [OSError("no")]))
    first = queue.submit("c", ["a"], "first")
    second = queue.submit("d", ["a"], "second", after=first)
    wait_until(lambda: gate.running)
    time.sleep(0.15)
    assert gate.begun == ["first"]
    gate.let("first", "second")
    assert queue.wait(second, 20).status == "succeeded"
    broken = queue.submit("e", ["b"], "p")
    after = queue.submit("f", ["a"], "never", after=broken)
    last = queue.submit("g", ["a"], "never", after=after)
    for entry in (after, last):
        record = queue.wait(entry, 20)
        assert (record.status, record.reason) == ("cancelled", "chain_broken")
    assert gate.begun == ["first", "second"]


def test_a_failed_entry_runs_once_more_when_it_is_asked_for(records_url: str | None, make_queue: MakeQueue) -> None:
    """Retry: failed goes to running again, and only failed does."""
    member = Scripted("a", [OSError("no")], ["x"][:0])
    queue = make_queue(records_url, member)
    entry = queue.submit("c", ["a"], "p")
    assert queue.wait(entry, 20).status == "failed"
    turns = len(queue.dispatcher.records.turns(entry))
    assert queue.retry(entry)
    wait_until(lambda: len(queue.dispatcher.records.turns(entry)) == turns + 1)
    assert queue.wait(entry, 20).reason == "ended_without_done"
    queue.cancel(entry)
    assert not queue.retry(entry)


def test_the_order_is_what_entries_lists(make_queue: MakeQueue) -> None:
    """`entries()` lists a conversation's entries in their order, whatever their status."""
    queue = make_queue(None, says("a"), start=False)
    ids = [queue.submit("c", ["a"], str(number)) for number in range(3)]
    queue.cancel(ids[1])
    assert [(entry.id, entry.status) for entry in queue.entries("c")] == [
        (ids[0], "queued"),
        (ids[1], "cancelled"),
        (ids[2], "queued"),
    ]


def test_two_queues_on_one_store_run_each_entry_once(shared_records: str, make_queue: MakeQueue) -> None:
    """Two dispatchers with queues on the same records share the work: nothing runs twice, slots exclude across both."""
    gate = Gate("a")
    queues = [make_queue(shared_records, gate.member, at_once=8) for _ in range(2)]
    prompts = [f"{conversation}{number}" for number in range(5) for conversation in "cde"]
    gate.let(*prompts)
    entries = [queues[n % 2].submit(prompt[0], ["a"], prompt) for n, prompt in enumerate(prompts)]
    assert [queues[0].wait(entry, 40).status for entry in entries] == ["succeeded"] * 15
    assert sorted(gate.begun) == sorted(prompts)
    for conversation in "cde":
        mine = [prompt for prompt in gate.begun if prompt[0] == conversation]
        assert mine == sorted(mine)


def test_entries_outlive_the_queue_that_took_them_in(shared_records: str, make_queue: MakeQueue) -> None:
    """Durable: what one process queued and never ran is run by the next one."""
    first = make_queue(shared_records, says("a", "x"), start=False)
    entry = first.submit("c", ["a"], "p", output_timeout=7, first=3)
    first.close()
    first.dispatcher.close()
    second = make_queue(shared_records, says("a", "x"))
    record = second.wait(entry, 20)
    assert record.status == "succeeded"
    assert record.options == {"output_timeout": 7.0, "tool_timeout": None, "first": 3.0}


def test_an_entry_for_members_that_are_not_here_waits(shared_records: str, make_queue: MakeQueue) -> None:
    """An entry whose member this process does not have is left to one that has it."""
    with_b = make_queue(shared_records, says("b", "x"), start=False)
    entry = with_b.submit("c", ["b"], "p")
    without = make_queue(shared_records, says("a", "x"))
    time.sleep(0.2)
    assert without.entry(entry).status == "queued"
    with_b.start()
    assert without.wait(entry, 20).status == "succeeded"


def test_closing_stops_what_runs_and_keeps_what_waits(make_queue: MakeQueue) -> None:
    """`close()` cancels running entries as `queue_closed`; entries that wait stay queued; `drain=True` waits instead."""
    gate = Gate("a")
    queue = make_queue(None, gate.member)
    runs, waits = queue.submit("c", ["a"], "runs"), queue.submit("c", ["a"], "waits")
    wait_until(lambda: gate.running)
    queue.close()
    queue.close()
    assert (queue.entry(runs).status, queue.entry(runs).reason) == ("cancelled", "queue_closed")
    assert queue.entry(waits).status == "queued"
    drained = make_queue(None, says("a", "x", pause=0.2))
    entry = drained.submit("c", ["a"], "p")
    wait_until(lambda: drained.entry(entry).status == "running")
    drained.close(drain=True)
    assert drained.entry(entry).status == "succeeded"


@pytest.mark.parametrize(
    "arguments",
    [
        {"members": []},
        {"members": ["a", "a"]},
        {"members": ["nobody"]},
        {"conversation": ""},
        {"prompt": None},
        {"mode": "both"},
        {"output_timeout": -1},
    ],
)
def test_bad_entries_are_refused(make_queue: MakeQueue, arguments: dict[str, Any]) -> None:
    """An entry that cannot be right is refused when it is submitted, not when it would run."""
    queue = make_queue(None, says("a"), start=False)
    given = {"conversation": "c", "members": ["a"], "prompt": "p", **arguments}
    with pytest.raises(UsageError):
        queue.submit(given.pop("conversation"), given.pop("members"), given.pop("prompt"), **given)
    assert queue.entries("c") == []


@pytest.mark.parametrize("options", [{"at_once": 0}, {"poll": 0}, {"poll": -1}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    """A queue that could run nothing, or would never look, is refused."""
    with Dispatcher() as dispatcher, pytest.raises(UsageError):
        DispatchQueue(dispatcher, [says("a")], **options)


def test_a_store_that_cannot_be_used_is_an_error_for_who_submits(tmp_path: Any) -> None:
    """A durable queue does not pretend: what could not be recorded was not taken in. Nothing hangs."""
    store = RecordStore(f"sqlite:///{tmp_path}/none/records.db", timeout=0.1)
    with Dispatcher(store) as dispatcher, DispatchQueue(dispatcher, [says("a")], poll=0.05) as queue:
        with pytest.raises(RecordsError, match="cannot use the records"):
            queue.submit("c", ["a"], "p")
        time.sleep(0.2)


def test_a_claim_whose_answer_was_lost_is_run_after_all(
    shared_records: str, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry recorded as ours that does not run here is found and run."""
    monkeypatch.setattr("streamguard.dispatch._records.queue_table._SETTLE_SECONDS", 0.0)
    queue = make_queue(shared_records, says("a", "x"), start=False)
    entry = queue.submit("c", ["a"], "p")
    assert QueueTable(queue.dispatcher.records).claim(["a"]) is not None
    queue.start()
    assert queue.wait(entry, 20).status == "succeeded"
