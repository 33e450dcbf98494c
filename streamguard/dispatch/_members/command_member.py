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
from .member import TurnContext

_TO_LEAVE = 5.0
"""Seconds, besides the grace, in which what has been stopped is drained, looked for, and reaped."""

_CODES = {"first": STARTUP_TIMEOUT, "deadline": "deadline_exceeded"}
"""What a turn gets in place of `timeout`, which would be its own timer's."""

_PLACE = re.compile(r"\{(prompt|session)\}")


@dataclass(frozen=True, slots=True)
class Preset:
    """How an agent program is called: for a new session, and for one that is resumed."""

    argv: tuple[str, ...]
    resume: tuple[str, ...] | None
    """None if the program names no session that it could resume."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Set unless the caller's environment sets it."""


_CLAUDE = ("claude", "-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages")
_GEMINI = ("gemini", "-o", "stream-json")
_OPENCODE = ("opencode", "run", "--format", "json")
_QWEN = ("qwen", "-o", "stream-json", "--include-partial-messages")
_CLINE_PROMPT = "Carry out the task that follows."
"""cline appends its standard input to its prompt, which must be two words or more and must not begin with `-`."""

PRESETS: Mapping[str, Preset] = {
    "claude": Preset(_CLAUDE, (*_CLAUDE, "--resume", "{session}")),
    "codex": Preset(("codex", "exec", "--json", "-"), ("codex", "exec", "--json", "resume", "{session}", "-")),
    "gemini": Preset(_GEMINI, (*_GEMINI, "--resume", "{session}")),
    "opencode": Preset(_OPENCODE, (*_OPENCODE, "--session", "{session}")),
    "qwen": Preset(_QWEN, (*_QWEN, "--resume", "{session}")),
    # Else cline starts a daemon that outlives it.
    "cline": Preset(("cline", "--json", _CLINE_PROMPT), None, {"CLINE_SESSION_BACKEND_MODE": "local"}),
}
"""The agent programs whose formats are known."""


class CommandMember:
    """Runs a program for each turn; nothing of it is left after the turn.

    name:   of the member.
    argv:   the program and its arguments. `{prompt}` in one of them stands for the prompt; without it, the prompt is the
            program's standard input, which is then closed.
    format: how its output is read. Default "lines".
    resume: argv for a turn that resumes a session, with `{session}` in it. Default: sessions are not resumed.

    *env*, *cwd*, *pty*, *ignore*, *final*, *grace* and *linger* are those of `run_command`.

    Raises UsageError for a name, argv or format that cannot be right.

    Limits
        It has no timeout of its own but the start-up limit that a turn brings (R25, R26): then it ends with
        `done("startup_timeout")`. Standard error never counts as output.
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
            raise UsageError("a member needs a name")
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
        self.stop_grace = self._plan.grace_seconds() + _TO_LEAVE
        """Seconds that the program may take to end after the stop."""
        self.done_grace = self._plan.linger_seconds() + self.stop_grace
        """Seconds that it may take to end once it has said `done`."""

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
        """Return a member for one of the known agent programs: claude, codex, gemini, opencode, qwen, cline.

        name:      default: the program's.
        arguments: more of its options, such as `["--model", "opus"]`.
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
        """Run the program, and yield what it says. Raises `CommandStartError` if it cannot be started."""
        with CommandStream[Event](self._plan_for(prompt, context)) as stream:
            if stream.pid:
                context.probe(SnapshotProbe(stream.pid, lambda: stream.result.evidence if stream.ended else None))
            try:
                for event in stream:
                    try:
                        yield from _told(event, stream, context)
                    finally:
                        if event.kind is Kind.DONE:
                            stream.read()  # the program may take its `linger` to end
            finally:
                context.probe(None)

    def _plan_for(self, prompt: str, context: TurnContext) -> CommandPlan:
        # The program chose the session's id: one that begins with "-" would be read as an option of its own.
        resumed = context.session_id is not None and not context.session_id.startswith("-")
        template = self._resume if resumed and self._resume is not None else self._plan.argv
        values = {"prompt": prompt, "session": context.session_id or ""}
        argv = [_PLACE.sub(lambda match: values[match[1]], word) for word in template]
        to_stdin = not any("{prompt}" in word for word in template)
        return replace(self._plan, argv=argv, input=prompt if to_stdin else None, first=context.first, cancel=context.token)


def _told(event: Event, stream: CommandStream[Event], context: TurnContext) -> Iterator[Event]:
    """Yield the event as the turn is to see it: a turn that was stopped gets no `done` from here."""
    if stream.ended and event.kind in (Kind.ERROR, Kind.DONE) and event.error_code in ("timeout", "cancelled"):
        if stream.result.limit in _CODES:
            yield replace(event, error_code=_CODES[stream.result.limit])
            return
        if context.token.cancelled:
            return
    yield event


def _with(arguments: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return *words* with *arguments* after the options and before the first word that is not an option."""
    tail = next((n for n, word in enumerate(words) if word in ("-", "{prompt}", "resume", _CLINE_PROMPT)), len(words))
    return [*words[:tail], *arguments, *words[tail:]]
