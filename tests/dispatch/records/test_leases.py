"""Owners and their leases: what a restart ends, and what it does not touch."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from sqlalchemy import select, update

from streamguard._core.clock import monotonic
from streamguard.dispatch import Dispatcher
from streamguard.dispatch._data.status import TurnStatus
from streamguard.dispatch._records.leases import Owner, end_owner
from streamguard.dispatch._records.records import RecordStore
from streamguard.dispatch._records.schema import owners

from ..scripted import hangs
from ..stores import Store
from .samples import answer, begun, execution, turn

pytestmark = pytest.mark.timeout(180)  # PostgreSQL may have to be installed first


def expire(store: RecordStore) -> None:
    with store.writing() as connection:
        connection.execute(update(owners).where(owners.c.id == store.owner.id).values(lease_until=1.0))


def test_records_of_an_expired_owner_are_ended_once(shared_records: str, open_store: Store) -> None:
    """T32: running records whose owner's lease has run out become failed/process_restart; only the first call says so."""
    begun(open_store(shared_records))
    dead = open_store(shared_records)
    dead.begin_execution(execution("other"))
    expire(dead)
    store = open_store(shared_records)
    assert store.reconcile() == ["other"]
    assert store.reconcile() == []
    found = store.execution("other")
    assert found is not None
    assert (found.status, found.reason) == ("failed", "process_restart")


def test_turns_and_responses_are_ended_with_them(shared_records: str, open_store: Store) -> None:
    """T32: what was over before stays what it was."""
    dead = begun(open_store(shared_records))
    dead.begin_turn(turn("over"))
    dead.commit_turn(replace(turn("over"), status=TurnStatus.SUCCEEDED))
    dead.commit_response(answer("over", text="x"))
    expire(dead)
    store = open_store(shared_records)
    store.reconcile()
    assert {record.id: record.status for record in store.turns("e")} == {"t": "failed", "over": "succeeded"}
    assert {record.turn_id: record.reason for record in store.responses("e")} == {"t": "process_restart", "over": None}


def test_a_restart_beside_living_siblings_touches_nothing_of_theirs(shared_records: str, open_store: Store) -> None:
    """T32: three living owners on one store, one dead: of a fourth's start only the dead one's records notice anything."""
    living = [open_store(shared_records) for _ in range(3)]
    for number, store in enumerate(living):
        store.begin_execution(execution(f"living {number}"))
    dead = open_store(shared_records)
    dead.begin_execution(execution("dead"))
    expire(dead)
    assert open_store(shared_records).reconcile() == ["dead"]
    for number, store in enumerate(living):
        found = store.execution(f"living {number}")
        assert found is not None
        assert (found.status, found.owner) == ("running", store.owner.id)


def test_of_many_restarts_at_once_one_ends_it(shared_records: str, open_store: Store) -> None:
    """T32: six processes come up at once and look after the same dead owner: together they end it once."""
    dead = begun(open_store(shared_records))
    expire(dead)
    stores = [open_store(shared_records, timeout=20) for _ in range(6)]
    start = threading.Barrier(6)
    ended: list[str] = []

    def come_up(store: RecordStore) -> None:
        start.wait()
        ended.extend(store.reconcile())

    threads = [threading.Thread(target=come_up, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == ["e"]


def test_an_owner_that_renews_in_the_last_instant_is_left_alone(shared_records: str, open_store: Store) -> None:
    """T32: an owner was seen as expired, and renews its lease before its row is taken: nothing of it is ended."""
    late = begun(open_store(shared_records))
    expire(late)
    other = open_store(shared_records)
    with other.reading() as connection:
        seen = connection.execute(select(owners).where(owners.c.id == late.owner.id)).one()
    late.renew()
    with other.writing() as connection:
        assert end_owner(connection, seen) == []
    assert [record.status for record in late.turns("e")] == ["running"]


def test_an_owner_whose_process_is_gone_needs_no_lease_to_run_out(shared_records: str, open_store: Store) -> None:
    """On its own machine a dead process is known at once; another machine's lease is awaited."""
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    here = open_store(shared_records)
    here.owner = replace(here.owner, pid=int(gone.stdout))
    here.begin_execution(execution("here"))
    elsewhere = open_store(shared_records)
    elsewhere.owner = replace(elsewhere.owner, pid=int(gone.stdout), host="another machine")
    elsewhere.begin_execution(execution("elsewhere"))
    assert open_store(shared_records).reconcile() == ["here"]


def test_a_process_id_that_was_used_again_is_another_process() -> None:
    """An owner is its process id and that process's start: this one lives, one that started earlier is gone."""
    owner = Owner()
    assert not owner.gone()
    assert replace(owner, started=owner.started - 3600).gone()


def test_the_answer_of_an_owner_that_was_given_up_is_refused(shared_records: str, open_store: Store) -> None:
    """A laptop wakes up after its lease ran out, and after somebody ended its turn: the commit is refused."""
    slept = begun(open_store(shared_records))
    expire(slept)
    open_store(shared_records).reconcile()
    assert not slept.commit_response(answer(text="late"))
    (found,) = slept.responses("e")
    assert (found.status, found.reason, found.text) == ("failed", "process_restart", "")


def test_the_lease_is_renewed_while_something_runs(shared_records: str, open_store: Store) -> None:
    """A dispatch that outlives its lease several times is not ended by anybody who comes up meanwhile."""
    store = open_store(shared_records, lease=1.0)
    # As seen from another machine, where only the lease counts.
    store.owner = replace(store.owner, host="another machine")
    another = open_store(shared_records)
    with Dispatcher(store) as dispatcher, dispatcher.stream("c", [hangs("a", "x")], "p") as stream:
        next(stream)
        end = monotonic() + 2.2
        while monotonic() < end:
            assert another.reconcile() == []
            time.sleep(0.05)
        stream.cancel_all()
        assert stream.read()["a"].status == "cancelled"
