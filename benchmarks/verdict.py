"""Which end of a faulty stream is right, and how a table shows it. Pure."""

from collections.abc import Mapping
from typing import Any

from streamguard._text import counted

from .faults import Fault

__all__ = ["cell", "details", "right"]

_SLACK = 0.75
"""Seconds that a busy machine may add to a total."""
_AT_ONCE = 0.4
"""Seconds in which a complete answer should be handed over."""


def right(fault: Fault, outcome: Mapping[str, Any], total: float) -> bool:
    """Return whether the program had the right kind of end, in time, and no connection stayed open."""
    if outcome["seconds"] is None or outcome["freed"] is False:
        return False
    if fault.ends_well:
        return outcome["error"] is None and outcome["seconds"] <= _AT_ONCE
    return outcome["error"] is not None and outcome["seconds"] <= total + _SLACK


def cell(fault: Fault, outcome: Mapping[str, Any], total: float, bound: float) -> str:
    """Return one cell of the overview; what is not right is bold."""
    if right(fault, outcome, total):
        return f"{outcome['seconds']:.2f} s"
    if outcome["seconds"] is None:
        many = f", {outcome['attempts']} attempts" if outcome["attempts"] > 1 else ""
        return f"**blocked > {bound:g} s{many}**"
    if outcome["error"] is None and not fault.ends_well:
        return "**taken as whole**"
    held = ", connection held" if outcome["freed"] is False else ""
    return f"**{outcome['seconds']:.2f} s{', error' if fault.ends_well and outcome['error'] else ''}{held}**"


def details(outcome: Mapping[str, Any], bound: float) -> tuple[str, str, str, str]:
    """Return the time, the kind of end, whether the connection was closed, and the attempts."""
    freed = {None: "there was none", True: "yes", False: "no"}[outcome["freed"]]
    if outcome["seconds"] is None:
        return f"more than {bound:g} s", "still blocked", freed, str(outcome["attempts"])
    ended = outcome["error"] or f"as complete, after {counted(outcome['events'], 'event')}"
    return f"{outcome['seconds']:.2f} s", ended, freed, str(outcome["attempts"])
