"""Responses of other HTTP libraries as `requests.Response`, so that one reader judges and reads them all."""

import http.client
from collections.abc import Iterator
from typing import Any

import requests
import urllib3
from requests.structures import CaseInsensitiveDict

from .detect import url_of


def view_of_urllib3(raw: Any) -> requests.Response:
    """Return a requests.Response around a urllib3 response, whose body it reads."""
    view = _view(raw.status, raw.reason, raw.headers, raw.geturl())
    view.raw = raw
    if raw.isclosed():  # it was loaded at once: nothing is left on the wire
        view._content, view._content_consumed = raw.data, True  # type: ignore[attr-defined]
    return view


def view_of_http_client(response: http.client.HTTPResponse) -> requests.Response:
    """Return a requests.Response around one of http.client's, whose body urllib3 reads and decodes."""
    raw = urllib3.HTTPResponse(
        response, urllib3.HTTPHeaderDict(response.headers.items()), response.status, preload_content=False
    )
    if raw.length_remaining != response.length or getattr(response, "chunk_left", None) is not None:
        raw.length_remaining = response.length  # some of it has been read: too late for decoding
        raw.headers.discard("content-encoding")
    view = _view(response.status, response.reason, response.headers, getattr(response, "url", ""))
    view.raw = raw
    return view


def view_of_httpx(response: Any, *, body: bool) -> requests.Response:
    """Return a requests.Response around one of httpx or httpx2; without *body*, for its headers only."""
    view = _view(response.status_code, response.reason_phrase, response.headers, url_of(response))
    if body:
        view.raw = _Blocks(response.iter_bytes())
    return view


def _view(status: int, reason: str | None, headers: Any, url: str | None) -> requests.Response:
    view = requests.Response()
    view.status_code, view.reason, view.url = status, reason or "", url or ""
    view.headers = CaseInsensitiveDict(headers.items())
    return view


class _Blocks:
    """An iterator of blocks, read one by one."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks

    def read1(self, size: int) -> bytes:
        return next(self._blocks, b"")

    def close(self) -> None:
        """Do nothing: the reader closes the response."""
