"""Streams that other libraries opened: how each kind is detected, read and cut."""
