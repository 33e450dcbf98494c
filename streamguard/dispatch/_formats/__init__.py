"""The output of agent programs, read as events."""

from .base import Format
from .registry import FORMATS, Pattern, buffered_output, make_format

__all__ = ["FORMATS", "Format", "Pattern", "buffered_output", "make_format"]
