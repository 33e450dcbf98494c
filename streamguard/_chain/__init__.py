"""Steps that call external services, under one deadline."""

from .bulkhead import Bulkhead
from .chain import Chain
from .chain_report import ChainResult, StepReport
from .context import Results, StepContext
from .step import Settled, Step
from .step_advice import Advice, StepAdvice
from .step_status import RunStatus, StepStatus
from .suggested_limits import suggest_limits

__all__ = [
    "Advice",
    "Bulkhead",
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
