"""The Django application: reads the settings when the project starts, not at the first request."""

from django.apps import AppConfig

from .connections import close_connections_of_our_threads
from .settings import apply_limits, load_settings


class StreamguardConfig(AppConfig):  # type: ignore[misc] # Django has no types
    """Validate `STREAMGUARD`, apply its LIMITS, and have our threads close their database connections."""

    name = "streamguard.django"
    label = "streamguard"
    verbose_name = "streamguard"

    def ready(self) -> None:
        """Raise ImproperlyConfigured, which names the key, for an invalid setting."""
        apply_limits(load_settings())
        close_connections_of_our_threads()
