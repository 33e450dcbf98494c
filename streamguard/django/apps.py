"""The Django application: looks at the settings when the project starts, not at the first request."""

from django.apps import AppConfig

from .connections import close_connections_of_our_threads
from .settings import apply_limits, load_settings


class StreamguardConfig(AppConfig):  # type: ignore[misc] # Django has no types
    """Validate `STREAMGUARD`, apply its LIMITS, and see to the database connections of our threads."""

    name = "streamguard.django"
    label = "streamguard"
    verbose_name = "streamguard"

    def ready(self) -> None:
        """Raise ImproperlyConfigured for a setting that cannot be right, by its key."""
        apply_limits(load_settings())
        close_connections_of_our_threads()
