"""A web server of files in memory, with ranges, for the tests of the module."""

from __future__ import annotations

import hashlib
import random
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def content(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`, a dict of paths; counts requests; may pause before each piece of a body."""

    daemon_threads = True
    # The default of 5 refuses connections of 8 transfers.
    request_queue_size = 128

    def __init__(self, files: dict[str, bytes], pause_s: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.pause_s = pause_s
        self.requests: list[tuple[str, str, str | None]] = []
        self.wanted: dict[str, str] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, path: str = "/f") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no error of a test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.requests.append((self.command, self.path, asked))
        body = self.server.files.get(self.path)
        missing = {name: value for name, value in self.server.wanted.items() if self.headers.get(name) != value}
        if body is None or missing:
            self.send_response(401 if missing else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        first, last = 0, len(body) - 1
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
        if found:
            first, last = int(found[1]), min(int(found[2] or last), last)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{sha256(body)[:16]}"')
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        if self.command == "GET":
            for at in range(first, last + 1, 65_536):
                time.sleep(self.server.pause_s)
                self.wfile.write(body[at : min(at + 65_536, last + 1)])
