"""The steps that end a process group: TERM, a grace, KILL, and a last bounded wait. Pure: the time is an argument."""

import signal

__all__ = ["Ladder"]


class Ladder:
    """Begun at *now*. *grace* seconds lie between TERM and KILL, and *drain* seconds behind KILL are all that is waited."""

    def __init__(self, now: float, *, grace: float, drain: float) -> None:
        self._drain = drain
        self._rungs = [(now, signal.SIGTERM), (now + grace, signal.SIGKILL)]
        self._end = now + grace + drain

    @property
    def killing(self) -> bool:
        """Whether KILL has been sent."""
        return not self._rungs

    def hurry(self, now: float) -> None:
        """Go to KILL at once."""
        if self._rungs:
            self._rungs = [(now, signal.SIGKILL)]
            self._end = now + self._drain

    def signals(self, now: float) -> list[signal.Signals]:
        """Return, once, the signals that are due at *now*."""
        due = [number for at, number in self._rungs if at <= now]
        self._rungs = self._rungs[len(due) :]
        if due and self.killing:
            self._end = max(self._end, now + self._drain)
        return due

    def wait(self, now: float) -> float:
        """Return the seconds to the next step."""
        return max(0.0, (self._rungs[0][0] if self._rungs else self._end) - now)

    def over(self, now: float) -> bool:
        """Whether everything was tried, and waited for."""
        return self.killing and now >= self._end
