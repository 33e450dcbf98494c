"""The project's settings: what a chat needs, and no more."""

import os
from pathlib import Path

from django.core.management.utils import get_random_secret_key

SECRET_KEY = get_random_secret_key()
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "django_chat.urls"
WSGI_APPLICATION = "django_chat.wsgi.application"
INSTALLED_APPS = ["streamguard.django"]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "streamguard.django.DeadlineMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(__file__).parent / "templates"],
        "OPTIONS": {"context_processors": ["django.template.context_processors.request"]},
    }
]
STREAMGUARD = {
    "HEARTBEAT": 1,  # so that there is something to see; 15 is enough for proxies
    "DEADLINE": 30,
    "LIMITS": {"connect": 5, "response": 10, "idle": float(os.environ.get("CHAT_IDLE", "6"))},
}
MODELS: dict[str, str] = dict(pair.split("=", 1) for pair in os.environ["CHAT_MODELS"].split())
"""Where each model is served, by its name."""
