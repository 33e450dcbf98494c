"""Published data holds no URL, header, token, argument, or text of servers and exceptions: each place has a secret."""

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamguard import Chain, ChainResult, StepContext, StepFailedError
from streamguard.testing import Gateway

Gateways = Callable[..., Gateway]

PLACES = ("url", "header", "argument", "body", "exception", "fallback", "value", "key-of-dict")
SECRETS = {place: f"s3cr3t-{place}" for place in PLACES}


class ForeignError(Exception):
    """Some SDK's, whose text quotes everything."""


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """Give a function that returns all that was logged: messages, arguments, extras, tracebacks."""
    caplog.set_level(logging.DEBUG, logger="streamguard")

    def logged() -> str:
        ours = [record for record in caplog.records if record.name.startswith("streamguard")]
        return "\n".join(f"{record.getMessage()} {record.__dict__!r} {record.exc_text}" for record in ours)

    return lambda: logged()


def leaky_chain(url: str) -> Chain:
    """Return a chain whose steps fail, each with secrets all around."""
    chain = Chain("agent", deadline=20)
    headers = {"Authorization": f"Bearer {SECRETS['header']}"}
    fallback = {SECRETS["key-of-dict"]: SECRETS["fallback"]}

    def ask(ctx: StepContext) -> Any:
        return ctx.get_json(f"{url}/{SECRETS['url']}?key={SECRETS['url']}&user={ctx.inputs['user']}", headers=headers)

    def foreign(ctx: StepContext) -> Any:
        try:
            raise OSError(SECRETS["exception"])
        except OSError as exc:
            raise ForeignError(f"{SECRETS['exception']} {ctx.inputs} {headers}") from exc

    def broken(failure: object) -> Any:
        raise ForeignError(SECRETS["exception"])

    chain.step(lambda ctx: SECRETS["value"], name="fine")
    chain.step(ask, name="optional", fallback=fallback)
    chain.step(foreign, name="foreign", handles=ForeignError, fallback=fallback)
    chain.step(ask, name="fallback_fails", fallback=broken)
    chain.step(lambda ctx: ctx.stream("POST", f"{url}/{SECRETS['url']}", headers=headers).read(), name="stream", fallback=1)
    chain.step(ask, name="critical")
    chain.step(lambda ctx: 1, name="later")
    return chain


def failures(result: ChainResult) -> Iterator[BaseException]:
    for name, report in result.steps.items():
        if not report.has_value:
            with pytest.raises(StepFailedError) as caught:
                result[name]
            yield caught.value


def everything_of(error: BaseException | None) -> str:
    """Return the text of an error and of all that hangs on it."""
    if error is None:
        return ""
    frames = "".join(traceback.format_exception_only(error))
    return (
        f"{error!r} {error} {error.__dict__} {frames}" + everything_of(error.__cause__) + everything_of(error.__context__)
    )


@pytest.mark.parametrize("script", ["headers 500 x-key: {0}\nbody {0}", "body {0}", "headers 401\nbody {0}"])
def test_nothing_secret_is_published(
    script: str, streamguard_gateway: Gateways, log: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither public(), nor a log line, nor repr and str of the result, nor what it raises, holds any of the secrets."""
    gateway = streamguard_gateway(script.format(SECRETS["body"]))
    result = leaky_chain(gateway.url).run(user=SECRETS["argument"])
    raised = [everything_of(error) for error in failures(result)]
    assert len(raised) == 3
    assert SECRETS["url"] in gateway.requests[0].target
    published = {
        "public": json.dumps(result.public()),
        "to_dict": json.dumps(result.to_dict()),
        "message": result.message,
        "str": str(result),
        "repr": f"{result!r} {result.steps!r}",
        "raised": "\n".join(raised),
        "log": log(),
        "output": "".join(capsys.readouterr()),
    }
    assert published["log"].count("'event': 'step_finished'") == 7
    leaks = {(where, place) for where, text in published.items() for place in PLACES if SECRETS[place] in text}
    assert leaks == set()
    assert gateway.url not in published["log"] + published["public"] + published["raised"] + published["to_dict"]


def test_the_context_shows_nothing(log: Callable[[], str]) -> None:
    """repr of what a step holds, and of the steps, shows no input and no value."""
    seen: list[str] = []
    chain = Chain("agent")
    one = chain.step(lambda ctx: SECRETS["value"], name="one", fallback=SECRETS["fallback"])
    chain.step(lambda ctx: seen.append(f"{ctx!r} {ctx.results!r} {chain!r} {one!r}"), name="two", needs="one")
    chain.run(user=SECRETS["argument"])
    assert "s3cr3t" not in seen[0] + log()


def test_a_bug_is_logged_by_its_type_only(log: Callable[[], str]) -> None:
    """The run's one line names the class of the bug; its text is the caller's to see, in the exception."""
    chain = Chain("agent")

    def step(ctx: StepContext) -> None:
        raise NameError(SECRETS["exception"])

    chain.step(step, name="one")
    with pytest.raises(NameError, match=SECRETS["exception"]):
        chain.run(user=SECRETS["argument"])
    assert "NameError" in log()
    assert "s3cr3t" not in log()


def test_a_failure_read_inside_of_an_except_block_adds_nothing_of_ours() -> None:
    """StepFailedError has no cause and no context of ours: only what the caller was handling anyway."""
    chain = Chain("agent")

    def step(ctx: StepContext) -> None:
        raise ConnectionRefusedError(SECRETS["exception"])

    chain.step(step, name="one")
    result = chain.run()
    with pytest.raises(StepFailedError) as caught:
        result["one"]
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
