"""Which other URLs have the file of a URL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

Mirrors = Mapping[str, Iterable[str]]
"""For each beginning of URLs, the beginnings of the same files elsewhere:
{"https://a.example/pub/": ["https://b.example/mirror/a/", "https://c.example/pub/"]}."""

_HARMLESS = {"accept", "accept-language", "user-agent"}


def has_secrets(headers: Mapping[str, str] | None) -> bool:
    """Whether header fields may have secrets, which only their server may see."""
    return any(name.lower() not in _HARMLESS for name in headers or {})


def sources(url: str, mirrors: Mirrors | None, is_secret: bool = False) -> list[str]:
    """Returns the URL and those of its mirrors, by the longest beginning that fits. With a request that has secrets, only
    mirrors of the same scheme, host and port are asked."""
    fitting = max((start for start in mirrors or {} if url.startswith(start)), key=len, default=None)
    if fitting is None or mirrors is None:
        return [url]
    rest = url[len(fitting) :]
    others = [base + rest for base in mirrors[fitting]]
    if is_secret:
        others = [other for other in others if urlsplit(other)[:2] == urlsplit(url)[:2]]
    return [url, *others]
