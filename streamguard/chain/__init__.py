"""Steps that call external services, under one deadline."""

from .advice import Advice, StepAdvice, suggest_limits
from .chain import Chain
from .context import Results, StepContext
from .report import ChainResult, StepReport
from .status import RunStatus, StepStatus
from .step import Settled, Step

__all__ = [
    "Advice",
    "Chain",
    "ChainResult",
    "Results",
    "RunStatus",
    "Settled",
    "Step",
    "StepAdvice",
    "StepContext",
    "StepReport",
    "StepStatus",
    "suggest_limits",
]
