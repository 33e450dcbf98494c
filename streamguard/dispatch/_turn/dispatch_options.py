"""A dispatch's arguments, checked, as a plan. Pure."""

import uuid
from collections.abc import Callable, Iterable

from ...errors import UsageError
from .._data.rows import ExecutionRecord
from .._data.status import ExecutionStatus
from .._members.member import Member
from .execution import Follow, Limits, Mode, Plan

Prompt = str | Callable[[str], str]


def plan_of(
    conversation: str, members: Iterable[Member], prompt: Prompt, mode: Mode, limits: Limits, follow: Follow | None
) -> Plan:
    """Return the plan of a dispatch. Raises TypeError or UsageError for arguments that cannot be right."""
    named = by_name(members)
    if not isinstance(conversation, str) or not conversation:
        raise UsageError("conversation= takes a name, which is not empty")
    if not isinstance(prompt, str) and not callable(prompt):
        raise TypeError(f"prompt= takes text or a function of the member's name, not {type(prompt).__name__}")
    if mode not in ("parallel", "serial"):
        raise UsageError(f"mode= takes 'parallel' or 'serial', not {mode!r}")
    if follow is not None and mode != "serial":
        raise UsageError("follow= makes a list grow; only mode='serial' has one")
    record = ExecutionRecord(
        id=uuid.uuid4().hex,
        conversation=conversation,
        mode=mode,
        members=[*named],
        prompt=prompt if isinstance(prompt, str) else "",
        options={},
        status=ExecutionStatus.RUNNING,
    )
    return Plan(record=record, members=tuple(named.values()), prompt=prompt, limits=limits, follow=follow)


def by_name(members: Iterable[Member]) -> dict[str, Member]:
    """Return the members by name. Raises TypeError for another type, UsageError for none or two of one name."""
    found = tuple(members) if isinstance(members, Iterable) else None
    if found is None or not all(isinstance(member, Member) for member in found):
        raise TypeError("members= takes a list of members, such as CommandMember, StreamMember, CallableMember")
    if not found:
        raise UsageError("members= is empty: a dispatch needs at least one")
    named: dict[str, Member] = {}
    for member in found:
        if member.name in named:
            raise UsageError(f"member {member.name!r} is given twice: a member runs once at a time in a conversation")
        named[member.name] = member
    return named
