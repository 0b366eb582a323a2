#!/usr/bin/env python3
"""`anabranch daemon` with a long queue: memory, and how long requests take.

    python3 bench/daemon_load.py --bin target/release/anabranch [--queued 10000] [--active 100] [--requests 3000]

A server on this machine sends each of `--active` downloads at 20 kB/s; `--queued` others wait. Then the requests that AriaNg repeats while its
pages are open (lists of active, waiting and stopped downloads with its keys, one status, the sums) and those of its buttons (add, pause, unpause,
change of position, remove) are sent over one connection, each measured from its first byte to the last of the answer. Printed is a table in
Markdown. Standard library only.
"""

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

import ariang

KEYS = ["gid", "totalLength", "completedLength", "uploadSpeed", "downloadSpeed", "connections", "numSeeders", "seeder", "status",
        "errorCode", "verifiedLength", "verifyIntegrityPending", "files", "bittorrent", "infoHash"]


def resident_mb(pid, key):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) / 1000 * 1.024 for line in status if line.startswith(key))


class Connection:
    def __init__(self, daemon):
        self.token = f"token:{daemon.token}"
        self.http = http.client.HTTPConnection("127.0.0.1", daemon.port)

    def call(self, method, *params):
        return self.send({"id": 1, "method": f"aria2.{method}", "params": [self.token, *params]})["result"]

    def send(self, request):
        self.http.request("POST", "/jsonrpc", json.dumps(request))
        return json.loads(self.http.getresponse().read())

    def timed(self, method, *params):
        body = json.dumps({"id": 1, "method": f"aria2.{method}", "params": [self.token, *params]})
        begin = time.perf_counter()
        self.http.request("POST", "/jsonrpc", body)
        text = self.http.getresponse().read()
        taken = time.perf_counter() - begin
        assert "result" in json.loads(text), text[:200]
        return taken, len(text)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--bin")
    options.add_argument("--origin", action="store_true", help="only be the server, which must not share the interpreter of the client")
    options.add_argument("--queued", type=int, default=10_000)
    options.add_argument("--active", type=int, default=100)
    options.add_argument("--requests", type=int, default=3_000)
    options = options.parse_args()
    if options.origin:
        ariang.Origin.content, ariang.Origin.rate = random.Random(7).randbytes(200_000_000), 20_000
        print(ariang.serve(ariang.Origin), flush=True)
        return sys.stdin.read()
    server = subprocess.Popen([sys.executable, __file__, "--origin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    origin = f"http://127.0.0.1:{int(server.stdout.readline())}"
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(f"{directory}/files")
        daemon = ariang.Daemon(options.bin, directory)
        try:
            fill(daemon, options, origin)
        finally:
            daemon.process.terminate()
            begin = time.perf_counter()
            assert daemon.process.wait(ariang.PATIENCE) == 0
            ended = time.perf_counter() - begin
        begin = time.perf_counter()
        daemon = ariang.Daemon(options.bin, directory)
        print(f"| end; start again with that queue | {ended:.2f} s; {time.perf_counter() - begin:.2f} s |")
        daemon.process.terminate()
        daemon.process.wait(ariang.PATIENCE)
    server.stdin.close()
    return server.wait(ariang.PATIENCE)


def fill(daemon, options, origin):
    """Adds the downloads, waits until as many run as should, and measures."""
    pid = daemon.process.pid
    at_start = resident_mb(pid, "VmRSS")
    connection = Connection(daemon)
    connection.call("changeGlobalOption", {"max-concurrent-downloads": str(options.active)})
    begin = time.perf_counter()
    total = options.queued + options.active
    for first in range(0, total, 100):
        batch = [{"id": n, "method": "aria2.addUri", "params": [connection.token,
                  [f"{origin}/queue/file-{n}.iso", f"https://mirror.example/pub/queue/file-{n}.iso"][:1 if n < options.active else 2],
                  {"out": f"file-{n}.iso"}]} for n in range(first, min(first + 100, total))]
        assert all("result" in one for one in connection.send(batch))
    added = total / (time.perf_counter() - begin)
    ariang.until("all run", lambda: sum(int(one["completedLength"]) > 0
                 for one in connection.call("tellActive", ["completedLength"])) == options.active)
    measure(connection, options, pid, origin, at_start, added)


def measure(connection, options, pid, origin, at_start, added):
    rng = random.Random(1)
    gids = [one["gid"] for one in connection.call("tellWaiting", 0, options.queued, ["gid"])]
    active = [one["gid"] for one in connection.call("tellActive", ["gid"])]
    kinds = {
        "`tellActive`, AriaNg's keys": lambda: connection.timed("tellActive", KEYS),
        "`tellWaiting` of 1,000, AriaNg's keys": lambda: connection.timed("tellWaiting", 0, 1000, KEYS),
        "`tellStopped`": lambda: connection.timed("tellStopped", -1, 1000, KEYS),
        "`tellStatus` of an active one": lambda: connection.timed("tellStatus", rng.choice(active)),
        "`getGlobalStat`": lambda: connection.timed("getGlobalStat"),
        "`addUri` (on disk)": lambda: connection.timed("addUri", [f"{origin}/more.iso"], {"pause": "true"}),
        "`changePosition` (on disk)": lambda: connection.timed("changePosition", rng.choice(gids), rng.randrange(5000), "POS_SET"),
        "`pause`, `unpause` of a waiting one (on disk)": lambda: max(connection.timed("pause", gid := rng.choice(gids)),
                                                              connection.timed("unpause", gid)),
    }
    times = {kind: [] for kind in kinds}
    sizes = {}
    for n in range(options.requests):
        kind = list(kinds)[n % len(kinds)]
        taken, sizes[kind] = kinds[kind]()
        times[kind].append(taken * 1000)
    at = lambda values, share: sorted(values)[min(len(values) - 1, int(share * len(values)))]
    print(f"| {options.queued:,} queued, {options.active} active | |\n| --- | --- |")
    print(f"| memory (RSS): at the start, now, at most | {at_start:.0f}, {resident_mb(pid, 'VmRSS'):.0f}, {resident_mb(pid, 'VmHWM'):.0f} MB |")
    print(f"| added | {added:,.0f} a second, in batches of 100, each on disk before its answer |")
    everything = [taken for values in times.values() for taken in values]
    for kind, values in [("all requests", everything), *times.items()]:
        size = f", {sizes[kind]:,} bytes" if kind in sizes else ""
        print(f"| {kind}{size} | p50 {at(values, 0.5):.2f}, p99 {at(values, 0.99):.2f}, max {max(values):.2f} ms |")


if __name__ == "__main__":
    threading.stack_size(256 << 10)
    main()
