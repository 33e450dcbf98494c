"""The tables of the records; `_data/rows.py` has their rows as dataclasses."""

from typing import Any

from sqlalchemy import JSON, Boolean, Column, Connection, Float, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeDecorator

from ..._store.engine import create_all
from ..._text import storable

_metadata = MetaData()


class _Words(TypeDecorator[str]):
    """Text from users and members, made storable in statements that write it and in those that search for it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else storable(value)


owners = Table(
    "streamguard_owners",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("host", String(200), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Float, nullable=False),
    Column("lease_until", Float, nullable=False),
)

executions = Table(
    "streamguard_executions",
    _metadata,
    Column("position", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("conversation", _Words, nullable=False),
    Column("mode", String(16), nullable=False),
    Column("members", JSON, nullable=False),
    Column("prompt", _Words, nullable=False),
    Column("options", JSON, nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", _Words),
    Column("outcomes", JSON),
    Column("owner", String(64)),
    Column("after", String(64)),
    Column("again", Boolean, nullable=False, default=False),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
)
Index("streamguard_executions_open", executions.c.conversation, executions.c.status)
Index("streamguard_executions_owner", executions.c.owner)

turns = Table(
    "streamguard_turns",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("execution_id", String(64), nullable=False, index=True),
    Column("conversation", _Words, nullable=False),
    Column("member", _Words, nullable=False),
    Column("status", String(16), nullable=False),
    Column("terminal_reason", _Words),
    Column("owner", String(64), index=True),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
)

responses = Table(
    "streamguard_responses",
    _metadata,
    Column("turn_id", String(64), primary_key=True),
    Column("execution_id", String(64), nullable=False, index=True),
    Column("conversation", _Words, nullable=False),
    Column("member", _Words, nullable=False),
    Column("status", String(16), nullable=False),
    Column("reason", _Words),
    Column("text", _Words, nullable=False, default=""),
    Column("metadata", JSON),
    Column("owner", String(64), index=True),
    Column("created_at", Float, nullable=False),
    Column("ended_at", Float),
)

sessions = Table(
    "streamguard_sessions",
    _metadata,
    Column("conversation", _Words, primary_key=True),
    Column("member", _Words, primary_key=True),
    Column("session_id", _Words, nullable=False),
)

conversations = Table(
    "streamguard_conversations",
    _metadata,
    Column("conversation", _Words, primary_key=True),
    Column("paused", Boolean, nullable=False),
)


def create_tables(connection: Connection) -> None:
    """Create the tables that do not exist."""
    create_all(connection, _metadata)
