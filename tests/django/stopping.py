"""gunicorn's configuration in a test: a worker that is told to stop ends its streams, as docs/django.md has it."""

import signal
from typing import Any


def post_worker_init(worker: Any) -> None:
    """Cancel the token that all streams share, in front of what gunicorn does at SIGTERM."""
    from tests.django.site.urls import stopping

    graceful: Any = signal.getsignal(signal.SIGTERM)

    def stop(number: int, frame: Any) -> None:
        stopping.cancel("the worker is stopping")
        graceful(number, frame)

    signal.signal(signal.SIGTERM, stop)
