"""A transport for httpx: the bodies of large answers come from all mirrors over all links.

    client = httpx.Client(transport=anabranch.httpx.Transport(mirrors={"https://a.example/": ["https://b.example/"]}))
    huggingface_hub.set_client_factory(lambda: httpx.Client(transport=anabranch.httpx.Transport(), follow_redirects=True))

What is no plain GET, and what the server does not answer with 200, goes through httpx as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

import anabranch
from anabranch._mirrors import Mirrors
from anabranch._plan import OWN_FIELDS, check, plan


class _Body(httpx.SyncByteStream):
    def __init__(self, request: anabranch.Request) -> None:
        self._file = anabranch.File(request)

    def __iter__(self) -> Iterator[bytes]:
        try:
            while piece := self._file.read1(256 << 10):
                yield piece
        except anabranch.Error as error:
            raise httpx.ReadError(str(error)) from error

    def close(self) -> None:
        self._file.close()


class Transport(httpx.HTTPTransport):
    """Fetches bodies with anabranch, for `httpx.Client`. `mirrors` says where else files are, and `options` is a dict of
    the options of `anabranch.get`; further arguments are those of `httpx.HTTPTransport`. Bodies of less than `least_bytes`
    come from the server alone.

    `verify=False` holds for bodies, too. With a context of TLS, a client's certificate, a proxy or a socket of the system,
    everything stays with httpx. A request with secrets (any header field but Accept, Accept-Language and User-Agent) is sent
    to no mirror of another host.
    """

    def __init__(
        self,
        mirrors: Mirrors | None = None,
        least_bytes: int = 1 << 20,
        options: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        own = dict(options or {})
        if arguments.get("verify") is False:
            own.setdefault("insecure", True)
        check(own)
        self._is_own = not isinstance(arguments.get("verify", True), bool) or any(
            arguments.get(name) for name in ("cert", "proxy", "uds", "local_address")
        )
        self._plan = (mirrors, least_bytes, own)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._is_own or request.method != "GET" or OWN_FIELDS & {name.lower() for name in request.headers}:
            return super().handle_request(request)
        head = httpx.Request("HEAD", request.url, headers=request.headers, extensions=request.extensions)
        head.headers["Accept-Encoding"] = "identity"
        described = super().handle_request(head)
        described.close()
        fetch = plan(
            str(request.url), described.status_code, described.headers, dict(request.headers), *self._plan
        )
        if fetch is None:
            return super().handle_request(request)
        return httpx.Response(200, headers=described.headers, stream=_Body(fetch), request=request)
