"""One program, once, over emulated links: a download, or beside a curl that shares its link.

Hosts and links are `anabranch lab up`, new for every run. What a run was like is kept with it: bytes by link, what is
wrong with the links (`faults`: late packets), how much of the machine others took.
"""

import os
import random
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import testbed
from mirrors import World
from stack import MPTCP_PORT, RECEIVE, SEND, Failed, scenario

#: TCP of every host, but where a row names another: pinned by the hosts' routes.
CC = "cubic"
#: Seconds after which a program's connections are looked at.
LOOK_S = 1


@dataclass
class Bed:
    """Links: rates in Mbit/s (or traces), their round trips and queues in ms (or as written), random loss in percent.

    A path over each; or, where `paths` says so, so many over the first, and a neighbour over it too. `servers` is the TCP
    of every host, but where a row names another.
    """

    rates: list
    rtts: list
    queue: int
    loss: float = 0
    paths: int = 0
    servers: str = CC

    def text(self):
        links = {f"x{n}": (rate, self.queue, self.loss) for n, rate in enumerate(self.rates)}
        flows = {"mm": [0] * self.paths, "sp": [0]} if self.paths else {"mm": range(len(self.rates))}
        return scenario(links, {flow: [(f"x{n}", self.rtts[n]) for n in over] for flow, over in flows.items()})

    def sources(self):
        return self.paths or len(self.rates)

    def name(self):
        plain = lambda values: str(values[0]) if len(set(values)) == 1 else "+".join(map(str, values))
        rates = [os.path.basename(rate) if isinstance(rate, str) else rate for rate in self.rates]
        rates = "+".join(map(str, rates)) if len(set(rates)) > 1 or len(rates) == 1 else f"{len(rates)}×{rates[0]}"
        loss = f", loss {self.loss} %" if self.loss else ""
        queue = self.queue if isinstance(self.queue, str) else f"{self.queue} ms"
        sources = f", {self.paths} source{'s' * (self.paths > 1)}" if self.paths else ""
        servers = "" if self.servers == CC else f", {self.servers.upper()} servers"
        return f"{rates} Mbit/s, RTT {plain(self.rtts)} ms, queue {queue}{loss}{sources}{servers}"


class Run:
    """Hosts and links for one run of one program; its sources are at the addresses of mm.tx."""

    #: All there are now: what one of them works is not other people's work to another.
    alive, lock, serial = set(), threading.Lock(), 0
    #: CPU seconds of the links of runs that have ended: they are no children of ours, so os.times() has not got them.
    ended_s = 0

    def __init__(self, binary, bed, path, cc=CC, seed=1):
        self.binary, self.bed, self.path, self.cc = os.path.abspath(binary), bed, path, cc
        self.hosts = [f"10.1.{p}.1" for p in range(bed.sources())]
        with Run.lock:
            Run.serial += 1
            name = f"links{os.getpid()}-{Run.serial}"
        self.world = World(self.binary, name, bed.text(), cc, seed)
        self.lab, self.out = self.world.lab, self.world.out
        self.got = os.path.join(self.out, "got")
        self.env = {**os.environ, "XDG_CACHE_HOME": os.path.join(self.out, "cache")}
        self.daemon = self.lab.state()["pid"]
        with Run.lock:
            Run.alive.add(self)

    def close(self):
        with Run.lock:
            Run.alive.discard(self)
            try:
                Run.ended_s += testbed.cpu_of(self.daemon)
            except OSError:
                pass  # It has ended before its time.
        self.world.close()

    def command(self, row):
        """Starts the other side of a program; tells on which host it runs, and its command.

        A row is a program and its options: `aria2 -s2`, `anabranch, mmTP --cc cubic`, `MPTCP, BBR senders`.
        """
        program, *words = row.replace(", ", " ").split()
        if program == "MPTCP":
            self.lab.start("mm.rx", sys.executable, "-ISc", RECEIVE, self.got)
            return "mm.tx", [sys.executable, "-ISc", SEND, self.path, self.cc]
        if "mmTP" in words:
            sources = []
            for host in self.hosts:
                serve = self.lab.start("mm.tx", self.binary, "serve", "--listen", f"{host}:26227", self.path,
                                       stdout=subprocess.PIPE, text=True, env=self.env)
                uri = serve.stdout.readline().strip()
                sources += ["--from", f"{host}:26227"]
            return "mm.rx", [self.binary, "get", "-o", self.got, *words[1:], uri, *sources]
        for host in self.hosts:
            self.lab.nginx("mm.tx", f"{host}:8000", os.path.dirname(self.path))
        urls = [f"http://{host}:8000/{os.path.basename(self.path)}" for host in self.hosts]
        curls = ["curl", "-sfZ", *[word for url in urls for word in ("-o", "/dev/null", url)]]
        return "mm.rx", {
            "curl": lambda: ["curl", "-sf", "-o", self.got, urls[0]],
            "one": lambda: curls, "two": lambda: curls, "three": lambda: curls,
            "axel": lambda: ["axel", "-q", *words, "-o", self.got, *urls],
            "aria2": lambda: ["aria2c", "--no-conf", "-q", *words, "-d", self.out, "-o", "got", *urls],
            "anabranch": lambda: [self.binary, "get", "-o", self.got, *words[1:], *urls]}[program]()

    def meter(self):
        """Bytes that each link has carried; CPU seconds that others took, and that there were; what is wrong."""
        state = self.lab.state()
        with open("/proc/stat", encoding="ascii") as stat:
            user, nice, system, *rest, steal = map(int, stat.readline().split()[1:9])
        # Interrupts are those of our own packets.
        busy = user + nice + system + steal
        with Run.lock:
            ours = sum(os.times()[:4]) + Run.ended_s
            for run in Run.alive:
                for pid in [run.daemon, *[child.pid for child in run.lab.running]]:
                    try:
                        ours += testbed.cpu_of(pid)
                    except OSError:
                        pass  # It has ended: from now on it is in os.times().
        carried, all_s = [link["delivered_bytes"] for link in state["links"]], (busy + sum(rest)) / testbed.TICKS
        return carried, busy / testbed.TICKS - ours, all_s, state["faults"]

    def since(self, before):
        after = self.meter()
        return {"carried": [b - a for a, b in zip(before[0], after[0])], "faults": after[3],
                "others_percent": max(0, 100 * (after[1] - before[1]) / (after[2] - before[2]))}

    def look(self, row):
        """That all TCP of a row's sources has the controller it should have, and MPTCP a subflow on each path."""
        if row.startswith("MPTCP"):
            self.lab.has_controller("mm.tx", "dport", MPTCP_PORT, self.cc, self.bed.sources())
        elif "mmTP" not in row:
            self.lab.has_controller("mm.tx", "sport", 8000, self.cc)

    def download(self, row):
        """Runs it to its end: seconds of wall and CPU time, and what they were taken with."""
        host, argv = self.command(row)
        time.sleep(0.5)
        wrong = []

        def look():
            try:
                self.look(row)
            except Failed as why:
                wrong.append(why)

        before = self.meter()
        run = self.world.timed(host, argv, (LOOK_S, look))
        run |= self.since(before)
        said = run.pop("said")
        if wrong:
            raise wrong[0]
        if run["rc"] or subprocess.run(["cmp", "-s", self.got, self.path]).returncode:
            raise Failed(f"exit status {run['rc']}, and the file is not right: {said[-300:]}")
        if sum(run["carried"]) < os.path.getsize(self.path):
            raise Failed(f"the links carried only {run['carried']} bytes")
        return run

    def curl(self):
        """The neighbour: a curl that downloads from a server of its own."""
        self.lab.nginx("sp.tx", "10.2.0.1:8000", os.path.dirname(self.path))
        url = f"http://10.2.0.1:8000/{os.path.basename(self.path)}"
        return self.lab.start("sp.rx", "curl", "-sf", "-o", "/dev/null", url)

    def neighbour(self, row, warm_s, seconds):
        """Runs it beside a curl that began before: what that keeps of all bytes, and what of the link is used."""
        lab = self.lab
        host, argv = self.command(row)
        clients = [self.curl()]
        time.sleep(1 + 2 * random.random())
        clients.append(lab.start(host, *argv, env=self.env))
        time.sleep(warm_s)
        lab.has_controller("sp.tx", "sport", 8000, self.cc)
        self.look(row)
        before = self.meter()
        mm, sp = lab.rates(seconds, "mm", "sp")
        if any(client.poll() is not None for client in clients):
            raise Failed("a download ended before the measurement did")
        return {"kept": sp / (mm + sp), "used": (mm + sp) * 8 / 1e6 / self.bed.rates[0]} | self.since(before)


def attempt(kind, binary, bed, path, cc, work, seed=1):
    """What `work` says of a new Run of this kind. A run that failed says why."""
    run = None
    try:
        run = kind(binary, bed, path, cc, seed)
        return work(run)
    except (Failed, OSError, StopIteration) as why:
        return {"failed": str(why)}
    finally:
        if run:
            run.close()


def once(binary, bed, path, row, seed, beside=None):
    """One run; `beside` is (warm_s, seconds) for one beside a curl."""
    work = lambda run: run.neighbour(row, *beside) if beside else run.download(row)
    return attempt(Run, binary, bed, path, "bbr" if "BBR" in row else bed.servers, work, seed)


def shown(run):
    return ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in run.items())


def good(runs):
    return [run for run in runs if "failed" not in run]


def values(runs, key):
    """Median, least and most of the runs that did not fail; nothing if all did."""
    found = [run[key] for run in good(runs)]
    return (statistics.median(found), min(found), max(found)) if found else None
