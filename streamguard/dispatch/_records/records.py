"""The records of executions, turns and responses, in SQL. Every change of a status is a compare-and-set.

The methods raise the database's errors. A dispatch uses `SafeWrites`, which goes on without the records.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Column, Connection, Engine, Table, delete, event, func, insert, select, update

from ..._core.clock import wall
from ..._store.engine import READING, make_engine, put
from .._data.rows import TRANSITIONS, ExecutionRecord, ResponseRecord, TurnRecord, columns_of, record_of
from .._data.status import ExecutionStatus, ResponseStatus, StatusAndReason, TurnStatus
from .leases import Owner, end_orphans, hold_lease
from .schema import create_tables, executions, owners, responses, sessions, turns


class RecordStore:
    """Keep records in the database at a URL, or in memory.

    records: `sqlite:///records.db` (write-ahead log; for several threads and processes), `postgresql://user@host/name`, or
             None: in memory.
    lease:   seconds after which an owner that has not renewed its lease counts as gone. Default 30.
    timeout: seconds that a connect, a wait for a lock, or a statement may take. Default 5.

    The tables are created at the first use. Raises UsageError for an invalid URL; the methods raise SQLAlchemy's errors.

    Limits
        An SQLite file must be on a local disk: its locks and its write-ahead log do not work over a network.
    """

    def __init__(self, records: str | None = None, *, lease: float = 30.0, timeout: float = 5.0) -> None:
        self.engine: Engine = make_engine(records, timeout=timeout)
        self.in_memory = records is None
        self.lease = lease
        self.timeout = timeout
        self.owner = Owner()
        self._process = os.getpid()
        self._ready = False
        self._opening = threading.Lock()
        # A connection was lost: the file or the server may have been replaced by one without our tables.
        event.listen(self.engine, "invalidate", self._forget_tables)

    @property
    def ours(self) -> bool:
        """Whether the connections and the lease belong to the current process; False in a forked child."""
        return self._process == os.getpid()

    @property
    def opened(self) -> bool:
        """Whether this store has used the database."""
        return self._ready

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that may write."""
        self._open()
        with self.engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that only reads."""
        self._open()
        with self.engine.connect().execution_options(**READING) as connection:
            yield connection

    def close(self) -> None:
        """Close the connections. A store in memory loses its records; any other can be used again."""
        self._ready = not self.in_memory and self._ready
        self.engine.dispose(close=self.ours)

    def begin_execution(self, record: ExecutionRecord) -> None:
        """Record a running dispatch."""
        with self.writing() as connection:
            hold_lease(connection, self.owner, self.lease)
            started = record.started_at or record.created_at
            values = columns_of(record) | {"owner": self.owner.id, "started_at": started}
            connection.execute(insert(executions).values(**values))

    def begin_turn(self, turn: TurnRecord) -> None:
        """Record a running turn, and its response as `processing`."""
        response = ResponseRecord(
            turn_id=turn.id,
            execution_id=turn.execution_id,
            conversation=turn.conversation,
            member=turn.member,
            created_at=turn.started_at,
        )
        with self.writing() as connection:
            hold_lease(connection, self.owner, self.lease)
            connection.execute(insert(turns).values(**columns_of(turn), owner=self.owner.id))
            connection.execute(insert(responses).values(**columns_of(response), owner=self.owner.id))

    def commit_response(self, response: ResponseRecord) -> bool:
        """Record the answer; return False if another process has ended it already, for example after a restart.

        A response whose start could not be recorded is recorded now.
        """
        return self._settle(responses, responses.c.turn_id, ResponseStatus.PROCESSING, columns_of(response))

    def commit_turn(self, turn: TurnRecord) -> bool:
        """Record how a turn ended; return False if it had ended already."""
        return self._settle(turns, turns.c.id, TurnStatus.RUNNING, columns_of(turn))

    def transition(
        self, execution_id: str, target: StatusAndReason[ExecutionStatus], *, outcomes: dict[str, str] | None = None
    ) -> ExecutionRecord | None:
        """Give an execution the status and reason of *target*; return its record.

        Returns None, and changes nothing, if the transition is not allowed or the execution does not exist.
        """
        with self.writing() as connection:
            return move(connection, execution_id, target, owner=self.owner.id, outcomes=outcomes)

    def execution(self, execution_id: str) -> ExecutionRecord | None:
        """Return the record of an execution."""
        with self.reading() as connection:
            row = connection.execute(select(executions).where(executions.c.id == execution_id)).first()
            return None if row is None else record_of(ExecutionRecord, row)

    def turns(self, execution_id: str) -> list[TurnRecord]:
        """Return the records of an execution's turns, in the order in which they started."""
        with self.reading() as connection:
            found = select(turns).where(turns.c.execution_id == execution_id).order_by(turns.c.started_at)
            return [record_of(TurnRecord, row) for row in connection.execute(found)]

    def responses(self, execution_id: str) -> list[ResponseRecord]:
        """Return the responses of an execution, in the order in which they started."""
        with self.reading() as connection:
            found = select(responses).where(responses.c.execution_id == execution_id).order_by(responses.c.created_at)
            return [record_of(ResponseRecord, row) for row in connection.execute(found)]

    def session(self, conversation: str, member: str) -> str | None:
        """Return the id of the session that *member* resumes in *conversation*."""
        slot = (sessions.c.conversation == conversation, sessions.c.member == member)
        with self.reading() as connection:
            return connection.execute(select(sessions.c.session_id).where(*slot)).scalar()

    def set_session(self, conversation: str, member: str, session_id: str | None) -> None:
        """Set the session to resume; None removes it."""
        slot = {"conversation": conversation, "member": member}
        with self.writing() as connection:
            if session_id is None:
                connection.execute(delete(sessions).filter_by(**slot))
            else:
                put(connection, sessions, slot, session_id=session_id)

    def renew(self) -> None:
        """Renew the lease of this store's owner."""
        with self.writing() as connection:
            hold_lease(connection, self.owner, self.lease)

    def give_up_lease(self) -> None:
        """Delete the lease: this owner runs nothing any more."""
        with self.writing() as connection:
            connection.execute(delete(owners).where(owners.c.id == self.owner.id))

    def reconcile(self) -> list[str]:
        """End the records of owners that are gone as failed, `process_restart`; return the executions that this call ended.

        An owner is gone if its lease has expired, or if this machine knows that its process has ended.
        """
        with self.writing() as connection:
            return end_orphans(connection, self.owner)

    def forget_all_but(self, newest: int) -> None:
        """Delete all but the *newest* executions, with their turns and responses; those that have not ended stay."""
        over = executions.c.status.not_in((ExecutionStatus.QUEUED, ExecutionStatus.RUNNING))
        with self.writing() as connection:
            last = connection.execute(select(func.max(executions.c.position))).scalar() or 0
            old = list(
                connection.execute(select(executions.c.id).where(over, executions.c.position <= last - newest)).scalars()
            )
            if old:
                connection.execute(delete(turns).where(turns.c.execution_id.in_(old)))
                connection.execute(delete(responses).where(responses.c.execution_id.in_(old)))
                connection.execute(delete(executions).where(executions.c.id.in_(old)))

    def _open(self) -> None:
        if self._ready:
            return
        with self._opening:
            if not self._ready:
                with self.engine.begin() as connection:
                    create_tables(connection)
                self._ready = True

    def _forget_tables(self, *_event: object) -> None:
        self._ready = self.in_memory

    def _settle(self, table: Table, key: Column[Any], running: str, values: dict[str, Any]) -> bool:
        this = key == values[key.name]
        values = values | {"owner": self.owner.id, "ended_at": wall()}
        ending = {name: value for name, value in values.items() if name not in ("created_at", "started_at")}
        with self.writing() as connection:
            done = connection.execute(update(table).where(this, table.c.status == running).values(**ending))
            if done.rowcount == 1:
                return True
            if connection.execute(select(key).where(this)).first() is not None:
                return False
            connection.execute(insert(table).values(**values))
            return True


def move(
    connection: Connection,
    execution_id: str,
    target: StatusAndReason[ExecutionStatus],
    *,
    owner: str,
    outcomes: dict[str, str] | None = None,
) -> ExecutionRecord | None:
    """Move an execution, in a transaction, as `RecordStore.transition()` does."""
    status, reason = target
    sources = [source for source, targets in TRANSITIONS.items() if status in targets]
    starts = status is ExecutionStatus.RUNNING
    times = {"owner": owner, "started_at": wall(), "ended_at": None} if starts else {"ended_at": wall()}
    values = {"status": status, "reason": reason, "outcomes": outcomes, "again": False, **times}
    this = executions.c.id == execution_id
    done = connection.execute(update(executions).where(this, executions.c.status.in_(sources)).values(**values))
    if done.rowcount == 0:
        return None
    return record_of(ExecutionRecord, connection.execute(select(executions).where(this)).one())
