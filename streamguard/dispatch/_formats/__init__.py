"""Formats: they read the output of agent programs as events."""

from .base import Format
from .registry import FORMATS, Pattern, buffered_output, make_format

__all__ = ["FORMATS", "Format", "Pattern", "buffered_output", "make_format"]
