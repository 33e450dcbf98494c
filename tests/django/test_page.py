"""The example's page in a real browser: what a person sees, and what the upstream sees."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamguard.testing import Gateway

from .serving import ROOT, Project, gunicorn

webdriver = pytest.importorskip("selenium.webdriver")

from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

pytestmark = pytest.mark.timeout(300)  # the browser may have to be installed first

PICTURES = ROOT / "build" / "screenshots"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=800,600",
)
MODELS = {
    "answers": "headers\nwait 1.7\nchat The tide\nwait 0.2\nchat  comes in\nstall",
    "goes-silent": "chat The tide comes in\nstall",
    "completes": "chat All\nchat  of it.\nfinish\ndone",
    "refuses": "headers 401\nbody no key",
}


def find_browser() -> tuple[str, str]:
    """Return chromium and its driver; install them in CI, skip the test on a developer's machine that has none."""
    if os.environ.get("CI") == "true":
        subprocess.run([ROOT / ".ci" / "chromium"], check=True, timeout=280)
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if found[0] is None or found[1] is None:
        pytest.skip("needs chromium and chromedriver: run .ci/chromium as root, or install both")
    return found[0], found[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start headless Chromium, with a profile of its own."""
    chromium, driver = find_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def gateways() -> Iterator[dict[str, Gateway]]:
    """Serve each model, for all tests: they look at the request that they made."""
    started = {model: Gateway(script).start() for model, script in MODELS.items()}
    yield started
    for gateway in started.values():
        gateway.stop()


@pytest.fixture(scope="module")
def address(gateways: dict[str, Gateway]) -> Iterator[str]:
    """Serve the example, and return where."""
    models = " ".join(f"{model}={gateway.url}" for model, gateway in gateways.items())
    chat = Project(ROOT / "examples", "django_chat", {"CHAT_MODELS": models, "CHAT_IDLE": "2.5"})
    with gunicorn("gthread", project=chat) as server:
        yield f"http://127.0.0.1:{server.address[1]}/"


class Page:
    """The page, as a person uses it."""

    def __init__(self, browser: Any, address: str) -> None:
        self._browser = browser
        browser.get(address)

    def __getitem__(self, id: str) -> Any:
        return self._browser.find_element(By.ID, id)

    def ask(self, model: str) -> None:
        """Choose *model* and press Ask."""
        self._browser.find_element(By.XPATH, f"//option[.='{model}']").click()
        self["ask"].click()

    def wait(self, holds: Callable[[], object]) -> None:
        """Wait until *holds* is true."""
        WebDriverWait(self._browser, 15, poll_frequency=0.02).until(lambda _: holds())

    def picture(self, name: str) -> None:
        """Keep what it looks like, for whoever builds to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        assert self._browser.save_screenshot(str(PICTURES / f"{name}.png"))


@pytest.fixture
def page(browser: Any, address: str) -> Page:
    """Open the page anew."""
    return Page(browser, address)


def test_text_comes_live_and_stop_frees_the_upstream(page: Page, gateways: dict[str, Gateway]) -> None:
    """While the model is silent the light beats; text is there as it comes; Stop closes the upstream in its silence."""
    gateway = gateways["answers"]
    page.ask("answers")
    page.wait(lambda: page["words"].text == "waiting for the model" and "on" in page["beat"].get_attribute("class"))
    page.picture("waiting")
    page.wait(lambda: page["answer"].text == "The tide")
    page.wait(lambda: page["answer"].text == "The tide comes in")
    gateway.wait_step("stall")
    page.picture("answering")
    assert gateway.requests[-1].left is None
    page["stop"].click()
    assert gateway.wait_left().during == "stall"
    page.wait(lambda: page["words"].text == "stopped" and page["ask"].is_enabled())
    assert not page["error"].is_displayed()


def test_a_silent_upstream_ends_in_a_visible_error(page: Page, gateways: dict[str, Gateway]) -> None:
    """The text stays, the error says what happened, and one can ask again."""
    page.ask("goes-silent")
    page.wait(lambda: page["error"].is_displayed())
    page.picture("failed")
    assert page["error"].text == "The upstream went silent."
    assert (page["answer"].text, page["words"].text) == ("The tide comes in", "failed")
    assert page["ask"].is_enabled()
    assert gateways["goes-silent"].wait_left().during == "stall"


def test_a_whole_answer(page: Page) -> None:
    """It ends as completed, without an error."""
    page.ask("completes")
    page.wait(lambda: page["words"].text == "completed")
    assert page["answer"].text == "All of it."
    assert not page["error"].is_displayed()


def test_a_refusal_is_an_error_too(page: Page) -> None:
    """A failure before the stream, which has a status of its own, is shown like any other."""
    page.ask("refuses")
    page.wait(lambda: page["error"].is_displayed())
    assert page["error"].text == "The upstream refused the request."


def test_a_page_that_is_left_frees_the_upstream(page: Page, gateways: dict[str, Gateway], browser: Any) -> None:
    """Going elsewhere in the middle is as good as Stop."""
    gateway = gateways["answers"]
    before = len(gateway.requests)
    page.ask("answers")
    gateway.wait_request(before + 1)
    browser.get("about:blank")
    gateway.wait_left(before + 1)
