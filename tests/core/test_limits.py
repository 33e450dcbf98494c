"""`Timeouts`: the limits of one call, where each came from, and whether they fit together."""

import copy
import math
import numbers
import pickle
import threading
from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import Timeouts, UsageError, configure
from streamguard._core import NOT_GIVEN, parse_duration
from streamguard._core.clock import longest_wait
from streamguard._core.limits import LIMITS

NAMES = ("connect", "response", "first", "idle", "dead", "total")
PHASES = NAMES[:-1]


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    """Remove what a test configures."""
    yield
    configure(**dict.fromkeys(NAMES, NOT_GIVEN))


class Half:
    """A number like numpy's scalars: not a float, but registered as a real number."""

    def __float__(self) -> float:
        return 0.5


numbers.Real.register(Half)


def values(limits: Timeouts) -> dict[str, float | None]:
    return {name: getattr(limits, name) for name in NAMES}


def test_the_defaults() -> None:
    """10 s to connect, 120 s for headers, first chunk and gaps, no dead, no total."""
    assert values(Timeouts()) == {
        "connect": 10,
        "response": 120,
        "first": 120,
        "idle": 120,
        "dead": None,
        "total": None,
    }
    assert {Timeouts().source(name) for name in NAMES if name != "first"} == {"default"}


def test_the_table_of_limits() -> None:
    """The table has the limits in the order of a call, each with its environment variable and its default."""
    assert tuple(LIMITS) == NAMES
    assert {name: info.default for name, info in LIMITS.items()} == values(Timeouts())
    assert [info.variable for info in LIMITS.values()] == [f"STREAMGUARD_{name.upper()}" for name in NAMES]


def test_first_is_as_idle_unless_given() -> None:
    """`first` follows `idle` from any source, and its source says so."""
    limits = Timeouts(idle=30)
    assert (limits.first, limits.source("first")) == (30, "as idle, argument")
    assert Timeouts(idle=30, first=60).first == 60
    assert Timeouts(idle=None).first is None
    configure(idle=7)
    assert (Timeouts().first, Timeouts().source("first")) == (7, "as idle, configure()")


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (5, 5.0),
        (0.25, 0.25),
        (Fraction(1, 4), 0.25),
        (Half(), 0.5),
        (timedelta(minutes=1.5), 90.0),
        (timedelta(milliseconds=1), 0.001),
        (None, None),
        (math.inf, None),
        ("5", 5.0),
        ("90s", 90.0),
        (" 1m30s ", 90.0),
        ("1500ms", 1.5),
        ("off", None),
        ("48h", 172_800.0),
        (timedelta(days=2), 172_800.0),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_valid_limits(name: str, given: Any, seconds: float | None) -> None:
    """Any real number is seconds; a timedelta and a duration as text work too (C251); None, infinity and "off" are off."""
    limit = getattr(Timeouts(**{name: given}), name)
    assert limit == seconds
    assert limit is None or type(limit) is float


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [True, False, b"5", [5], (3, 5), object(), 5j])
def test_invalid_types_are_refused(name: str, given: Any) -> None:
    """A bool, bytes, or the tuple of requests: a TypeError that names argument, type and value."""
    with pytest.raises(TypeError) as caught:
        Timeouts(**{name: given})
    for expected in (f"{name}=", type(given).__name__, repr(given), "argument"):
        assert expected in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [math.nan, -math.nan, 10**400], ids=["nan", "-nan", "10**400"])
def test_invalid_numbers_are_refused(name: str, given: Any) -> None:
    """NaN, and a number too large for a float, are a UsageError that names the argument; it is a ValueError."""
    with pytest.raises(UsageError, match=f"{name}= .*argument") as caught:
        Timeouts(**{name: given})
    assert isinstance(caught.value, ValueError)


def test_no_other_limits() -> None:
    """A misspelt limit is refused, and all limits are keyword-only."""
    with pytest.raises(TypeError, match="idel"):
        Timeouts(idel=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Timeouts(5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="read"):
        configure(read=5)


@pytest.mark.parametrize("name", PHASES)
@pytest.mark.parametrize("given", [0, -1, -math.inf, timedelta(0), timedelta(seconds=-1)])
def test_zero_or_less_turns_a_phase_off(name: str, given: Any) -> None:
    """For the phases, zero and less is off."""
    assert getattr(Timeouts(**{name: given}), name) is None


@pytest.mark.parametrize("given", [0, -1, -0.0, timedelta(seconds=-1)])
def test_a_total_of_zero_is_spent_not_off(given: Any) -> None:
    """For `total`, zero and less means already spent; it does not clamp other limits to zero, which is off."""
    limits = Timeouts(total=given)
    assert limits.total is not None
    assert limits.total <= 0
    assert limits.idle == 120


def test_a_given_total_clamps_what_was_not_given() -> None:
    """Defaults and configured limits above `total` are reduced to it, so that they can fire."""
    configure(response=50)
    limits = Timeouts(total=5)
    assert values(limits) == {"connect": 5, "response": 5, "first": 5, "idle": 5, "dead": None, "total": 5}
    assert Timeouts(total=5, connect=8).connect == 8


@pytest.mark.parametrize(
    "limits", [{"idle": 10, "total": 5}, {"idle": 10, "dead": 20}, {"first": 5, "idle": 9, "dead": 10}]
)
def test_given_limits_that_contradict_each_other(limits: dict[str, float]) -> None:
    """Of the limits of one call, one that can never fire is refused; the error names both with their values."""
    with pytest.raises(UsageError) as caught:
        Timeouts(**limits)
    for name, value in limits.items():
        assert f"{name}={value}" in str(caught.value)


@pytest.mark.parametrize(
    "limits",
    [
        {"dead": 30, "first": 600},
        {"dead": 600},
        {"dead": 30, "first": 10, "idle": 0},
        {"dead": 30, "first": 0, "idle": 10},
        {"dead": 30, "first": 10, "idle": 60},
        {"idle": 10, "total": 10},
        {"idle": 10, "total": 0},
        {"idle": None, "total": 5},
        {"connect": 10, "total": 5},
    ],
)
def test_given_limits_that_fit(limits: dict[str, float]) -> None:
    """Limits that can each fire, or are off, or only conflict with a default, are accepted as given."""
    made = Timeouts(**limits)
    for name, value in limits.items():
        assert getattr(made, name) == (value or (None if name != "total" else value))


def test_configured_limits_never_conflict() -> None:
    """Limits of configure() and of the environment are defaults, which give way."""
    configure(idle=60, dead=5)
    assert Timeouts(total=5).idle == 5
    assert Timeouts(idle=2, first=2).dead == 5


def test_argument_before_configure_before_environment_before_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest source decides, also with None or 0, and NOT_GIVEN removes a configured limit."""
    monkeypatch.setenv("STREAMGUARD_IDLE", "90s")
    monkeypatch.setenv("STREAMGUARD_TOTAL", "10m")
    assert (Timeouts().idle, Timeouts().source("idle")) == (90, "STREAMGUARD_IDLE")
    assert Timeouts().total == 600
    configure(idle=60)
    assert (Timeouts().idle, Timeouts().source("idle")) == (60, "configure()")
    assert (Timeouts(idle=30).idle, Timeouts(idle=30).source("idle")) == (30, "argument")
    assert Timeouts(idle=None).idle is None
    configure(idle=None, total=None)
    assert Timeouts().idle is None
    assert Timeouts().total is None
    configure(idle=NOT_GIVEN)
    assert Timeouts().idle == 90


@pytest.mark.parametrize("name", NAMES)
def test_each_limit_has_its_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare number in the environment is seconds, for each of the six."""
    monkeypatch.setenv(f"STREAMGUARD_{name.upper()}", "7.5")
    assert getattr(Timeouts(), name) == 7.5
    assert Timeouts().source(name) == f"STREAMGUARD_{name.upper()}"


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-5", "5 days", "1e3", "5s5", "--", "٥s", "5,5", "None"])
def test_a_malformed_variable_is_ignored_with_a_warning(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that is not a duration sets no limit: the default holds, and a warning names the variable."""
    monkeypatch.setenv("STREAMGUARD_IDLE", text)
    with pytest.warns(UserWarning, match="STREAMGUARD_IDLE is ignored"):
        limits = Timeouts()
    assert (limits.idle, limits.source("idle")) == (120, "default")
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", ["", "soon", "5 days", "-5", "nan", "1e3", "5_0", "9" * 400])
def test_text_that_is_not_a_duration(name: str, given: str) -> None:
    """A UsageError names the argument, its source, and how durations are written (C251)."""
    with pytest.raises(UsageError, match=rf"{name}= must be a duration: invalid duration .*argument"):
        Timeouts(**{name: given})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [120_000, 86_401.0, "120000"])
def test_a_bare_number_above_a_day_is_warned_of(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is often milliseconds: the value holds, the warning names the argument or the variable (C251)."""
    with pytest.warns(UserWarning, match=r"idle=\d+ is \d+ hours"):
        assert Timeouts(idle=given).idle == float(given)
    monkeypatch.setenv("STREAMGUARD_IDLE", str(given))
    with pytest.warns(UserWarning, match=r"STREAMGUARD_IDLE=\d+ is \d+ hours"):
        assert Timeouts().idle == float(given)


@pytest.mark.parametrize("name", ["idle", "total"])
@pytest.mark.parametrize("text", ["off", " OFF "])
def test_a_variable_may_turn_a_limit_off(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`off` works as on the command line."""
    monkeypatch.setenv(f"STREAMGUARD_{name.upper()}", text)
    assert getattr(Timeouts(), name) is None
    assert Timeouts().source(name) == f"STREAMGUARD_{name.upper()}"


@pytest.mark.parametrize("text", ["9" * 400, "9" * 400 + "h", "9" * 306 + "h"])
def test_a_variable_too_large_for_a_float_is_ignored_with_a_warning(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither an infinite limit nor one that makes a call fail."""
    monkeypatch.setenv("STREAMGUARD_TOTAL", text)
    with pytest.warns(UserWarning, match="STREAMGUARD_TOTAL is ignored"):
        assert Timeouts().total is None


def test_a_malformed_variable_does_not_matter_if_the_argument_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not used causes no warning (warnings are errors here)."""
    monkeypatch.setenv("STREAMGUARD_IDLE", "soon")
    assert Timeouts(idle=5).idle == 5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        (" 90 s ", 90),
        ("1.5h", 5400),
        (".5m", 30),
        ("5.", 5),
        ("250ms", 0.25),
        ("1m30s", 90),
        ("1h 1m 1s", 3661),
        ("0", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """A number with ms, s, m or h, several of them in a row, or bare seconds."""
    assert parse_duration(text) == seconds


@given(st.floats(0, 1e6), st.sampled_from(["ms", "s", "m", "h"]))
def test_each_number_with_a_unit_is_a_duration(number: float, unit: str) -> None:
    """Any plain number before a unit is that many of it."""
    size = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]
    assert parse_duration(f"{number:.3f}{unit}") == pytest.approx(float(f"{number:.3f}") * size)


@pytest.mark.parametrize("bad", [{"total": "soon"}, {"total": math.nan}, {"total": True}, {"totl": 5}])
def test_configure_is_all_or_nothing(bad: dict[str, Any]) -> None:
    """A configure() that is refused changes nothing."""
    with pytest.raises((TypeError, UsageError)):
        configure(idle=5, **bad)
    assert Timeouts().idle == 120


def test_timeouts_are_immutable() -> None:
    """No attribute can be set or deleted; the error names the method to use."""
    limits = Timeouts()
    with pytest.raises(AttributeError, match="replace"):
        limits.idle = 5
    with pytest.raises(AttributeError):
        del limits.idle
    with pytest.raises(AttributeError):
        setattr(limits, "new", 5)  # noqa: B010 - the type has no such attribute


def test_timeouts_are_values() -> None:
    """Equal limits are equal, hash alike and print alike; copies and pickles are equal."""
    limits = Timeouts(idle=5, total=9)
    assert limits == Timeouts(idle=timedelta(seconds=5), total=9.0)
    assert limits != Timeouts(idle=5)
    assert limits != "idle=5"
    assert len({limits, Timeouts(idle=5, total=9), Timeouts()}) == 2
    for other in (copy.copy(limits), copy.deepcopy(limits), pickle.loads(pickle.dumps(limits))):
        assert other == limits
        assert other.source("idle") == "argument"
    assert "idle=5.0" in repr(limits)


def test_replace() -> None:
    """replace() keeps the given limits, checks all of them again, and changes nothing for NOT_GIVEN."""
    limits = Timeouts(idle=5, total=9)
    assert limits.replace(total=20) == Timeouts(idle=5, total=20)
    assert limits.replace(idle=NOT_GIVEN) is limits
    with pytest.raises(UsageError, match="idle=5"):
        limits.replace(total=3)
    with pytest.raises(TypeError, match="idle="):
        limits.replace(idle=b"3")  # type: ignore[arg-type]


def test_off() -> None:
    """With off() not even a configured limit fires."""
    configure(idle=5, total=5)
    assert set(values(Timeouts.off()).values()) == {None}


@pytest.mark.parametrize(("seconds", "wait"), [(None, None), (-1, 0), (0.5, 0.5), (1e300, threading.TIMEOUT_MAX)])
def test_waits_are_capped(seconds: float | None, wait: float | None) -> None:
    """A wait is never negative, and never longer than the system's maximum."""
    assert longest_wait(seconds) == wait


def test_not_given_is_not_none() -> None:
    """The sentinel is falsy, and prints its name."""
    assert not NOT_GIVEN
    assert repr(NOT_GIVEN) == "NOT_GIVEN"
