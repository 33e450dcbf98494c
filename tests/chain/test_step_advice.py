"""Advice for the limits of a chain's steps."""

from streamguard import Chain, Settled, TotalTimeoutError

from .steps import obedient, raises, value


def test_a_chain_shows_how_often_each_limit_fired() -> None:
    """advice() counts runs, limits that fired, and skips, next to the suggested limit; no limit changes."""
    chain = Chain("c", deadline=0.2)
    chain.step(value(1), name="fast", limit=5)
    chain.step(obedient, name="slow", limit=0.1, fallback=1)
    chain.step(raises(ConnectionRefusedError()), name="refused", fallback=1)
    chain.step(obedient, name="last", fallback=1)
    chain.step(value(1), name="never", fallback=1)
    for _ in range(3):
        chain.run()
    advice = {step.name: step for step in chain.advice(min_count=3).steps}
    counts = {name: (step.runs, step.fired, step.skipped, step.samples) for name, step in advice.items()}
    assert counts == {
        "fast": (3, 0, 0, 3),
        "slow": (3, 3, 0, 0),
        "refused": (3, 0, 0, 0),
        "last": (3, 0, 0, 0),
        "never": (0, 0, 3, 0),
    }
    assert (advice["fast"].suggested, advice["fast"].limit) == (0.05, 5)
    assert advice["slow"].suggested is None
    assert chain.steps["fast"].limit == 5


def test_advice_prints_as_a_table() -> None:
    """print(chain.advice()) has a row for each step, with how often its limit fired and the suggested one."""
    chain = Chain("c")
    chain.step(value(1), name="fast", limit=5)
    chain.run()
    head, row = str(chain.advice(min_count=1)).splitlines()
    assert head.split() == ["step", "runs", "fired", "skipped", "samples", "limit", "suggested"]
    assert row.split() == ["fast", "1", "0", "0", "1", "5.000", "s", "0.050", "s"]


def test_samples_are_bounded() -> None:
    """Only the latest durations are kept; samples=0 keeps none, and still counts."""
    for kept, expected in ((5, 5), (0, 0)):
        chain = Chain("c", samples=kept)
        chain.step(value(1), name="a")
        for _ in range(12):
            chain.run()
        (step,) = chain.advice(min_count=1).steps
        assert (step.runs, step.samples) == (12, expected)


def test_c245_advice_counts_the_steps_own_limit() -> None:
    """C245: `fired` counts the step's own limit, not the deadline of the run, nor a limit that the step gives to a call."""
    chain = Chain("c", deadline=0.1)
    chain.step(obedient, name="a", limit=5, fallback=1)
    chain.run()
    own = Chain("c", deadline=5)
    own.step(obedient, name="own", limit=0.1, fallback=1)
    own.step(raises(TotalTimeoutError("slow")), name="call", limit=2, fallback=1)
    own.step(obedient, name="write", limit=0.1, idempotency_key=True, fallback=1)
    own.step(obedient, name="verified", limit=0.1, verify=value(Settled(True)))
    own.run()
    fired = {step.name: step.fired for each in (chain, own) for step in each.advice().steps}
    assert fired == {"a": 0, "own": 1, "call": 0, "write": 1, "verified": 1}
    late = Chain("c", deadline=0.1)
    late.step(obedient, name="write", limit=5, idempotency_key=True, fallback=1)
    late.run()
    assert late.advice().steps[0].fired == 0
