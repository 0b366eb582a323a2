"""A file system of fsspec: files of web servers, read from all their mirrors over all links.

    import fsspec, pandas
    pandas.read_parquet("anabranch+https://a.example/pub/t.parquet",
                        storage_options={"mirrors": {"https://a.example/": ["https://b.example/"]}})

`pip install anabranch` registers the protocols `anabranch+https` and `anabranch+http`; `https` stays fsspec's own.
Directories of web servers cannot be listed.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import anabranch
from anabranch._mirrors import Mirrors, has_secrets, sources

_AT_ONCE = 8


class FileSystem(AbstractFileSystem):
    """Files of web servers. `mirrors` says where else files are; further arguments are the options of `anabranch.get`. With
    `auth`, or with `headers` that may be secret, no mirror of another host is asked."""

    protocol = ("anabranch+https", "anabranch+http")

    def __init__(self, mirrors: Mirrors | None = None, **options: Any) -> None:
        own = {name: options.pop(name) for name in _FSSPEC_OPTIONS & options.keys()}
        super().__init__(**own)
        named = self._strip_protocol
        self._mirrors = {named(start): named(list(others)) for start, others in (mirrors or {}).items()}
        self._options = options
        self._shared: tuple[int, anabranch.Client] | None = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return os.fspath(path).removeprefix("anabranch+")

    def unstrip_protocol(self, name: str) -> str:
        return "anabranch+" + self._strip_protocol(name)

    @property
    def _client(self) -> anabranch.Client:
        # A process that was forked has none of the threads of its parent.
        if self._shared is None or self._shared[0] != os.getpid():
            self._shared = (os.getpid(), anabranch.Client())
        return self._shared[1]

    def _request(self, path: str) -> anabranch.Request:
        options = self._options | {"client": self._client}
        return anabranch.Request(self._sources(path), **options)

    def _sources(self, path: str) -> list[str]:
        is_secret = has_secrets(self._options.get("headers")) or self._options.get("auth") is not None
        return sources(self._strip_protocol(path), self._mirrors, is_secret)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        try:
            size = self._request(path).length()
        except anabranch.Error as error:
            raise _translated(error, path) from error
        return {"name": path, "size": size, "type": "file"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        found = self.info(path)
        return [found] if detail else [found["name"]]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        if start is None and end is None:
            try:
                with anabranch.File(self._request(path)) as file:
                    return file.read()
            except anabranch.Error as error:
                raise _translated(error, path) from error
        return self._cat_ranges_of(path, [(start, end)])[0]

    def _cat_ranges_of(self, path: str, ranges: list[tuple[int | None, int | None]]) -> list[bytes]:
        if any(start is not None and start < 0 or end is None or end < 0 for start, end in ranges):
            size = self.info(path)["size"]
            ranges = [_from_start(start, end, size) for start, end in ranges]
        wanted = [(start or 0, max(start or 0, end or 0)) for start, end in ranges]
        try:
            return self._request(path).ranges(wanted)[0]
        except anabranch.Error as error:
            raise _translated(error, path) from error

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Fetches all ranges of a file in one transfer, and several files at once."""
        starts = [starts] * len(paths) if not isinstance(starts, list) else starts
        ends = [ends] * len(paths) if not isinstance(ends, list) else ends
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends differ in length")
        places: dict[str, list[int]] = {}
        for place, path in enumerate(paths):
            places.setdefault(self._strip_protocol(path), []).append(place)
        parts: list[Any] = [None] * len(paths)

        def fetch(path: str) -> None:
            of_path = places[path]
            try:
                found: list[Any] = self._cat_ranges_of(path, [(starts[at], ends[at]) for at in of_path])
            except OSError as error:
                if on_error != "return":
                    raise
                found = [error] * len(of_path)
            for at, part in zip(of_path, found):
                parts[at] = part

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(fetch, places))
        return parts

    def get_file(self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        def progress(now: anabranch.Progress) -> None:
            if now.total_bytes is not None:
                callback.set_size(now.total_bytes)
            callback.absolute_update(now.done_bytes)

        os.makedirs(os.path.dirname(lpath) or ".", exist_ok=True)
        urls = self._sources(rpath)
        options = self._options | {"client": self._client}
        try:
            anabranch.get(urls, lpath, overwrite=True, progress=progress, **options)
        except anabranch.Error as error:
            raise _translated(error, rpath) from error

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **arguments: Any) -> AbstractBufferedFile:
        if mode != "rb":
            raise NotImplementedError("web servers take no files: mode must be 'rb'")
        size = arguments.pop("size", None) or self.info(path)["size"]
        return _File(self, path, mode, block_size or "default", size=size, **arguments)


_FSSPEC_OPTIONS = {"skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths", "asynchronous", "loop"}


class _File(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs._cat_ranges_of(self.path, [(start, end)])[0]


def _from_start(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    first = 0 if start is None else max(size + start, 0) if start < 0 else start
    last = size if end is None else size + end if end < 0 else end
    return first, max(first, last)


def _translated(error: anabranch.Error, path: str) -> OSError:
    return FileNotFoundError(f"{path}: {error}") if error.kind == "not_found" else error
