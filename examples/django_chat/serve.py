"""Serve the chat on loopback by gunicorn, with a scripted gateway for each model: `make example-django`.

    python examples/django_chat/serve.py [PORT]

Ends at Ctrl-C. It prints a line when a client leaves a model's server: press Stop on the page, or close it, to see one.
"""

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from streamguard.testing import Gateway

ANSWER = "The tide comes in twice a day, because the earth turns below the two bulges that the moon raises in the sea."
HERE = Path(__file__).parent


def script(text: str, *, pause: float) -> list[str]:
    """Return a script that says *text* word by word."""
    first, *rest = text.split(" ")
    words = [f"chat {first}", *(f"chat  {word}" for word in rest)]
    return [line for word in words for line in (word, f"wait {pause}")]


MODELS = {
    "answers": ["headers", "wait 3", *script(ANSWER, pause=0.15), "finish", "done"],
    "goes-silent": [*script(ANSWER[:60], pause=0.15), "stall"],
    "never-answers": ["headers", "loop forever", "comment still here", "wait 0.5", "endloop"],
}
"""What each model's server does, one script for all of its requests."""


def print_departures(model: str, gateway: Gateway) -> None:
    """Print a line each time that a client leaves a model before the answer is complete."""
    number = 0
    while True:
        number += 1
        left = gateway.wait_left(number, timeout=threading.TIMEOUT_MAX)
        print(f"{model}: the client of request {number} left during {left.during!r}", flush=True)


def main(port: int) -> int:
    """Serve until Ctrl-C."""
    with ExitStack() as started:
        gateways = {model: started.enter_context(Gateway(script)) for model, script in MODELS.items()}
        for model, gateway in gateways.items():
            threading.Thread(target=print_departures, args=(model, gateway), daemon=True).start()
        models = " ".join(f"{model}={gateway.url}" for model, gateway in gateways.items())
        command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--chdir", str(HERE.parent)]
        options = [
            "--worker-class",
            "gthread",
            "--threads",
            "20",
            "--graceful-timeout",
            "2",
            "django_chat.wsgi:application",
        ]
        print(f"the chat is at http://127.0.0.1:{port}/", flush=True)
        try:
            return subprocess.call([*command, *options], env={**os.environ, "CHAT_MODELS": models})
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 8000))
