"""Owners and their leases: a restart ends the records of owners that are gone (T32)."""

import os
import socket
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import Connection, Row, Table, delete, select, update

from ..._core.clock import wall
from ..._store.engine import now_in, put
from .._data.status import PROCESS_RESTART, ExecutionStatus, ResponseStatus, TurnStatus
from .schema import executions, owners, responses, turns


def _this_host() -> str:
    """Return a name for this machine since its last boot, and for the namespace of its process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"{socket.gethostname()}/{uuid.getnode():x}"


def _own_start() -> float:
    return psutil.Process().create_time()


@dataclass(frozen=True, slots=True)
class Owner:
    """One dispatcher in one process."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    host: str = field(default_factory=_this_host)
    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=_own_start)

    def gone(self) -> bool:
        """Return whether this owner's process has ended. Only its own machine knows, and without waiting for the lease."""
        if self.host != _this_host():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) > 1.0
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False


def hold_lease(connection: Connection, owner: Owner, seconds: float) -> None:
    """Renew the lease of *owner*, in a transaction."""
    columns = asdict(owner)
    put(connection, owners, {"id": columns.pop("id")}, **columns, lease_until=now_in(connection) + seconds)


def end_orphans(connection: Connection, myself: Owner) -> list[str]:
    """End the records of owners that are gone as failed, `process_restart`; return the executions that this call ended.

    The call that deletes an owner's row ends its records, so it happens once.
    """
    expired = (owners.c.lease_until < now_in(connection)).label("expired")
    found = connection.execute(select(owners, expired)).all()
    gone = [row for row in found if row.id != myself.id and (row.expired or _owner_of(row).gone())]
    return [ended for row in gone for ended in end_owner(connection, row)]


def end_owner(connection: Connection, owner: Row[Any]) -> list[str]:
    """End the records of *owner* if its row is unchanged; return the ids of the executions that this call ended."""
    same = (owners.c.id == owner.id, owners.c.lease_until == owner.lease_until)
    if connection.execute(delete(owners).where(*same)).rowcount == 0:
        return []  # another process was first, or the owner has renewed its lease
    running = (executions.c.owner == owner.id, executions.c.status == ExecutionStatus.RUNNING)
    ended = list(connection.execute(select(executions.c.id).where(*running)).scalars())
    _fail(connection, executions, owner.id, ExecutionStatus.RUNNING, status=ExecutionStatus.FAILED, reason=PROCESS_RESTART)
    _fail(connection, turns, owner.id, TurnStatus.RUNNING, status=TurnStatus.FAILED, terminal_reason=PROCESS_RESTART)
    _fail(connection, responses, owner.id, ResponseStatus.PROCESSING, status=ResponseStatus.FAILED, reason=PROCESS_RESTART)
    return ended


def _fail(connection: Connection, table: Table, owner: str, running: str, **values: str) -> None:
    mine = (table.c.owner == owner, table.c.status == running)
    connection.execute(update(table).where(*mine).values(**values, ended_at=wall()))


def _owner_of(row: Row[Any]) -> Owner:
    return Owner(row.id, row.host, row.pid, row.started)
