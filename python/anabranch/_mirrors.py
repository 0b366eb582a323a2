"""Which other URLs have the file of a URL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Mirrors = Mapping[str, Iterable[str]]
"""For each beginning of URLs, the beginnings of the same files elsewhere:
{"https://a.example/pub/": ["https://b.example/mirror/a/", "https://c.example/pub/"]}."""


def sources(url: str, mirrors: Mirrors | None) -> list[str]:
    """Returns the URL and those of its mirrors, by the longest beginning that fits."""
    fitting = max((start for start in mirrors or {} if url.startswith(start)), key=len, default=None)
    if fitting is None or mirrors is None:
        return [url]
    rest = url[len(fitting) :]
    return [url, *(base + rest for base in mirrors[fitting])]
