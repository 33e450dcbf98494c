"""Database connections belong to a thread in Django, and it closes only those of threads that serve requests."""

from django.db import connections

from .._core.thread_hooks import at_thread_end


def close_connections_of_our_threads() -> None:
    """Close what a thread of ours has opened when what it ran ends: a chain's step, a member, an `auth=` of yours.

    *Limits*: code that streamguard could not stop keeps its connection until it ends by itself.
    """
    at_thread_end(close_connections)


def close_connections() -> None:
    """Close the connections that this thread has used, unless it is inside an atomic block."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
