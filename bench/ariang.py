#!/usr/bin/env python3
"""AriaNg, the web front end of aria2, in headless Chromium against `anabranch daemon`.

    python3 bench/ariang.py --bin target/debug/anabranch --ariang DIR [--screenshot FILE.png]

DIR is AriaNg as it is released: a directory with its index.html. Chromium and chromedriver are Debian's packages `chromium` and
`chromium-driver`. A page of another origin, so the daemon runs with --rpc-allow-origin-all. It does by mouse and keyboard what a user does:
connects by WebSocket and by HTTP, adds, pauses, resumes, limits and removes a download, adds a magnet link, which is refused with words, and
looks at a file that comes from two mirrors; the files are compared with their origin. Each step prints a line; the first that fails ends it
with exit status 1. Without Chromium or AriaNg it says `skipped: …`, also into the file that $ANABRANCH_SKIPPED names. Standard library only.
"""

import argparse
import base64
import functools
import hashlib
import http.server
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

#: The longest wait for anything, in seconds.
PATIENCE = 60


def skip(why):
    line = f"skipped: {why}\n"
    sys.stderr.write(line)
    if os.environ.get("ANABRANCH_SKIPPED"):
        with open(os.environ["ANABRANCH_SKIPPED"], "a", encoding="utf-8") as file:
            file.write(line)
    raise SystemExit(0)


def until(what, is_so):
    """Waits until `is_so` returns something, and returns that."""
    end = time.monotonic() + PATIENCE
    error = None
    while time.monotonic() < end:
        try:
            found = is_so()
            if found:
                return found
        except LookupError as e:
            error = e
        time.sleep(0.1)
    raise SystemExit(f"FAILED: {what} ({error})")


class Origin(http.server.BaseHTTPRequestHandler):
    """A server of one file under every path, by ranges, at a rate."""

    protocol_version = "HTTP/1.1"
    content, rate = b"", 800_000

    def do_GET(self):
        first, last = 0, len(self.content) - 1
        if self.headers.get("Range"):
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            first, last = int(first), min(int(last), len(self.content) - 1)
        self.send_response(206)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.content)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        try:
            for at in range(first, last + 1, 8192):
                piece = self.content[at:min(at + 8192, last + 1)]
                self.wfile.write(piece)
                time.sleep(len(piece) / self.rate)
        except OSError:
            self.close_connection = True

    def log_message(self, *_):
        pass


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    #: Connections that begin at the same time must not be dropped.
    request_queue_size = 1024


def serve(handler):
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


class Browser:
    """A session of the WebDriver protocol (W3C)."""

    def __init__(self, driver, chromium):
        self.at = f"http://127.0.0.1:{driver}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,640", "--hide-scrollbars"]
        options = {"binary": chromium, "args": arguments}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self.at += "/session/" + until("a browser", lambda: self.send("POST", "/session", wanted))["sessionId"]

    def send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.at + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as e:
            raise LookupError(json.load(e)["value"]["message"].split("\n")[0]) from e
        except urllib.error.URLError as e:
            raise LookupError(str(e)) from e

    def open(self, url):
        self.send("POST", "/url", {"url": url})

    def find(self, css):
        found = self.send("POST", "/element", {"using": "css selector", "value": css})
        return "/element/" + next(iter(found.values()))

    def click(self, css):
        until(f"a click on {css}", lambda: self.send("POST", self.find(css) + "/click", {}) is None)

    def type(self, css, text):
        self.send("POST", until(css, lambda: self.find(css)) + "/clear", {})
        self.send("POST", self.find(css) + "/value", {"text": text})

    def text(self, css):
        return self.send("GET", self.find(css) + "/text")

    def has(self, css, text):
        until(f"{text!r} in {css}", lambda: text in self.text(css))

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.send("GET", "/screenshot")))


class Daemon:
    def __init__(self, binary, directory):
        command = [binary, "daemon", "--json", "--dir", f"{directory}/files", "--state", f"{directory}/state",
                   "--listen", "127.0.0.1:0", "--rpc-allow-origin-all"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        listening = json.loads(self.process.stdout.readline())
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.port = int(listening["addresses"][0].rsplit(":", 1)[1])
        with open(listening["token_file"], encoding="ascii") as file:
            self.token = file.read().strip()

    def call(self, method, *params):
        body = json.dumps({"id": 1, "method": f"aria2.{method}", "params": [f"token:{self.token}", *params]})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/jsonrpc", data=body.encode()) as answer:
            return json.load(answer)["result"]


def step(what):
    print(f"ok: {what}", flush=True)


def connect(browser, page, daemon, protocol):
    """Tells AriaNg where the daemon is, as a link does, and looks at its page about the server."""
    secret = base64.urlsafe_b64encode(daemon.token.encode()).decode().rstrip("=")
    browser.open(f"{page}#!/settings/rpc/set/{protocol}/127.0.0.1/{daemon.port}/jsonrpc/{secret}")
    time.sleep(0.5)
    browser.open(f"{page}#!/status")
    browser.send("POST", "/refresh", {})
    browser.has("#content-body", "1.37.0")
    browser.has(".main-sidebar", "Connected")
    step(f"connected by {protocol}, and the version is shown")


def add(browser, page, url):
    browser.open(f"{page}#!/new")
    browser.type("textarea[name=urls]", url)
    browser.click("form button[type=submit]")


def select(browser, name):
    browser.has(".task-table-body", name)
    browser.click(".task-table-body .task-name")


def one_download(browser, page, daemon, mirrors, digest):
    """Adds, pauses, limits, resumes and ends a download by AriaNg alone."""
    add(browser, page, f"http://127.0.0.1:{mirrors[0]}/one.iso")
    browser.has(".task-table-body", "one.iso")
    moving = "return parseFloat(document.querySelector('.task-table-body .progress-bar').getAttribute('aria-valuenow')) > 2"
    until("progress", lambda: browser.send("POST", "/execute/sync", {"script": moving, "args": []}))
    step("a download is added and moves")
    select(browser, "one.iso")
    browser.click("[ng-click=\"changeTasksState('pause')\"]")
    browser.open(f"{page}#!/waiting")
    browser.has(".task-table-body", "Paused")
    assert daemon.call("tellActive") == []
    step("it is paused")
    browser.open(f"{page}#!/settings/aria2/advanced")
    browser.type("[data-option-key=max-overall-download-limit] input", "60K")
    until("the limit", lambda: daemon.call("getGlobalOption")["max-overall-download-limit"] == "61440")
    browser.open(f"{page}#!/waiting")
    select(browser, "one.iso")
    browser.click("[ng-click=\"changeTasksState('start')\"]")
    browser.open(f"{page}#!/downloading")
    browser.has(".task-table-body", "one.iso")
    done = lambda: int(daemon.call("tellActive")[0]["completedLength"])
    begin = done()
    until("bytes", lambda: done() > begin)
    before = done()
    time.sleep(3)
    rate = (done() - before) / 3
    assert rate < 200_000, rate
    step(f"it is resumed within the limit of 61,440 B/s: {rate:,.0f} B/s over three seconds")
    browser.open(f"{page}#!/settings/aria2/advanced")
    browser.type("[data-option-key=max-overall-download-limit] input", "0")
    browser.open(f"{page}#!/stopped")
    browser.has(".task-table-body", "one.iso")
    path = daemon.call("tellStopped", 0, 9)[0]["files"][0]["path"]
    with open(path, "rb") as file:
        assert hashlib.sha256(file.read()).hexdigest() == digest
    step("without it the download ends, and the file is right")


def confirm(browser, text):
    """Reads a dialog and clicks its button, once the dialog has come to rest."""
    browser.has(".sweet-alert.visible", text)
    time.sleep(0.6)
    browser.click(".sweet-alert.visible button.confirm")
    until("the end of the dialog", lambda: browser.send("POST", "/elements", {"using": "css selector", "value": ".sweet-alert.visible"}) == [])
    time.sleep(0.6)


def refused_and_removed(browser, page, daemon, mirrors):
    add(browser, page, "magnet:?xt=urn:btih:248d0a1cd08284299de78d5c1ed359bb46717d8c")
    confirm(browser, "BitTorrent is not spoken here")
    step("a magnet link is refused with words")
    add(browser, page, f"http://127.0.0.1:{mirrors[0]}/gone.iso")
    browser.open(f"{page}#!/downloading")
    select(browser, "gone.iso")
    browser.click("a[title='Delete']")
    browser.click("[ng-click='removeTasks()']")
    confirm(browser, "remove the selected task")
    until("removed", lambda: daemon.call("tellStopped", -1, 1)[0]["status"] == "removed")
    browser.open(f"{page}#!/stopped")
    browser.has(".task-table-body", "gone.iso")
    browser.click("a[title='Delete']")
    browser.click("[ng-click='clearStoppedTasks()']")
    confirm(browser, "clear stopped tasks")
    until("purged", lambda: daemon.call("tellStopped", 0, 9) == [])
    step("a download is removed, and the results are purged")


def two_mirrors(browser, page, daemon, mirrors, digest, screenshot):
    uris = [f"http://127.0.0.1:{port}/dir/two-mirrors.iso" for port in mirrors]
    gid = daemon.call("addUri", uris, {"checksum": f"sha-256={digest}"})
    waiting = daemon.call("addUri", [f"http://127.0.0.1:{mirrors[0]}/later.iso"], {"pause": "true"})
    browser.open(f"{page}#!/task/detail/{gid}")
    browser.has("#content-body", "two-mirrors.iso")
    until("two servers", lambda: len(daemon.call("getServers", gid)[0]["servers"]) == 2)
    browser.open(f"{page}#!/downloading")
    browser.has(".task-table-body", "/s")
    time.sleep(1.5)
    if screenshot:
        browser.screenshot(screenshot)
    browser.open(f"http://127.0.0.1:{daemon.port}/#{daemon.token}")
    browser.has("#jobs", "two-mirrors.iso")
    for port in mirrors:
        browser.has("#jobs", f"127.0.0.1:{port} via ")
    time.sleep(1.5)
    if screenshot:
        browser.screenshot(screenshot.replace(".png", "-page.png"))
    step("the daemon's own page shows the download and its paths")
    until("its end", lambda: daemon.call("tellStatus", gid)["status"] == "complete")
    with open(daemon.call("getFiles", gid)[0]["path"], "rb") as file:
        assert hashlib.sha256(file.read()).hexdigest() == digest
    daemon.call("remove", waiting)
    step("a file comes from two mirrors")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--bin", required=True, help="the program `anabranch`, with `anabranch-daemon` beside it")
    options.add_argument("--ariang", default=os.environ.get("ARIANG"), help="the directory of AriaNg; default: $ARIANG")
    options.add_argument("--screenshot", help="write a picture of the list of downloads to this file (.png), and of the daemon's page to a second")
    options = options.parse_args()
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        skip("there is no chromium, or no chromedriver")
    if not options.ariang or not os.path.exists(f"{options.ariang}/index.html"):
        skip("there is no AriaNg: name its directory with --ariang or $ARIANG")
    Origin.content = random.Random(7).randbytes(8_000_000)
    digest = hashlib.sha256(Origin.content).hexdigest()
    mirrors = [serve(Origin), serve(Origin)]
    page = f"http://127.0.0.1:{serve(functools.partial(Files, directory=options.ariang))}/index.html"
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(f"{directory}/files")
        daemon = Daemon(options.bin, directory)
        port = serve(Files) + 1
        web_driver = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL)
        browser = None
        try:
            browser = Browser(port, chromium)
            connect(browser, page, daemon, "http")
            connect(browser, page, daemon, "ws")
            one_download(browser, page, daemon, mirrors, digest)
            refused_and_removed(browser, page, daemon, mirrors)
            two_mirrors(browser, page, daemon, mirrors, digest, options.screenshot)
        except BaseException:
            if browser and options.screenshot:
                browser.screenshot(options.screenshot + ".failed.png")
            raise
        finally:
            if browser:
                browser.send("DELETE", "")
            web_driver.terminate()
            daemon.process.terminate()
            assert daemon.process.wait(PATIENCE) == 0
    step("the daemon ends in order")


if __name__ == "__main__":
    main()
