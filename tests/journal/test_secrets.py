"""What the journal must never hold, planted wherever a stream, a run or a turn can pick it up."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import streamguard
from streamguard import CancelToken, Chain, before_first_chunk, guarded_stream, recent_failures
from streamguard.dispatch import CallableMember, Dispatcher
from streamguard.dispatch import Event as Said
from streamguard.journal.limit_advice import AdviceOptions, advise
from streamguard.journal.report_html import entries_page, report_page
from streamguard.journal.report_json import entries_data, summary_data
from streamguard.journal.report_text import failures_text, report_text
from streamguard.journal.summary import summed_up
from streamguard.testing import Gateway

from ..telemetry.test_secrets import SCRIPTS, SECRET
from .conftest import reader


def ask(gateway: Gateway, **options: Any) -> None:
    """Read a stream whose request is full of secrets, the name of its model too."""
    url = gateway.url.replace("http://", f"http://{SECRET}:{SECRET}@")
    body = {"model": SECRET, "messages": [{"content": SECRET}], SECRET: SECRET, "stream": True}
    headers = {"Authorization": f"Bearer {SECRET}", f"X-{SECRET}": SECRET}
    retry = before_first_chunk(1, wait=lambda state: 0.0)
    with suppress(Exception):
        guarded_stream(
            "POST", f"{url}/{SECRET}?key={SECRET}", headers=headers, json=body, retry=retry, name="chat", **options
        ).read()


def complains(prompt: str, context: Any) -> Any:
    yield Said.failure(SECRET, SECRET)


def raises(*arguments: Any) -> Any:
    raise ConnectionRefusedError(SECRET)


def dispatch() -> None:
    """Run members that output secrets, in a conversation named after one."""
    members = [CallableMember("raises", raises), CallableMember("complains", complains)]
    with Dispatcher() as dispatcher:
        dispatcher.dispatch(SECRET, members, SECRET, output_timeout=5)


def chain() -> None:
    """Run a chain whose inputs, values, messages and errors are secrets."""
    agent = Chain("agent", messages={"waiting_external_service": SECRET})
    agent.step(lambda ctx: SECRET, name="value")
    agent.step(raises, name="policy")
    agent.run(user=SECRET)


def cancel() -> None:
    """Cancel a stream for a reason that is a secret."""
    token = CancelToken()
    token.cancel(SECRET)
    with Gateway("chat a") as gateway:
        ask(gateway, cancel=token)


def test_nothing_of_request_response_or_error_is_kept(tmp_path: Path) -> None:
    """Neither in memory, nor in the file, nor in any report: whatever the end."""
    url = f"sqlite:///{tmp_path}/journal.db"
    streamguard.configure(journal=url)
    for script in SCRIPTS.values():
        with Gateway(script) as gateway:
            ask(gateway, idle=0.1)
    dispatch()
    chain()
    cancel()
    entries = reader(url)()
    assert {entry.kind for entry in entries} == {"stream", "run", "turn"}
    assert len(entries) == len(SCRIPTS) + 4
    summary, options = summed_up(entries), AdviceOptions(0.5, 0.5, min_count=1)
    advice = advise(summary, options)
    assert advice
    shown = [
        *map(repr, [*entries, *recent_failures()]),
        *map(str, entries),
        report_text(summary, advice, options),
        failures_text(entries),
        json.dumps([summary_data(summary, advice, options), entries_data(entries)]),
        report_page(summary, advice, options),
        entries_page(entries),
        *(file.read_bytes().decode("latin-1") for file in tmp_path.iterdir()),
    ]
    assert [text for text in shown if SECRET in text] == []
    assert any("_OTHER" in text for text in shown)


@pytest.mark.parametrize("hosts", ["127.0.0.1", "localhost"])
def test_no_host_is_kept(hosts: str) -> None:
    """Nor is its port: an entry has only your name for the stream."""
    with Gateway("chat a\nreset") as gateway:
        url = gateway.url.replace("127.0.0.1", hosts)
        stream = guarded_stream("GET", url, name="chat")
        with suppress(streamguard.StreamguardError):
            stream.read()
    (entry,) = [entry for entry in recent_failures() if entry.id == stream.report.id]
    shown = json.dumps(repr(entry)) + str(entry)
    assert hosts not in shown
    assert f":{url.rpartition(':')[2]}" not in shown
