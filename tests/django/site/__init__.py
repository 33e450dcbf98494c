"""A small Django project: what the tests of the face are served by, in this process and under gunicorn."""
