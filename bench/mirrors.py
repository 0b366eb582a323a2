#!/usr/bin/env python3
"""HTTP mirrors over emulated links: `anabranch get` beside aria2, axel and curl, with nginx at the other end.

    sudo python3 bench/mirrors.py [--runs 3] [--fair-runs 10] [--only equal,unequal,stall,corrupt,small,cpu,shared]
                                  [--json]

equal    three links of 100 Mbit/s (RTT 20 ms, queue of one product), a mirror behind each: what of their sum is used
unequal  the same with 100, 50 and 10 Mbit/s
stall    one of three mirrors gets SIGSTOP after 3 s: time beside the ideal of three links, then two
corrupt  one of three mirrors has 8 bytes flipped in every megabyte: time, what came out, who was named
small    a directory of 10,000 files of 10 KB, and one of 1,000 of 100 KB, over one mirror and one link of 100 Mbit/s with an
         RTT of 50 ms: what of the link is used, headers counting for nothing
cpu      CPU a GB on loopback, verified with the same hashes
shared   three mirrors behind one link of 100 Mbit/s, beside a curl that began before: what that curl keeps. The control is
         three curls instead: they must leave it 20 to 30 %, or the rows beside it say nothing

Hosts and links are `anabranch lab up`; everything else is an unmodified program. The ideal is the payload that links carry:
1,448 of the 1,500 bytes of a packet. Standard library only; every process it starts it ends, by its number.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from contextlib import closing
from functools import partial

sys.dont_write_bytecode = True
import peers  # noqa: E402
import markup  # noqa: E402
import report  # noqa: E402
import testbed  # noqa: E402
from stack import Failed, Lab, PAYLOAD, ROOT, all_of, finish, scenario, write  # noqa: E402

SHM = "/dev/shm" if os.path.isdir("/dev/shm") else None
RTT_MS = 20
STALL_S = 3
LINK_BYTES = 400_000_000
CPU_BYTES = 1_000_000_000
#: Directories of small files: how many, how long each.
SMALL = [(10_000, 10_000), (1_000, 100_000)]
SMALL_RTT_MS = 50
#: A run that takes longer has failed.
LIMIT_S = 120


def world(rates, shared=False, rtt_ms=RTT_MS):
    """Links of these rates and a flow over each; or one link, and the flow's paths and another flow over it."""
    names = ["c"] if shared else [f"x{n}" for n in range(len(rates))]
    flows = {"mm": names * 3, "sp": names} if shared else {"mm": names}
    return scenario({name: (rate, rtt_ms) for name, rate in zip(names, rates)},
                    {flow: [(name, rtt_ms) for name in links] for flow, links in flows.items()})


class Files:
    """What mirrors serve: the file bare; the same with its lists; flipped."""

    def __init__(self, binary, scratch, name, size):
        self.binary, self.name, self.size = binary, name, size
        self.root = os.path.join(scratch, name)
        for kind in ("good/bare", "good/full", "bad/bare", "bad/full", "lists"):
            os.makedirs(os.path.join(self.root, kind))
        self.path = os.path.join(self.root, "good/bare", name)
        write(self.path, size)
        os.link(self.path, os.path.join(self.root, "good/full", name))

    def spoil(self):
        bad = os.path.join(self.root, "bad/bare", self.name)
        if not os.path.exists(bad):
            peers.flip(self.path, bad)
            os.link(bad, os.path.join(self.root, "bad/full", self.name))

    def lists(self, hosts):
        """Metalinks for these mirrors: with piece hashes only, and with the leaf list, which every mirror has too."""
        into = os.path.join(self.root, "lists")
        urls = [f"http://{host}/full/{self.name}" for host in hosts]
        finish([self.binary, "mirror-list", "make", "--quiet", "--force", "-o", into, self.path, *urls])
        full, leaves = (os.path.join(into, f"{self.name}.{end}") for end in ("meta4", "b3leaves"))
        with open(full, encoding="utf-8") as f:
            text = f.read()
        text = re.sub(r'\s*<hash type="blake3">.*?</hash>|\s*<metaurl .*?</metaurl>', "", text, flags=re.S)
        pieces = os.path.join(self.root, "pieces.meta4")
        with open(pieces, "w", encoding="utf-8") as f:
            f.write(text.replace("/full/", "/bare/"))
        for kind in ("good", "bad"):
            shutil.copy(leaves, os.path.join(self.root, kind, "full"))
        return {"urls": [url.replace("/full/", "/bare/") for url in urls], "pieces": pieces, "leaves": full}


class World:
    """A laboratory with nginx at the addresses of a flow."""

    def __init__(self, binary, name, text, cc, seed=1):
        self.lab = Lab(binary, name, text, seed)
        # Where files come to, on no disk.
        self.out = tempfile.mkdtemp(prefix="anabranch-mirrors-", dir=SHM)
        hosts = [f"{flow}.{end}" for flow in ("mm", "sp") if f"flow.{flow}" in text for end in ("tx", "rx")]
        try:
            for host in hosts:
                self.lab.controller(host, cc)
                # Windows grow as on this machine, not from the twelve megabytes of the laboratory's iperf.
                if host.endswith(".rx"):
                    with open("/proc/sys/net/ipv4/tcp_rmem", encoding="ascii") as own:
                        self.lab.run(host, "sysctl", "-qw", f"net.ipv4.tcp_rmem={' '.join(own.read().split())}")
        except Failed:
            self.close()
            raise

    def close(self):
        self.lab.close()
        shutil.rmtree(self.out, ignore_errors=True)

    def timed(self, host, argv, at=None, out=None):
        """Runs a program to its end; `at` is a time and what to do then."""
        log = os.path.join(self.lab.dir, "log")
        with open(log, "wb") as into:
            began = time.monotonic()
            child = self.lab.start(host, *argv, stdout=into, stderr=subprocess.STDOUT,
                                   env={**os.environ, "XDG_CACHE_HOME": os.path.join(self.out, "cache")})
            timer = threading.Timer(*at) if at else None
            if timer:
                timer.start()
            killer = threading.Timer(LIMIT_S, child.kill)
            killer.start()
            _, status, usage = os.wait4(child.pid, 0)
            wall = time.monotonic() - began
            killer.cancel()
            if timer:
                timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        self.lab.running.remove(child)
        with open(log, encoding="utf-8", errors="replace") as text:
            said = text.read()
        return {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "rc": child.returncode, "said": said}


def tools(binary, lists, directory):
    """Every program's row: its name, its command. Each writes `got` into `directory`."""
    urls, got = lists["urls"], os.path.join(directory, "got")
    aria2 = ["aria2c", "--no-conf", "-q", "-d", directory, "--allow-overwrite=true"]
    get = [binary, "get", "--force", "-o", got]
    more = {f"get {extra}": [*get, *extra.split(), *urls] for extra in MORE}
    return more | {
        "get": [*get, *urls],
        "get --disjoint": [*get, "--disjoint", *urls],
        "get --disjoint, Metalink with pieces": [*get, "--disjoint", lists["pieces"]],
        "get --disjoint, leaf list": [*get, "--disjoint", lists["leaves"]],
        "get, Metalink with pieces": [*get, lists["pieces"]],
        "get, leaf list": [*get, lists["leaves"]],
        "aria2": [*aria2, "-o", "got", *urls],
        "aria2 -s3 -k1M": [*aria2, "-s3", "-k1M", "-o", "got", *urls],
        "aria2 -s16 -x16 -k1M": [*aria2, "-s16", "-x16", "-k1M", "-o", "got", *urls],
        "aria2 -s3 -k1M, Metalink with pieces": [*aria2, "-s3", "-k1M", "--follow-metalink=mem", lists["pieces"]],
        "aria2 -s3 -k1M --checksum=sha-256": [*aria2, "-s3", "-k1M", f"--checksum=sha-256={lists['sha']}",
                                              "-o", "got", *urls],
        "axel -n 3": ["axel", "-q", "-n", "3", "-o", got, *urls],
        "curl, one mirror": ["curl", "-sf", "-o", got, urls[0]],
    }


class Bench:
    def __init__(self, options):
        self.options, self.rows = options, {}
        self.binary = os.path.abspath(options.bin)
        self.scratch = tempfile.mkdtemp(prefix="anabranch-mirrors-", dir=SHM)
        self.lock, self.serial, self.files, self.failed = threading.Lock(), 0, {}, 0

    def name(self, what):
        with self.lock:
            self.serial += 1
            return f"m{os.getpid()}-{what}{self.serial}"

    def content(self, name, size):
        if name not in self.files:
            self.files[name] = Files(self.binary, self.scratch, name, size)
        return self.files[name]

    def add(self, table, what, row):
        with self.lock:
            self.rows.setdefault(table, {}).setdefault(what, []).append(row)
            shown = ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if v != "")
            print(f"# {table}: {what}: {shown}", file=sys.stderr, flush=True)

    def prepare(self, files, hosts):
        lists = files.lists(hosts)
        if not hasattr(files, "sha"):
            files.sha = subprocess.run(["sha256sum", files.path], capture_output=True, text=True).stdout.split()[0]
        return {**lists, "sha": files.sha}

    def one(self, place, files, host, argv, at=None):
        """Runs a program once; tells whether the file is right."""
        got = [os.path.join(place.out, n) for n in ("got", files.name)]

        def clean():
            # What `get` remembers of URLs, too.
            for name in os.listdir(place.out):
                path = os.path.join(place.out, name)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)

        clean()
        row = place.timed(host, argv, at)
        there = next((path for path in got if os.path.exists(path)), None)
        right = there and subprocess.run(["cmp", "-s", there, files.path]).returncode == 0
        row["file"] = "right" if right and row["rc"] == 0 else "refused" if row["rc"] else "WRONG"
        clean()
        return row

    def links(self, table, rates, wanted, bad=None, stall=False):
        files = self.content("f", self.options.bytes or LINK_BYTES)
        if bad is not None:
            files.spoil()
        with closing(World(self.binary, self.name(table), world(rates), self.options.cc)) as place:
            hosts = [f"10.1.{p}.1:8000" for p in range(len(rates))]
            for p, host in enumerate(hosts):
                place.lab.nginx("mm.tx", host, os.path.join(files.root, "bad" if p == bad else "good"))
            all_tools = tools(self.binary, self.prepare(files, hosts), place.out)
            carried = [rate * 1e6 / 8 * PAYLOAD for rate in rates]
            ideal = files.size / sum(carried)
            if stall:
                ideal = STALL_S + (files.size - STALL_S * sum(carried)) / sum(carried[:-1])
            if bad is not None:
                ideal = files.size / (sum(carried) - carried[bad])
            for _ in range(self.options.runs):
                for what in wanted:
                    stopped = place.lab.servers[-1]
                    at = (STALL_S, lambda: os.kill(stopped, 19)) if stall else None
                    row = self.one(place, files, "mm.rx", all_tools[what], at)
                    if stall:
                        os.kill(stopped, 18)
                    said = row.pop("said")
                    if self.options.talk:
                        print(said[-3000:], file=sys.stderr)
                    row |= {"ideal_s": ideal, "of_ideal": ideal / row["wall_s"]}
                    if bad is not None:
                        row["named"] = sorted({h for h in hosts if re.search(
                            rf"{re.escape(h.split(':')[0])}\S*: wrong bytes", said)}) if "get" in what else []
                        row["right_named"] = row["named"] == [hosts[bad]]
                    self.add(table, what, row)
                    time.sleep(0.3)

    def small(self, count, size, wanted):
        """A directory over one mirror; every program gets an empty one to fill."""
        name = f"{count} files of {size // 1000} KB"
        root = os.path.join(self.scratch, f"small{count}")
        tree = os.path.join(root, "dist")
        block = os.urandom(size)
        for number in range(count):
            into = os.path.join(tree, f"d{number // 1000}")
            os.makedirs(into, exist_ok=True)
            with open(os.path.join(into, f"f{number}.bin"), "wb") as f:
                f.write(number.to_bytes(8, "big") + block[8:])
        place = World(self.binary, self.name("small"), world([100], rtt_ms=SMALL_RTT_MS), self.options.cc)
        try:
            host = "10.1.0.1:8000"
            place.lab.nginx("mm.tx", host, root)
            subprocess.run([self.binary, "mirror-list", "make", "--quiet", "--force", "-o", root, tree,
                            f"http://{host}/dist"], check=True, capture_output=True)
            lists = os.path.join(root, "dist.meta4")
            got = os.path.join(place.out, "got")
            aria2 = ["aria2c", "--no-conf", "-q", "--file-allocation=none", "-d", got, "-M", lists]
            programs = {"get": [self.binary, "get", "-o", got, lists], "aria2": aria2,
                        "aria2 -j16 -x16": [*aria2, "-j16", "-x16"],
                        "aria2 -j64 -x16": [*aria2, "-j64", "-x16"]}
            ideal = count * size / (100e6 / 8 * PAYLOAD)
            for _ in range(self.options.runs):
                for what in (name for name in programs if name in wanted):
                    shutil.rmtree(got, ignore_errors=True)
                    row = place.timed("mm.rx", programs[what])
                    right = not row["rc"] and not subprocess.run(["diff", "-rq", tree, got], capture_output=True).returncode
                    if self.options.talk:
                        print(row["said"][-3000:], file=sys.stderr)
                    row.pop("said")
                    row |= {"ideal_s": ideal, "of_ideal": ideal / row["wall_s"],
                            "file": "right" if right else "refused" if row["rc"] else "WRONG"}
                    self.add(f"small: {name}", what, row)
        finally:
            place.close()
            shutil.rmtree(root, ignore_errors=True)

    def cpu(self):
        files = self.content("g", self.options.bytes or CPU_BYTES)
        with closing(World(self.binary, self.name("cpu"), world([100]), self.options.cc)) as place:
            hosts = [f"127.0.0.1:{8001 + p}" for p in range(3)]
            for host in hosts:
                place.lab.nginx("mm.rx", host, os.path.join(files.root, "good"))
            all_tools = tools(self.binary, self.prepare(files, hosts), place.out)
            wanted = ["get", "get, Metalink with pieces", "get, leaf list", "aria2 -s3 -k1M",
                      "aria2 -s3 -k1M, Metalink with pieces", "aria2 -s3 -k1M --checksum=sha-256", "axel -n 3",
                      "curl, one mirror"]
            none = lambda argv: [argv[0], "--file-allocation=none", *argv[1:]] if argv[0] == "aria2c" else argv
            for _ in range(max(self.options.runs, 3)):
                for what in wanted:
                    before = sum(map(testbed.cpu_of, place.lab.servers))
                    row = self.one(place, files, "mm.rx", none(all_tools[what]))
                    served = sum(map(testbed.cpu_of, place.lab.servers)) - before
                    row.pop("said")
                    gb = files.size / 1e9
                    self.add("cpu", what, row | {"cpu_s_per_gb": row["cpu_s"] / gb, "server_s_per_gb": served / gb})

    def shared(self, tool, cc, seed):
        options, chance = self.options, random.Random(seed)
        files = self.content("g", CPU_BYTES)
        with closing(World(self.binary, self.name("sh"), world([100], shared=True), cc)) as place:
            lab = place.lab
            hosts = [f"10.1.{p}.1:8000" for p in range(3)]
            for host in hosts:
                lab.nginx("mm.tx", host, os.path.join(files.root, "good"))
            lab.nginx("sp.tx", "10.2.0.1:8000", os.path.join(files.root, "good"))
            urls = [f"http://{host}/bare/{files.name}" for host in hosts]
            lab.start("sp.rx", "curl", "-sf", "-o", "/dev/null", f"http://10.2.0.1:8000/bare/{files.name}")
            time.sleep(1 + 2 * chance.random())
            if tool == "three curls":
                for url in urls:
                    lab.start("mm.rx", "curl", "-sf", "-o", "/dev/null", url)
                    time.sleep(0.3 * chance.random())
            elif tool.startswith("get"):
                lab.start("mm.rx", self.binary, *tool.split(), "--force", "-o", os.path.join(place.out, "got"), *urls)
            else:
                split = tool.split("-s")[1]
                lab.start("mm.rx", "aria2c", "--no-conf", "-q", "--file-allocation=none", "-s", split, "-x", "16", "-k",
                          "1M", "-d", place.out, "-o", "got", *urls)
            time.sleep(options.warm)
            for host in ("mm.tx", "sp.tx"):
                lab.has_controller(host, "sport", 8000, cc)
            mm, sp = lab.rates(options.seconds, "mm", "sp")
            self.add("shared", f"{tool} | {cc}", {"kept": sp / (mm + sp), "used": (mm + sp) * 8 / 100e6})

    def fairness(self):
        options = self.options
        self.content("g", CPU_BYTES)
        names = options.fair_tools.split(",")
        jobs = []
        for run in range(options.fair_runs):
            for cc in options.fair_cc.split(","):
                for tool in names:
                    if tool.startswith("get") or run < options.peer_runs:
                        seed = 1000 * run + zlib.crc32(tool.encode()) % 1000
                        jobs.append(partial(self.shared, tool, cc, seed))
        self.failed += all_of(options.jobs, jobs)


#: Options of `get` to try.
MORE = []


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def outcomes(runs):
    kinds = [run["file"] for run in runs]
    return ", ".join(f"{kind}" + (f" {kinds.count(kind)}/{len(kinds)}" if len(set(kinds)) > 1 else "")
                     for kind in sorted(set(kinds)))


def print_tables(rows):
    for table, tools_ in rows.items():
        if table == "cpu":
            head = ["1 GB over loopback, three mirrors", "wall s", "CPU s/GB of the client", "of the servers", "file"]
            cells = [[what, *(f"{median(runs, key):.2f}" for key in ("wall_s", "cpu_s_per_gb", "server_s_per_gb")),
                      outcomes(runs)] for what, runs in tools_.items()]
        elif table == "shared":
            head = ["beside one curl, one link of 100 Mbit/s", "TCP", "curl keeps (sd; range)", "link used", "runs"]
            cells = []
            for what, runs in sorted(tools_.items(), key=lambda item: item[0].split(" | ")[1]):
                kept = [100 * run["kept"] for run in runs]
                sd = statistics.stdev(kept) if len(kept) > 1 else 0
                cells.append([*what.split(" | "), f"{statistics.mean(kept):.1f} % ({sd:.1f}; {min(kept):.1f}–{max(kept):.1f})",
                              f"{100 * median(runs, 'used'):.1f} %", len(runs)])
        else:
            ideal = next(iter(tools_.values()))[0]["ideal_s"]
            print(f"\n{table}: ideal {ideal:.2f} s")
            head = [table, "wall s (range)", "of ideal rate", "over ideal time", "file"]
            cells = [[what, report.spread(runs), f"{100 * median(runs, 'of_ideal'):.1f} %",
                      f"{100 * (median(runs, 'wall_s') / ideal - 1):+.1f} %", outcomes(runs)]
                     for what, runs in tools_.items()]
            if table == "corrupt":
                head.append("culprit named")
                for row, runs in zip(cells, tools_.values()):
                    row.append("yes" if all(run["right_named"] for run in runs) else "no")
        print("\n" + markup.table(head, cells))


LINKS = ["get", "get, leaf list", "get --disjoint", "get --disjoint, Metalink with pieces",
         "get --disjoint, leaf list", "aria2", "aria2 -s3 -k1M", "aria2 -s16 -x16 -k1M", "axel -n 3", "curl, one mirror"]
SMALL_TOOLS = ["get", "aria2", "aria2 -j16 -x16", "aria2 -j64 -x16"]
STALL = ["get", "get, leaf list", "get --disjoint", "get --disjoint, leaf list", "aria2", "aria2 -s3 -k1M",
         "aria2 -s16 -x16 -k1M", "axel -n 3"]
CORRUPT = ["get, Metalink with pieces", "get --disjoint, Metalink with pieces", "get --disjoint, leaf list",
           "get --disjoint", "aria2 -s3 -k1M", "aria2 -s3 -k1M --checksum=sha-256", "aria2 -s3 -k1M, Metalink with pieces"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target", "release", "anabranch"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--fair-runs", type=int, default=10, help="runs of get beside a curl; peers get --peer-runs")
    parser.add_argument("--peer-runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=35, help="how long shares are measured")
    parser.add_argument("--warm", type=int, default=10, help="after so many seconds")
    parser.add_argument("--jobs", type=int, default=2, help="laboratories of `shared` at a time")
    parser.add_argument("--cc", default="cubic", help="TCP of the mirrors; `shared` uses --fair-cc")
    parser.add_argument("--fair-cc", default="reno,cubic")
    parser.add_argument("--fair-tools", default="three curls,get,aria2 -s3,aria2 -s16")
    parser.add_argument("--bytes", type=int, default=0, help="another length of the file, to try things")
    parser.add_argument("--also", default="", help="more rows: options of get, several with ; between them")
    parser.add_argument("--rows", default="", help="a regular expression: these rows only")
    parser.add_argument("--only", default="equal,unequal,stall,corrupt,small,cpu,shared")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--talk", action="store_true", help="show what the programs print")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("skipped: root is needed for namespaces and TUN devices")
    missing = [name for name in ("aria2c", "axel", "curl", "nginx") if not shutil.which(name)]
    if missing:
        sys.exit(f"not installed: {' '.join(missing)}")
    MORE.extend(filter(None, options.also.split(";")))
    LINKS[:0] = [f"get {extra}" for extra in MORE]
    bench, only = Bench(options), options.only.split(",")
    some = lambda names: [name for name in names if re.search(options.rows, name)]
    try:
        if "equal" in only:
            bench.links("equal", [100] * 3, some(LINKS))
        if "unequal" in only:
            bench.links("unequal", [100, 50, 10], some(LINKS))
        if "stall" in only:
            bench.links("stall", [100] * 3, some(STALL), stall=True)
        if "corrupt" in only:
            bench.links("corrupt", [100] * 3, some(CORRUPT), bad=1)
        if "small" in only:
            for count, size in SMALL:
                bench.small(count, size, some(SMALL_TOOLS))
        if "cpu" in only:
            bench.cpu()
        if "shared" in only:
            bench.fairness()
    finally:
        shutil.rmtree(bench.scratch, ignore_errors=True)
    if options.json:
        print(json.dumps(bench.rows))
    else:
        print_tables(bench.rows)
    if bench.failed:
        sys.exit(f"{bench.failed} runs failed")


if __name__ == "__main__":
    main()
