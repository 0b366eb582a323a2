#!/usr/bin/env python3
"""A soak of `anabranch proxy`: mixed load on thousands of connections over two links that keep failing.

    sudo python3 bench/proxy_soak.py                       an hour, 4,000 connections
    sudo python3 bench/proxy_soak.py --seconds 120         shorter

Two links (100 Mbit/s, 20 and 40 ms) lead from the client to the server; the origin is on the server's host. Most connections are
kept and ask for a little now and then; some are new each time; some bring or take much. Each byte is compared
(crates/products/proxy/examples/load.rs). Meanwhile one link after the other is taken away, for 2 to 20 s: its interface goes down, or
it swallows all packets and says nothing; now and then both swallow all for 5 s.

With `--logs DIR` both ends' reports are kept there, each event and failure with its time; and where nothing moves on a connection
for 10 s, what both kernels say of their connections at that time.

It has passed if no byte was wrong, no request failed, both processes still run, and their memory at the end is what it was after
the first sixth. Ends with 1 otherwise. Root, Linux with MPTCP; Python's standard library.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import threading
import time
from contextlib import closing

sys.dont_write_bytecode = True
import proxies  # noqa: E402
import proxy  # noqa: E402
import testbed  # noqa: E402

#: Parts of the load: of 4,000 connections so many, and what each does.
PARTS = {
    "kept": (3_340, {"keep": True, "pause": 20_000, "bytes": "300,1000,20000"}),
    "new": (400, {"pause": 8_000, "bytes": "1000,50000"}),
    "kept, up": (250, {"keep": True, "up": True, "pause": 15_000, "bytes": "300,3000"}),
    "downloads": (6, {"bytes": "2000000,20000000", "pause": 500}),
    "uploads": (4, {"up": True, "bytes": "1000000,5000000", "pause": 500}),
}
#: Memory may be so much more at the end: allocators keep what was needed once.
GROWTH_MAX, GROWTH_BYTES = 1.15, 4_000_000
SAMPLE_S = 5
#: With --logs: what stands still for so long is looked at, once in so long.
STALL_S, LOOK_AGAIN_S = 10, 15


class Path:
    """One link of the client's host, and how it fails."""

    def __init__(self, bed, device):
        self.bed, self.device = bed, device
        self.routes = [route.split() for table in ("main", str(100 + int(device[1:])))
                       for route in self.lines("ip", "route", "show", "dev", device, "table", table, tail=["table", table])]

    def lines(self, *argv, tail=()):
        said = self.bed.near.output(argv)
        said = said.decode() if isinstance(said, bytes) else said
        return [" ".join([line.strip(), *tail]) for line in (said or "").splitlines() if line.strip()]

    def quietly(self, *argv):
        subprocess.run(self.bed.near.command(argv), check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def down(self):
        self.quietly("ip", "link", "set", self.device, "down")

    def up(self):
        """As whoever manages a network does it: the interface, then its routes, that to its own network first."""
        self.quietly("ip", "link", "set", self.device, "up")
        for route in sorted(self.routes, key=lambda route: "via" in route):
            if "kernel" not in route:
                self.quietly("ip", "route", "replace", *[word for word in route if word != "linkdown"], "dev", self.device)

    def mute(self):
        for hook, word in (("input", "iifname"), ("output", "oifname")):
            self.quietly("nft", f"add table inet mute_{self.device}; add chain inet mute_{self.device} {hook} "
                         f"{{ type filter hook {hook} priority 0; }}; "
                         f"add rule inet mute_{self.device} {hook} {word} {self.device} drop")

    def speak(self):
        self.quietly("nft", "delete", "table", "inet", f"mute_{self.device}")


class Logs:
    """A directory of what was said, and when; or none."""

    def __init__(self, directory, bed):
        self.directory, self.bed, self.looked, self.looks, self.lock = directory, bed, -LOOK_AGAIN_S, 0, threading.Lock()
        self.began = time.monotonic()
        if directory:
            os.makedirs(directory, exist_ok=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def say(self, name, text):
        if self.directory:
            with self.lock, open(self.path(name), "a", encoding="utf-8") as out:
                out.write(f"{time.monotonic() - self.began:9.3f} {text.rstrip()}\n")

    def follow(self, name):
        """A pipe to write into: each line is kept with its time, and one that tells of a stall is looked into."""
        reader, writer = os.pipe()

        def work():
            with open(reader, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self.say(name, line)
                    if "nothing has moved" in line or "timed out" in line:
                        self.look()
        threading.Thread(target=work, daemon=True).start()
        return writer

    def look(self):
        with self.lock:
            if time.monotonic() - self.looked < LOOK_AGAIN_S:
                return
            self.looked, self.looks = time.monotonic(), self.looks + 1
        for side, host in (("client", self.bed.near), ("server", self.bed.far)):
            for what in ("ss -tinmO", "ss -MinO", "ip mptcp endpoint", "ip mptcp limits", "ip route show table all", "nstat -asz"):
                said = subprocess.run(host.command(what.split()), check=False, capture_output=True, text=True).stdout
                self.say(f"stall-{self.looks}-{side}", f"# {what}\n{said}")


def flap(paths, random, until, log, logs):
    """Something goes wrong: yields how long, then is over."""
    kind = random.choice(["down", "mute", "down", "mute", "both"])
    span = 5 if kind == "both" else random.uniform(2, 20)
    span = max(min(span, until - time.monotonic() - 10), 0)
    chosen = paths if kind == "both" else [random.choice(paths)]
    log.append(kind)
    said = json.dumps({"event": kind, "links": [path.device for path in chosen], "seconds": round(span, 1)})
    print(said, flush=True)
    logs.say("events", said)
    for path in chosen:
        path.down() if kind == "down" else path.mute()
    yield span
    for path in chosen:
        path.up() if kind == "down" else path.speak()
    logs.say("events", "over")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3_600)
    parser.add_argument("--connections", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--bin", help="the anabranch binary (default: cargo build --release)")
    parser.add_argument("--logs", help="a directory for logs of a run that fails")
    parser.add_argument("--load", help="the example `load` (default: cargo build --release)")
    options = parser.parse_args()
    if not testbed.IS_ROOT:
        sys.exit("root is needed for namespaces")
    testbed.install_cleanup()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    proxy.build(options)
    luck, scratch = random.Random(options.seed), testbed.scratch()
    with closing(proxy.Links(options.bin, f"soak{os.getpid()}", [(100, 20, 50), (100, 40, 50)], 0, scratch)) as bed:
        sys.exit(soak(options, bed, luck, scratch))


def soak(options, bed, luck, scratch):
    bed.origin_host.start([options.load, "origin", f"listen=0.0.0.0:{proxy.ORIGIN_PORT}"], os.path.join(scratch, "origin.log"))
    ours = proxies.Ours(options.bin, options.plain)
    ours.more = ["--via", "p0", "--via", "p1"]
    logs = Logs(options.logs, bed)
    if logs.directory:
        ours.log = lambda _site, part: f"/dev/fd/{logs.follow(part)}"
        ours.how = "--json"
    running = ours.start(bed.site, proxy.PROXY_PORT)
    if not proxies.wait_port(bed.near, running.address):
        sys.exit("the proxy does not listen")
    loads = {}
    for name, (of_4000, how) in PARTS.items():
        workers = max(of_4000 * options.connections // 4_000, 1)
        words = [options.load, "get", f"to={bed.origin}", f"via={running.address}", f"workers={workers}",
                 f"seconds={options.seconds}"]
        words += [key if value is True else f"{key}={value}" for key, value in how.items()]
        words += [f"stall={STALL_S}"] if logs.directory else []
        said = logs.follow("load-" + name.replace(", ", "-")) if logs.directory else None
        loads[name] = subprocess.Popen(bed.near.command(words), stdout=subprocess.PIPE, stderr=said, text=True)
    paths, events, samples = [Path(bed, device) for device in ("p0", "p1")], [], []
    began = time.monotonic()
    until = began + options.seconds
    sampled, step, turns = began, None, began + 15
    while time.monotonic() < until and running.alive():
        now = time.monotonic()
        if now >= turns:
            span = next(step, None) if step else None
            if span is None:
                step = None if step else flap(paths, luck, until, events, logs)
                span = next(step) if step else luck.uniform(5, 15)
            turns = now + span
        if now >= sampled:
            sampled = now + SAMPLE_S
            parts = {part: sum(map(proxies.memory, proxies.tree(child.pid))) for part, child in running.parts.items()}
            fds = {part: descriptors(child.pid) for part, child in running.parts.items()}
            samples.append({"at_s": now - began, "pss": parts, "fds": fds})
            if len(samples) % 12 == 1:
                print(json.dumps(samples[-1] | {"events": len(events)}), flush=True)
        time.sleep(0.2)
    for path in paths:
        path.speak()
        path.up()
    found = {name: json.loads(child.communicate(timeout=300)[0].splitlines()[-1]) for name, child in loads.items()}
    is_alive = running.alive()
    time.sleep(2)
    last = {part: descriptors(child.pid) for part, child in running.parts.items()}
    cpu = running.cpu_s()
    running.close()
    return judge(found, samples, is_alive, {"descriptors_after": last, "cpu_s": cpu, "events": events})


def descriptors(pid):
    """The most that a process of this tree has: the others only start it."""
    def count(one):
        try:
            return len(os.listdir(f"/proc/{one}/fd"))
        except OSError:
            return 0
    return max(map(count, proxies.tree(pid)), default=0)


def judge(found, samples, is_alive, more):
    sixth = max(len(samples) // 6, 1)
    growth = {}
    for part in samples[0]["pss"]:
        early = statistics.median(sample["pss"][part] for sample in samples[sixth:2 * sixth])
        late = statistics.median(sample["pss"][part] for sample in samples[-sixth:])
        growth[part] = {"early": early, "late": late, "is_flat": late <= early * GROWTH_MAX + GROWTH_BYTES}
    failed = {name: run["failed"] for name, run in found.items() if run["failed"]}
    wrong = {why: n for run in found.values() for why, n in run["failed"].items() if "CORRUPT" in why}
    kinds = {kind: more["events"].count(kind) for kind in sorted(set(more["events"]))}
    is_good = is_alive and not failed and all(part["is_flat"] for part in growth.values())
    print(json.dumps({"passed": is_good, "answered": sum(run["answered"] for run in found.values()),
                      "bytes": sum(run["bytes"] for run in found.values()), "wrong": wrong, "failed": failed,
                      "alive": is_alive, "memory": growth, "descriptors_most": samples_most(samples),
                      **more, "events": kinds, "loads": found}, indent=1))
    return 0 if is_good else 1


def samples_most(samples):
    return {part: max(sample["fds"][part] for sample in samples) for part in samples[0]["fds"]}


if __name__ == "__main__":
    main()
