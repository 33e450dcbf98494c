"""Its settings. GZipMiddleware is there to be kept out of the streams."""

import os
import tempfile

SECRET_KEY = "of no importance"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.django.site.urls"
WSGI_APPLICATION = "tests.django.site.wsgi.application"
INSTALLED_APPS = ["streamguard.django"]
MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", "streamguard.django.DeadlineMiddleware"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.path.join(tempfile.gettempdir(), f"streamguard-tests-{os.getpid()}.sqlite3"),
        "TEST": {"NAME": ":memory:"},
    }
}
STREAMGUARD = {"DEADLINE_HEADER": "X-Request-Timeout", "DEADLINE_MAX": 20}
USE_TZ = True
