"""An adapter for requests: the bodies of large answers come from all mirrors over all links.

    session = requests.Session()
    session.mount("https://a.example/", anabranch.requests.Adapter(mirrors={"https://a.example/": ["https://b.example/"]}))

What is no plain GET, and what the server does not answer with 200, goes through requests as before.
"""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPHeaderDict, HTTPResponse

import anabranch
from anabranch._mirrors import Mirrors
from anabranch._plan import OWN_FIELDS, plan


class Adapter(HTTPAdapter):
    """Fetches bodies with anabranch. `mirrors` says where else files are; further arguments are the options of
    `anabranch.get`. Bodies of less than `least_bytes` come from the server alone."""

    def __init__(self, mirrors: Mirrors | None = None, least_bytes: int = 1 << 20, **options: Any) -> None:
        super().__init__()
        self._plan = (mirrors, least_bytes, options)

    def send(self, request: requests.PreparedRequest, *arguments: Any, **keywords: Any) -> requests.Response:
        if request.method != "GET" or request.body or OWN_FIELDS & {name.lower() for name in request.headers}:
            return super().send(request, *arguments, **keywords)
        head = request.copy()
        head.method = "HEAD"
        head.headers["Accept-Encoding"] = "identity"
        described = super().send(head, *arguments, **keywords)
        fetch = plan(str(request.url), described.status_code, described.headers, dict(request.headers), *self._plan)
        if fetch is None:
            return super().send(request, *arguments, **keywords)
        body = anabranch.File(fetch)
        raw = HTTPResponse(body, HTTPHeaderDict(described.headers), 200, reason="OK", preload_content=False)
        return self.build_response(request, raw)
