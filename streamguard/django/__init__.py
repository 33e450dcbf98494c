"""The face for Django: streaming answers of a guarded upstream, and one time budget for each request.

`pip install 'streamguard[django]'`; put `"streamguard.django"` into INSTALLED_APPS. The manual's page is docs/django.md.
"""

from .middleware import DeadlineMiddleware
from .sse import sse_response

__all__ = ["DeadlineMiddleware", "sse_response"]
