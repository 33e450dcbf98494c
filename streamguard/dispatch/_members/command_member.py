"""A member that is a program."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from ...errors import UsageError
from .._command.command import CommandStream
from .._command.command_options import CommandPlan, Patterns
from .._data.turn_events import STARTUP_TIMEOUT, Event, Kind
from .._process.snapshot import SnapshotProbe
from .failure_codes import DEADLINE_EXCEEDED
from .member import TurnContext

_CLEANUP_SECONDS = 5.0
"""Seconds in addition to the grace, to drain the output and to collect the processes."""

_CODES = {"first": STARTUP_TIMEOUT, "deadline": DEADLINE_EXCEEDED}
"""Error codes of a command's limits: `timeout` is the code of the turn's own output timeout."""

_PLACE = re.compile(r"\{(prompt|session)\}")


@dataclass(frozen=True, slots=True)
class Preset:
    """The command lines of an agent program, for a new session and for one that is resumed."""

    argv: tuple[str, ...]
    resume: tuple[str, ...] | None
    """None if the program reports no session that it can resume."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set unless the caller's environment sets them."""


_CLAUDE = ("claude", "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages")
_GEMINI = ("gemini", "-o", "stream-json")
_OPENCODE = ("opencode", "run", "--format", "json")
_QWEN = ("qwen", "-o", "stream-json", "--include-partial-messages")
_CLINE_PROMPT = "Carry out the task that follows."
"""cline appends its standard input to its prompt, which must have two words or more and must not start with `-`."""

PRESETS: Mapping[str, Preset] = {
    "claude": Preset(_CLAUDE, (*_CLAUDE, "--resume", "{session}")),
    "codex": Preset(("codex", "exec", "--json", "-"), ("codex", "exec", "--json", "resume", "{session}", "-")),
    "gemini": Preset(_GEMINI, (*_GEMINI, "--resume", "{session}")),
    "opencode": Preset(_OPENCODE, (*_OPENCODE, "--session", "{session}")),
    "qwen": Preset(_QWEN, (*_QWEN, "--resume", "{session}")),
    # Without it, cline starts a daemon that outlives it.
    "cline": Preset(("cline", "--json", _CLINE_PROMPT), None, {"CLINE_SESSION_BACKEND_MODE": "local"}),
}
"""The known agent programs."""


class CommandMember:
    """A member that runs a program for each turn. No process of it is left after the turn.

    name:   the member's name.
    argv:   the program and its arguments. `{prompt}` in an argument is replaced by the prompt. Without it, the program
            reads the prompt from its standard input.
    format: how the output is read. Default "lines".
    resume: argv for a turn that resumes a session, with `{session}` in it. Default None: sessions are not resumed.

    *env*, *cwd*, *pty*, *ignore*, *final*, *grace* and *linger* are those of `run_command`.

    Raises UsageError for an invalid argument.

    Limits
        The only timeout of its own is the start-up limit of the turn: it ends the turn with `done("startup_timeout")`.
        Standard error never counts as output.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        format: str = "lines",
        resume: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        pty: bool = False,
        ignore: Patterns = None,
        final: Patterns = None,
        grace: float = 3.0,
        linger: float = 1.0,
    ) -> None:
        if not name:
            raise UsageError(f"name= must be a non-empty string, got {name!r}")
        self.name = name
        self._resume = resume
        self._plan = CommandPlan(
            argv=argv,
            format=format,
            stdout_only=True,
            env=env,
            cwd=cwd,
            pty=pty,
            ignore=ignore,
            final=final,
            grace=grace,
            linger=linger,
            frames=True,
        )
        self._plan.check()
        self.stop_grace = self._plan.grace_seconds() + _CLEANUP_SECONDS
        """Seconds that the program may take to end after a stop."""
        self.done_grace = self._plan.linger_seconds() + self.stop_grace
        """Seconds that the program may take to end after its result."""

    @classmethod
    def preset(
        cls,
        program: str,
        *,
        name: str | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Return a member for a known agent program: claude, codex, gemini, opencode, qwen or cline.

        name:      the member's name. Default: the program's.
        arguments: further options of the program, such as `["--model", "opus"]`.

        Raises UsageError for an unknown program.
        """
        if program not in PRESETS:
            raise UsageError(f"unknown preset {program!r}: expected one of {', '.join(PRESETS)}")
        known = PRESETS[program]
        argv = _with(arguments, known.argv)
        resume = None if known.resume is None else _with(arguments, known.resume)
        if known.env:
            env = {**known.env, **(os.environ if env is None else env)}
        return cls(name or program, argv, format=program, resume=resume, env=env, cwd=cwd)

    def run(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        """Run the program, and yield its events. Raises `CommandStartError` if it cannot be started."""
        with CommandStream[Event](self._plan_for(prompt, context)) as stream:
            if stream.pid:
                context.probe(SnapshotProbe(stream.pid, lambda: stream.result.evidence if stream.ended else None))
            try:
                for event in stream:
                    try:
                        yield from _for_turn(event, stream, context)
                    finally:
                        if event.kind is Kind.DONE:
                            stream.read()  # the program may take its `linger` to exit
            finally:
                context.probe(None)

    def _plan_for(self, prompt: str, context: TurnContext) -> CommandPlan:
        # The program chose the session's id. It would take an id that starts with "-" for an option.
        resumed = context.session_id is not None and not context.session_id.startswith("-")
        template = self._resume if resumed and self._resume is not None else self._plan.argv
        values = {"prompt": prompt, "session": context.session_id or ""}
        argv = [_PLACE.sub(lambda match: values[match[1]], word) for word in template]
        to_stdin = not any("{prompt}" in word for word in template)
        return replace(self._plan, argv=argv, input=prompt if to_stdin else None, first=context.first, cancel=context.token)


def _for_turn(event: Event, stream: CommandStream[Event], context: TurnContext) -> Iterator[Event]:
    """Yield the event with the error code for turns; for a stopped turn, no `error` and no `done`."""
    if stream.ended and event.kind in (Kind.ERROR, Kind.DONE) and event.error_code in ("timeout", "cancelled"):
        if stream.result.limit in _CODES:
            yield replace(event, error_code=_CODES[stream.result.limit])
            return
        if context.token.cancelled:
            return
    yield event


def _with(arguments: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return *words* with *arguments* before the first word that is not an option."""
    tail = next((n for n, word in enumerate(words) if word in ("-", "{prompt}", "resume", _CLINE_PROMPT)), len(words))
    return [*words[:tail], *arguments, *words[tail:]]
