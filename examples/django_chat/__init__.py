"""A chat page on Django: `make example-django` serves it."""
