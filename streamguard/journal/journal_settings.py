"""`configure()`: this process's own settings, those of the journal and those of the limits."""

from typing import TypedDict, Unpack

from .._core.limits import NOT_GIVEN, Limit, NotGiven
from .._core.limits import configure as configure_limits
from ..errors import UsageError
from .collector import RECENT, RECORDER
from .lifecycle import use

__all__ = ["Settings", "configure"]


class Settings(TypedDict, total=False):
    """What `configure()` takes."""

    connect: Limit | NotGiven
    response: Limit | NotGiven
    first: Limit | NotGiven
    idle: Limit | NotGiven
    dead: Limit | NotGiven
    total: Limit | NotGiven
    journal: str | NotGiven | None
    recent: int | NotGiven


def configure(**settings: Unpack[Settings]) -> None:
    """Set this process's own defaults: `configure(idle=60, total=600, journal="sqlite:///journal.db")`.

    connect, response, first, idle, dead, total: limits, in seconds. They stand between the arguments of a call and the
             environment.
    journal: the URL of the database in which every stream, run and turn that ends is kept; None: none is, whatever
             `STREAMGUARD_JOURNAL` says. Needs the extra `dispatch`.
    recent:  how many failures `recent()` remembers. Default 100.

    `NOT_GIVEN` takes one back. What is refused changes nothing: TypeError or UsageError, naming the setting, for a value
    that it cannot have.
    """
    unknown = settings.keys() - Settings.__annotations__.keys()
    if unknown:
        raise TypeError(f"configure() knows no {min(unknown)}=; it takes {', '.join(Settings.__annotations__)}")
    count = _count(settings.pop("recent", None))
    choose = use(settings.pop("journal")) if "journal" in settings else None
    configure_limits(**settings)  # the rest are limits
    if choose is not None:
        choose()
    if count is not None:
        RECORDER.remember(count)


def _count(recent: int | NotGiven | None) -> int | None:
    if recent is None or isinstance(recent, NotGiven):
        return RECENT if recent is NOT_GIVEN else None
    if isinstance(recent, bool) or not isinstance(recent, int):
        raise TypeError(f"recent= takes a number of failures, not {type(recent).__name__}")
    if recent < 0:
        raise UsageError(f"recent= is how many failures to remember; {recent} is none")
    return recent
