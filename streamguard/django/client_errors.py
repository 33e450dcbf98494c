"""What a client learns about a failure: one of a few sentences, and fields for programs. Never text of others."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse, JsonResponse

from ..classify import classify
from ..errors import IncompleteStreamError, StreamguardError

_SENTENCES = {
    "cancel": "The answer was cancelled.",
    "deadline": "The answer took too long.",
    "http": "The upstream refused the request.",
    "server": "The upstream reported an error.",
    "protocol": "The upstream sent something unreadable.",
    "transport": "The connection to the upstream failed.",
    "unknown": "The answer failed.",
}
_SILENT = "The upstream went silent."
_NO_ANSWER = "The upstream did not answer in time."
_CUT_OFF = "The upstream's answer was cut off."
_STATUS: Mapping[str, int] = {"cancel": 503, "deadline": 504}


def failure_of(exc: BaseException) -> dict[str, Any]:
    """Return what a client may know of *exc*, for JSON: `kind`, `code`, `phase`, `message` and `id`.

    It contains no text of an exception or a server, no host and no URL.
    """
    meaning = classify(exc)
    ours = isinstance(exc, StreamguardError)
    return {
        "kind": meaning.kind if ours else "internal",
        "code": meaning.transport_code if ours else None,
        "phase": getattr(exc, "phase", None) if ours else None,
        "message": _sentence(exc, meaning.kind) if ours else _SENTENCES["unknown"],
        "id": getattr(exc, "id", None) if ours else None,
    }


def status_of(exc: BaseException) -> int:
    """Return the status for a failure before the response: 504 too late, 503 cancelled, 502 anything else."""
    return 504 if isinstance(exc, TimeoutError) else _STATUS.get(classify(exc).kind, 502)


def failure_response(exc: BaseException) -> HttpResponse:
    """Return a complete response that reports *exc*: `{"error": {...}}`."""
    return JsonResponse({"error": failure_of(exc)}, status=status_of(exc), headers={"Cache-Control": "no-store"})


def _sentence(exc: BaseException, kind: str) -> str:
    if isinstance(exc, IncompleteStreamError):
        return _CUT_OFF
    if kind == "transport" and isinstance(exc, TimeoutError):
        return _SILENT if getattr(exc, "phase", None) in ("idle", "dead") else _NO_ANSWER
    return _SENTENCES[kind]
