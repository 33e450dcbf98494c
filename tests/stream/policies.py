"""What the tests of retries share: two scripts, and a policy that tries anything again."""

from typing import Any

import tenacity

GOOD = "chat a\nchat b\nfinish\ndone"
STALL = "headers\nstall"
NOW = tenacity.wait_none()


def policy(attempts: int = 3, **options: Any) -> tenacity.Retrying:
    """Return a policy of tenacity's own that tries anything again, at once."""
    return tenacity.Retrying(**{"stop": tenacity.stop_after_attempt(attempts), "wait": NOW, **options})
