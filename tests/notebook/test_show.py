"""`show()` in a real kernel."""

from collections.abc import Callable

import pytest

from streamguard.testing import Gateway

from .kernels import Kernel

Serve = Callable[..., Gateway]


def show(gateway: Gateway, keywords: str = "", options: str = "") -> str:
    return f"report = show(guarded_stream('POST', {gateway.url!r}, json={{}}, retry=None{keywords}){options})"


def test_text_is_live(kernel: Kernel, streamguard_gateway: Serve) -> None:
    """The text is on display while the upstream is silent, with phase, rate, silence and time left; then all of it."""
    gateway = streamguard_gateway("chat Hello\nwait 0.7\nchat , <world>\nfinish\ndone")
    cell = kernel.run(show(gateway, ", idle=5"))
    assert cell.status == "ok", cell
    middle = [page for page in cell.pages if "Hello" in page and "world" not in page]
    assert len(middle) >= 2
    assert all("[idle]" in page and "chunks/s, silent for 0." in page and " s left" in page for page in middle)
    assert "Hello, &lt;world&gt;" in cell.pages[-1]
    assert "completed after" in cell.pages[-1]


def test_it_returns_the_report(kernel: Kernel, streamguard_gateway: Serve) -> None:
    """The report of the stream, which a notebook draws."""
    kernel.run(show(streamguard_gateway("chat Hello\nfinish\ndone")))
    cell = kernel.run("report")
    assert "<svg" in cell.result["text/html"]
    assert "completed" in cell.result["text/plain"]


def test_an_interrupt_stops_it_in_silence(kernel: Kernel, streamguard_gateway: Serve) -> None:
    """The kernel's interrupt ends the cell, and the upstream has seen it within a second; the text stays."""
    gateway = streamguard_gateway("chat Hello\nstall")
    cell = kernel.begin(show(gateway))
    kernel.wait(cell, lambda: any("Hello" in page for page in cell.pages))
    pressed_at = kernel.interrupt()
    assert gateway.wait_left().at - pressed_at < 1
    kernel.finish(cell)
    assert (cell.status, cell.error) == ("error", "KeyboardInterrupt")
    assert "Hello" in cell.pages[-1]
    assert "closed after" in cell.pages[-1]
    assert "<svg" in cell.pages[-1]


@pytest.mark.parametrize("script", ["stall", "headers\nstall"], ids=["no headers", "no chunk"])
def test_an_interrupt_stops_it_before_anything_came(kernel: Kernel, streamguard_gateway: Serve, script: str) -> None:
    """It makes no difference in which phase the stream is."""
    gateway = streamguard_gateway(script)
    running = kernel.begin(show(gateway))
    gateway.wait_step("stall")
    pressed_at = kernel.interrupt()
    assert gateway.wait_left().at - pressed_at < 1
    assert kernel.finish(running).error == "KeyboardInterrupt"


def test_a_limit_is_shown_and_raised(kernel: Kernel, streamguard_gateway: Serve) -> None:
    """When the upstream goes silent the cell ends with the error; the text, the reason and the timeline are there."""
    cell = kernel.run(show(streamguard_gateway("chat Hello\nstall"), ", idle=0.3"))
    assert cell.error == "StreamInactivityTimeoutError"
    assert "Hello" in cell.pages[-1]
    assert "timeout after" in cell.pages[-1]
    assert "no further chunk for 0.3 s" in cell.pages[-1]
    assert 'class="gap"' in cell.pages[-1]


def test_nothing_is_left_in_the_kernel(kernel: Kernel, streamguard_gateway: Serve) -> None:
    """After an end, an error and an interrupt there is no thread and no descriptor more than before."""
    gateway = streamguard_gateway("chat Hello\nfinish\ndone", "headers 500\nbody x", "chat Hello\nstall")
    kernel.run("from streamguard.testing import LeakCheck\ncheck = LeakCheck()")
    kernel.run(show(gateway))
    kernel.run(show(gateway))
    running = kernel.begin(show(gateway))
    gateway.wait_step("stall", request=2)
    kernel.interrupt()
    kernel.finish(running)
    cell = kernel.run("check.check()")
    assert cell.status == "ok", cell.message


@pytest.mark.parametrize(
    ("decode", "options", "shown"),
    [("events", "", "one\ntwo\n"), ("json", "", "12"), ("events", ", text=lambda event: event.data.upper()", "ONETWO")],
)
def test_other_chunks_are_shown(kernel: Kernel, streamguard_gateway: Serve, decode: str, options: str, shown: str) -> None:
    """Events by their data, other things by their str(), and anything by a function of one's own."""
    events = "event 1\nevent 2" if decode == "json" else "event one\nevent two"
    cell = kernel.run(show(streamguard_gateway(events), f", decode={decode!r}, strict=False", options))
    assert cell.status == "ok", cell.message
    assert f">{shown}</div>" in cell.pages[-1]


def test_the_stream_of_an_sdk(kernel: Kernel, streamguard_gateway: Serve) -> None:
    """The stream of an SDK goes through guard(): its text is shown."""
    gateway = streamguard_gateway("chat Hello\nchat , world\nfinish\ndone")
    kernel.run(f"import openai; client = openai.OpenAI(api_key='dummy', base_url={gateway.url + '/v1'!r}, max_retries=0)")
    cell = kernel.run("show(client.chat.completions.create(model='m', messages=[], stream=True))")
    assert cell.status == "ok", cell
    assert "Hello, world" in cell.pages[-1]


def test_what_is_not_a_stream_is_refused(kernel: Kernel) -> None:
    """What guard() cannot take without options is one TypeError, and nothing is displayed."""
    cell = kernel.run("show(iter(['text']))")
    assert (cell.error, cell.pages) == ("TypeError", [])
