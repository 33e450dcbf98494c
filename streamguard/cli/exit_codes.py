"""The exit codes of the command."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes: those of timeout(1) and of the shell, if they have one."""

    COMPLETE = 0
    FAILED = 1
    USAGE = 2
    TIMEOUT = 124
    SUPERVISOR = 125
    """`run` itself failed, or was used wrongly."""
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
    """Ctrl-C: 128 + SIGINT."""
    PIPE = 141
    """The output is closed: 128 + SIGPIPE."""
