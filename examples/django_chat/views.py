"""The page, and its stream."""

from typing import Any

from django.conf import settings
from django.http import HttpResponseBadRequest
from django.shortcuts import render

from streamguard import guarded_stream
from streamguard.django import sse_response


def page(request: Any) -> Any:
    """Show the chat."""
    return render(request, "chat.html", {"models": settings.MODELS})


def ask(request: Any) -> Any:
    """Stream the answer of the model that was asked."""
    url = settings.MODELS.get(request.POST.get("model", ""))
    if url is None:
        return HttpResponseBadRequest("unknown model")
    messages = [{"role": "user", "content": request.POST.get("question", "")}]
    payload = {"model": request.POST["model"], "stream": True, "messages": messages}
    return sse_response(request, guarded_stream("POST", f"{url}/v1/chat/completions", json=payload, name="chat"))
