"""Who runs what is recorded as running: so that a restart knows what nobody runs any more (T32)."""

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
    """Name this machine since its last start, and the space in which its process ids mean something."""
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
        """Whether this owner's process is known to have ended: its own machine can tell, without waiting for a lease."""
        if self.host != _this_host():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) > 1.0
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False


def hold_lease(connection: Connection, owner: Owner, seconds: float) -> None:
    """Renew the lease of *owner*, within a transaction."""
    columns = asdict(owner)
    put(connection, owners, {"id": columns.pop("id")}, **columns, lease_until=now_in(connection) + seconds)


def end_orphans(connection: Connection, myself: Owner) -> list[str]:
    """End what no living owner runs as failed, `process_restart`; return the ids of the executions that this call ended.

    Whoever takes an owner's row away is the one who ends its records, so it happens once.
    """
    expired = (owners.c.lease_until < now_in(connection)).label("expired")
    found = connection.execute(select(owners, expired)).all()
    gone = [row for row in found if row.id != myself.id and (row.expired or _owner_of(row).gone())]
    return [ended for row in gone for ended in end_owner(connection, row)]


def end_owner(connection: Connection, owner: Row[Any]) -> list[str]:
    """End what *owner* runs, if its row is still what it was; return the ids of the executions that this call ended."""
    same = (owners.c.id == owner.id, owners.c.lease_until == owner.lease_until)
    if connection.execute(delete(owners).where(*same)).rowcount == 0:
        return []  # another one was faster, or the owner lives after all
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
