"""The progress and the reports of transfers. Their fields are those of docs/json.md; fields that are not known here are
ignored, so that a newer library works."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

_T = TypeVar("_T", bound="_Fields")


class _Fields:
    @classmethod
    def _of(cls: type[_T], value: dict[str, Any]) -> _T:
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: part for name, part in value.items() if name in known})


@dataclass(frozen=True)
class Path(_Fields):
    """One path: a source over a link."""

    source: str
    """The source: host and port."""
    via: str
    """The local end: interface or address."""
    state: str
    """Its state, such as "open", "silent" or "banned: wrong bytes in block 812"."""
    rate_bytes: int
    """Its rate in bytes a second; after the end the mean of the run."""
    share_percent: float
    """The share of all bytes that came over it."""
    srtt_us: int
    """The smoothed round-trip time in microseconds; 0 while it is unknown."""
    bytes: int
    """The verified bytes that came over it."""
    loss_percent: float
    """The share of packets that were asked for and lost."""
    group: int
    """Paths of one group are coupled: together they take the share of one TCP connection."""


@dataclass(frozen=True)
class Progress(_Fields):
    """The progress of a transfer at one moment."""

    total_bytes: int | None
    """The length of the whole; None while it is unknown."""
    done_bytes: int
    """The bytes that are here, with those of earlier runs."""
    resumed_bytes: int
    """Of these, the bytes that were here when this run began."""
    elapsed_s: float
    """The time since this run began."""
    paths: list[Path]
    """One item a path, in a stable order."""
    note: str | None
    """A sentence for the user, such as "waiting for a source"."""

    @classmethod
    def _of(cls, value: dict[str, Any]) -> Progress:
        return super()._of(value | {"paths": [Path._of(path) for path in value["paths"]]})


@dataclass(frozen=True)
class Report(_Fields):
    """The outcome of a transfer."""

    target: str
    """The path of the file or directory."""
    content: str | None
    """The content id, if it is known."""
    complete: bool
    """Whether all bytes are here and verified, as far as `verified` says."""
    verified: str
    """What was compared with a hash: "blocks", "pieces", "whole", "files", "unchanged" or "nothing"."""
    verified_by: str | None
    """Who vouches for the hash, such as "user"; None without a hash."""
    verdict: str
    """The same in words: "verified", or a text that begins with "UNVERIFIED"."""
    advice: str | None
    """If the file is UNVERIFIED, one sentence that says why, and what would verify it."""
    banned: list[dict[str, str]]
    """The sources that sent wrong bytes: each a `source` and a `reason`."""
    last: Progress
    """The last progress, whose rates are means of the whole run."""

    @classmethod
    def _of(cls, value: dict[str, Any]) -> Report:
        return super()._of(value | {"last": Progress._of(value["last"])})
