"""Two views: the page, and its stream."""

from django.urls import path
from django.views.decorators.http import require_GET, require_POST

from .views import ask, page

urlpatterns = [path("", require_GET(page)), path("ask", require_POST(ask), name="ask")]
