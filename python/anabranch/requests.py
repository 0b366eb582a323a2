"""An adapter for requests: the bodies of large answers come from all mirrors over all links.

    session = requests.Session()
    session.mount("https://a.example/", anabranch.requests.Adapter(mirrors={"https://a.example/": ["https://b.example/"]}))

What is no plain GET, and what the server does not answer with 200, goes through requests as before.
"""

from __future__ import annotations

import os
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3 import HTTPHeaderDict, HTTPResponse

import anabranch
from anabranch._mirrors import Mirrors
from anabranch._plan import OWN_FIELDS, check, plan


class Adapter(HTTPAdapter):
    """Fetches bodies with anabranch. `mirrors` says where else files are; further arguments are the options of
    `anabranch.get`. Bodies of less than `least_bytes` come from the server alone.

    The session's proxies, `verify` and read time-out hold for bodies, too; a request with a client's certificate stays with
    requests. A request with secrets (any header field but Accept, Accept-Language and User-Agent) is sent to no mirror of
    another host.
    """

    __attrs__ = [*HTTPAdapter.__attrs__, "_plan"]

    def __init__(self, mirrors: Mirrors | None = None, least_bytes: int = 1 << 20, **options: Any) -> None:
        super().__init__()
        check(options)
        self._plan = (mirrors, least_bytes, options)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        own = {"stream": stream, "timeout": timeout, "verify": verify, "cert": cert, "proxies": proxies}
        fields = {name.lower() for name in request.headers}
        if request.method != "GET" or request.body or OWN_FIELDS & fields or cert or _is_directory(verify):
            return super().send(request, **own)
        head = request.copy()
        head.method = "HEAD"
        head.headers["Accept-Encoding"] = "identity"
        described = super().send(head, **own)
        mirrors, least_bytes, options = self._plan
        options = _of_session(str(request.url), timeout, verify, proxies) | options
        fetch = plan(
            str(request.url), described.status_code, described.headers, dict(request.headers), mirrors, least_bytes, options
        )
        if fetch is None:
            return super().send(request, **own)
        body = anabranch.File(fetch)
        raw = HTTPResponse(
            body,
            HTTPHeaderDict(described.headers),
            200,
            reason="OK",
            preload_content=False,
            original_response=getattr(described.raw, "_original_response", None),
        )
        return self.build_response(request, raw)


def _is_directory(verify: bool | str) -> bool:
    return isinstance(verify, str) and os.path.isdir(verify)


def _of_session(url: str, timeout: Any, verify: bool | str, proxies: Any) -> dict[str, Any]:
    """The options that say what the arguments of requests say."""
    wait = timeout[1] if isinstance(timeout, tuple) else timeout
    return {
        "proxy": select_proxy(url, proxies) or "",
        "insecure": verify is False,
        "ca_file": verify if isinstance(verify, str) else None,
        "timeout": wait if isinstance(wait, int | float) else None,
    }
