"""A queue's entries in the records: which may start, and the compare-and-set by which one process starts it.

An entry is an execution that is `queued`, or `failed` and to be retried. In each conversation only the first such entry may
start, and only while no running one shares a member with it: so entries start in their order, and no slot is taken twice,
however many processes take entries from one store.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, or_, select, update

from ..._core.clock import wall
from ..._store.engine import put
from .._data.rows import ExecutionRecord, columns_of, record_of
from .._data.status import USER_CANCEL, ExecutionStatus, StatusAndReason
from .leases import hold_lease
from .records import RecordStore, move
from .schema import conversations, executions

CHAIN_BROKEN = "chain_broken"

_SETTLE_SECONDS = 5.0

_Status = ExecutionStatus


class QueueTable:
    """The queue's entries in *store*. The methods raise SQLAlchemy's errors."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def add(self, record: ExecutionRecord) -> None:
        """Add an entry at the end of its conversation's queue."""
        with self._store.writing() as connection:
            connection.execute(insert(executions).values(**columns_of(record)))

    def claim(self, members: Iterable[str]) -> ExecutionRecord | None:
        """Start an entry that may start and whose members are all in *members*; return it as running, or None.

        Entries whose chain is broken (the entry before them did not succeed) are cancelled on the way.
        """
        known = set(members)
        with self._store.writing() as connection:
            hold_lease(connection, self._store.owner, self._store.lease)
            for row in connection.execute(_heads()).all():
                if known.issuperset(row.members) and self._may_start(connection, row):
                    claimed = self._start(connection, row)
                    if claimed is not None:
                        return claimed
        return None

    def retry(self, entry_id: str) -> bool:
        """Mark a failed entry to be started again; return False if it has not failed."""
        with self._store.writing() as connection:
            this = (executions.c.id == entry_id, executions.c.status == _Status.FAILED)
            return connection.execute(update(executions).where(*this).values(again=True)).rowcount == 1

    def cancel(self, entry_id: str, reason: str = USER_CANCEL) -> bool:
        """Cancel an entry that is not running; return False if it runs or has ended."""
        waiting = (executions.c.id == entry_id, executions.c.status.in_((_Status.QUEUED, _Status.FAILED)))
        values: dict[str, Any] = {"status": _Status.CANCELLED, "reason": reason, "again": False, "ended_at": wall()}
        with self._store.writing() as connection:
            return connection.execute(update(executions).where(*waiting).values(**values)).rowcount == 1

    def set_paused(self, conversation: str, paused: bool) -> None:
        """Hold back the entries of *conversation*, or let them start again."""
        with self._store.writing() as connection:
            put(connection, conversations, {"conversation": conversation}, paused=paused)

    def claimed(self) -> list[ExecutionRecord]:
        """Return the entries recorded as running here for more than a few seconds."""
        mine = (executions.c.owner == self._store.owner.id, executions.c.status == _Status.RUNNING)
        with self._store.reading() as connection:
            found = select(executions).where(*mine, executions.c.started_at < wall() - _SETTLE_SECONDS)
            return [record_of(ExecutionRecord, row) for row in connection.execute(found)]

    def in_order(self, conversation: str) -> list[ExecutionRecord]:
        """Return the executions of *conversation* in their order, with any status."""
        with self._store.reading() as connection:
            mine = select(executions).where(executions.c.conversation == conversation).order_by(executions.c.position)
            return [record_of(ExecutionRecord, row) for row in connection.execute(mine)]

    def _may_start(self, connection: Connection, row: Row[Any]) -> bool:
        if connection.dialect.name == "postgresql":
            # No other process starts an entry of this conversation until this transaction ends.
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(row.conversation))))
        if row.after is not None and not self._chain_holds(connection, row):
            return False
        return not set(row.members) & set(_members_running(connection, row.conversation))

    def _chain_holds(self, connection: Connection, row: Row[Any]) -> bool:
        before = connection.execute(select(executions).where(executions.c.id == row.after)).first()
        if before is None or before.status == _Status.CANCELLED or (before.status == _Status.FAILED and not before.again):
            move(connection, row.id, StatusAndReason(_Status.CANCELLED, CHAIN_BROKEN), owner=self._store.owner.id)
            return False
        return bool(before.status == _Status.SUCCEEDED)

    def _start(self, connection: Connection, row: Row[Any]) -> ExecutionRecord | None:
        values: dict[str, Any] = {"status": _Status.RUNNING, "reason": None, "again": False, "ended_at": None}
        values |= {"owner": self._store.owner.id, "started_at": wall()}
        this = and_(executions.c.id == row.id, _pending())
        if connection.execute(update(executions).where(this).values(**values)).rowcount == 0:
            return None
        return record_of(ExecutionRecord, connection.execute(select(executions).where(executions.c.id == row.id)).one())


def _pending() -> ColumnElement[bool]:
    again = and_(executions.c.status == _Status.FAILED, executions.c.again.is_(True))
    return or_(executions.c.status == _Status.QUEUED, again)


def _heads() -> Any:
    paused = select(conversations.c.conversation).where(conversations.c.paused.is_(True))
    first = select(func.min(executions.c.position)).where(_pending()).group_by(executions.c.conversation)
    return (
        select(executions)
        .where(executions.c.position.in_(first), executions.c.conversation.not_in(paused))
        .order_by(executions.c.position)
    )


def _members_running(connection: Connection, conversation: str) -> Iterator[str]:
    running = (executions.c.conversation == conversation, executions.c.status == _Status.RUNNING)
    for members in connection.execute(select(executions.c.members).where(*running)).scalars():
        yield from members
