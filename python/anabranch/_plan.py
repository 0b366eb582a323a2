"""Which answers of HTTP are fetched by anabranch, for the adapters of HTTP libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._anabranch import Request
from ._mirrors import Mirrors, has_secrets, sources

OWN_FIELDS = {"range", "if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range"}
"""Fields that make a request one that only its server can answer."""

_NOT_SENT = {"host", "connection", "accept-encoding", "content-length"}


def plan(
    url: str,
    status: int,
    described: Mapping[str, str],
    fields: dict[str, str],
    mirrors: Mirrors | None,
    least_bytes: int,
    options: dict[str, Any],
) -> Request | None:
    """Returns the request for a body that the server has described in its answer to HEAD; None if the server itself
    shall send it."""
    length = described.get("content-length", "")
    if status != 200 or not length.isdigit() or int(length) < least_bytes or "content-encoding" in described:
        return None
    sent = {name: value for name, value in fields.items() if name.lower() not in _NOT_SENT}
    headers = dict(options.get("headers") or {}) | sent
    is_secret = has_secrets(headers) or options.get("auth") is not None
    return Request(sources(url, mirrors, is_secret), **(options | {"headers": headers or None}))


def check(options: dict[str, Any]) -> None:
    """Raises TypeError or ValueError for an option that does not exist, or is wrong."""
    Request(["http://127.0.0.1/"], **options)
