"""The options that all transfers take."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TypedDict

from ._anabranch import Client


class Options(TypedDict, total=False):
    """Options of `anabranch.get`, which explains each. None is the default."""

    checksum: str | None
    checksum_list: str | os.PathLike[str] | None
    keyring: str | os.PathLike[str] | None
    via: str | Iterable[str] | None
    mode: str | None
    state_dir: str | os.PathLike[str] | None
    from_sources: Iterable[str] | None
    limit: float | None
    background: bool | None
    controller: str | None
    headers: Mapping[str, str] | None
    auth: tuple[str, str] | None
    netrc: str | os.PathLike[str] | None
    proxy: str | None
    ca_file: str | os.PathLike[str] | None
    insecure: bool | None
    timeout: float | None
    progress_every: float | None
    client: Client | None
