"""`configure()`: the settings of this process, for limits and for the journal."""

from typing import TypedDict, Unpack

from .._core.limits import NOT_GIVEN, Limit, NotGiven, whole_number
from .._core.limits import configure as configure_limits
from .collector import COLLECTOR, RECENT
from .lifecycle import use


class ProcessSettings(TypedDict, total=False):
    """The keywords of `configure()`."""

    connect: Limit | NotGiven
    response: Limit | NotGiven
    first: Limit | NotGiven
    idle: Limit | NotGiven
    dead: Limit | NotGiven
    total: Limit | NotGiven
    journal: str | NotGiven | None
    recent: int | NotGiven


def configure(**settings: Unpack[ProcessSettings]) -> None:
    """Set the defaults of this process: `configure(idle=60, total=600, journal="sqlite:///journal.db")`.

    connect, response, first, idle, dead, total: limits in seconds. The arguments of a call override them; they override
             the environment.
    journal: the URL of the database that keeps every stream, run and turn that ends; None: keep no journal, even if
             `STREAMGUARD_JOURNAL` is set. Needs the extra `dispatch`.
    recent:  how many failures `recent_failures()` returns at most. Default 100.

    `NOT_GIVEN` resets a setting. Raises TypeError or UsageError, naming the setting; then nothing has changed.
    """
    unknown = settings.keys() - ProcessSettings.__annotations__.keys()
    if unknown:
        known = ", ".join(ProcessSettings.__annotations__)
        raise TypeError(f"unknown setting {min(unknown)}= of configure(); it has {known}")
    count = _count(settings.pop("recent", None))
    choose = use(settings.pop("journal")) if "journal" in settings else None
    configure_limits(**settings)  # the rest are limits
    if choose is not None:
        choose()
    if count is not None:
        COLLECTOR.remember(count)


def _count(recent: int | NotGiven | None) -> int | None:
    if recent is None or isinstance(recent, NotGiven):
        return RECENT if recent is NOT_GIVEN else None
    return whole_number("recent", recent, 0)
