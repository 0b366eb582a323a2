"""Fetches one file from many sources over all network links at once, and verifies every byte.

    import anabranch

    report = anabranch.get(["https://a.example/f.iso", "https://b.example/f.iso"], sha256="e3b0c442...")
    print(report.target, report.verdict)

    with anabranch.open("https://a.example/f.tar.gz") as file: ...        # while it arrives
    head, tail = anabranch.get_ranges(url, [(0, 100), (5_000, 6_000)])    # parts alone
    report = await anabranch.get_async(urls, "f.iso")                     # in asyncio

Ctrl-C, a crash or a lost link lose nothing: an equal call resumes. `anabranch.fsspec`, `anabranch.requests` and
`anabranch.httpx` bring this to other libraries; `anabranch.lab` and `anabranch.trace` run experiments and read captures.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from typing import Any, Union, Unpack, cast

from ._anabranch import Client, Error, Request, Stop, __version__, controllers
from ._options import Options
from ._reports import Path, Progress, Report

__all__ = [
    "Client",
    "Error",
    "File",
    "Options",
    "Path",
    "Progress",
    "Report",
    "Request",
    "Stop",
    "__version__",
    "controllers",
    "get",
    "get_async",
    "get_range",
    "get_ranges",
    "open",
]

Sources = Union[str, Iterable[str]]
Listener = Callable[[Progress], None]


def _request(sources: Sources, sha256: str | None, options: Options) -> Request:
    if not isinstance(sources, str):
        sources = [os.fspath(source) for source in sources] if isinstance(sources, Iterable) else os.fspath(sources)
    if sha256 is not None:
        if options.get("checksum") is not None:
            raise ValueError("give either sha256 or checksum")
        options["checksum"] = f"sha256:{sha256}"
    return Request([sources] if isinstance(sources, str) else sources, **options)


def get(
    sources: Sources,
    path: str | os.PathLike[str] | None = None,
    *,
    sha256: str | None = None,
    overwrite: bool = False,
    progress: Listener | bool | None = None,
    notes: Callable[[str], None] | None = None,
    stop: Stop | None = None,
    **options: Unpack[Options],
) -> Report:
    """Fetches a content into a file and returns the report.

    sources: one or more URLs of the same file, an `anabranch:` URI, or the path or URL of a Metalink.
    path: the file; or a directory, or a path that ends in a slash, for the content's own name in it; None for that name
        in the current directory.
    sha256: the hash that the file must have, as hexadecimal digits.
    overwrite: replaces a file that is there; else that is an error of the kind "target".
    progress: called with a `Progress` about five times a second; True draws a bar with tqdm. An exception of it stops the
        transfer, which keeps its bytes, and is raised.
    notes: called with sentences for the user, such as that a mirror sent wrong bytes.
    stop: stops the transfer from another thread; the error has the kind "interrupted" then.

    Options, all optional:
    checksum: "sha256:HEX", "sha512:HEX" or the digits alone; checksum_list: path or URL of a SHA256SUMS.
    keyring: OpenPGP certificates, one of which must have signed the file.
    via: an interface or a local address, or a list of them; by default all that reach the sources. Conditions may follow:
        "wwan0:backup" (only while no other can carry data), "wwan0:cost=5", "wwan0:cap=20GB/month", "eth0:limit=5M".
    mode: "aggregate" (all links at once), "backup" (the others only while the first is out), "sequential" (one at a time).
    state_dir: the directory for what links with a cap have carried.
    from_sources: hosts that serve the URI, each `host` or `host:port`.
    limit: the most bytes a second; background: yields to all other traffic; controller: a name in `controllers`.
    headers: a dict of HTTP header fields; auth: a name and a password: both are sent to every server of `sources`;
    netrc: a file of names and passwords; proxy: a URL, or "" for none;
    ca_file: a PEM file to believe besides the system's; insecure: believes every certificate.
    timeout: the seconds without any answer after which it gives up, 60 unless you say; progress_every: seconds between calls of `progress`.
    client: a `Client`, whose threads several transfers share.

    Raises `Error`, an OSError with a `kind`; TypeError for an unknown option.
    """
    request = _request(sources, sha256, options)
    bar = None
    if progress is True:
        bar = progress = _Bar()

    def heard(name: str, value: Any) -> None:
        if name == "progress":
            if progress:
                progress(Progress._of(value))
        elif notes is not None:
            notes(f"{value[0]} is not asked any more: {value[1]}" if name == "banned" else value)

    wanted = heard if progress or notes else None
    try:
        return Report._of(request.fetch(None if path is None else os.fspath(path), overwrite, wanted, stop))
    finally:
        if bar is not None:
            bar.close()


async def get_async(
    sources: Sources,
    path: str | os.PathLike[str] | None = None,
    *,
    sha256: str | None = None,
    overwrite: bool = False,
    progress: Listener | bool | None = None,
    notes: Callable[[str], None] | None = None,
    **options: Unpack[Options],
) -> Report:
    """Fetches as `get` does, for asyncio, on a thread of its own. `progress` and `notes` are called in the loop's thread;
    they are functions, not coroutines. Cancelling the task stops the transfer, which keeps its bytes."""
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    done: asyncio.Future[Report] = loop.create_future()
    stop = Stop()
    thrown: list[BaseException] = []

    def in_loop(call: Any) -> Any:
        if call is None or call is True:
            return call
        if asyncio.iscoroutinefunction(call):
            raise TypeError("progress and notes must be functions, not coroutines")

        def guarded(value: Any) -> None:
            try:
                if not thrown:
                    call(value)
            except BaseException as error:
                thrown.append(error)
                stop.stop()

        return lambda value: loop.call_soon_threadsafe(guarded, value)

    def end(report: Report | None, error: BaseException | None) -> None:
        if done.done():
            return
        if report is not None:
            done.set_result(report)
        else:
            done.set_exception(error or RuntimeError("the transfer had no end"))

    listeners = {"progress": in_loop(progress), "notes": in_loop(notes)}

    def run() -> None:
        report, failed = None, None
        try:
            report = get(sources, path, sha256=sha256, overwrite=overwrite, stop=stop, **listeners, **options)
        except BaseException as error:
            failed = error
        try:
            loop.call_soon_threadsafe(end, report, failed)
        except RuntimeError:
            # The loop has been closed: nothing waits for this any more.
            pass

    threading.Thread(target=run, name="anabranch", daemon=True).start()
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            # The transfer writes what it has; nothing of it is running when the task has ended.
            cancelled = error
            stop.stop()
    failed = done.exception()
    try:
        if cancelled is not None:
            raise cancelled
        if thrown:
            raise thrown[0]
        if failed is not None:
            raise failed
        return done.result()
    finally:
        del failed, cancelled, done
        thrown.clear()


class _Raw(io.RawIOBase):
    def __init__(self, request: Request) -> None:
        self._reader = request.read()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._reader.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def close(self) -> None:
        if not self.closed:
            self._reader.stop()
        super().close()


class File(io.BufferedReader):
    """A file that is read in order while it arrives; closing it stops the transfer.

    If hashes of blocks are known, each byte is verified before it is read. If only a hash of the whole is known, or none,
    bytes come before they can be verified: use them only after the end has been read. A failure is an `Error`, never an
    early end.
    """

    def __init__(self, request: Request) -> None:
        self._source = _Raw(request)
        super().__init__(self._source, 256 << 10)

    def close(self) -> None:
        """Stops the transfer, also while another thread waits in a read."""
        self._source._reader.stop()
        super().close()

    @property
    def report(self) -> Report | None:
        """The report, once the end has been read."""
        report = self._source._reader.report()
        return None if report is None else Report._of(report)


def open(sources: Sources, *, sha256: str | None = None, **options: Unpack[Options]) -> File:
    """Opens a content for reading in order while it arrives from all sources. Sources and options are those of `get`."""
    return File(_request(sources, sha256, options))


def get_ranges(sources: Sources, ranges: Iterable[tuple[int, int]], **options: Unpack[Options]) -> list[bytes]:
    """Fetches parts of a file in one transfer: each from its first byte to the one before its last, as slices count.
    Bytes behind the end of the file are left out. Options are those of `get`, but no hash of the whole: it cannot verify a
    part."""
    wanted = [(start, end) for start, end in ranges]
    if any(start < 0 or end < start for start, end in wanted):
        raise ValueError("a range is (start, end) with 0 <= start <= end")
    for hashed in ("sha256", "checksum", "checksum_list", "keyring"):
        if cast(dict[str, Any], options).get(hashed) is not None:
            raise TypeError(f"{hashed} is of the whole file, and cannot verify a part of it")
    return _request(sources, None, options).ranges(wanted)[0]


def get_range(sources: Sources, start: int, end: int, **options: Unpack[Options]) -> bytes:
    """Fetches the bytes from `start` to the one before `end`, as `get_ranges` does."""
    return get_ranges(sources, [(start, end)], **options)[0]


class _Bar:
    """Draws progress with tqdm."""

    def __init__(self) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise ImportError("progress=True needs tqdm: pip install tqdm") from error
        self._bar = tqdm(unit="B", unit_scale=True)

    def __call__(self, progress: Progress) -> None:
        self._bar.total = progress.total_bytes
        self._bar.initial = progress.resumed_bytes
        self._bar.update(progress.done_bytes - self._bar.n)

    def close(self) -> None:
        self._bar.close()
