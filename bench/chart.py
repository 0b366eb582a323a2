#!/usr/bin/env python3
"""The chart of the README: how long a download takes over two links, and what a TCP neighbour keeps meanwhile.

    cargo build --release -p anabranch-cli --bins
    sudo chrt -r 5 python3 bench/chart.py           measures all (45 minutes on a quiet machine), then draws
    sudo chrt -r 5 python3 bench/chart.py --only shared --runs 10     this part again, the others stay as they were
    python3 bench/chart.py --draw                   only draws again
    sudo python3 bench/chart.py --quick             one short run of everything, nothing written: does it work?

equal, unequal   100 MB over two idle links with a source behind each
shared           three sources behind one link, beside a curl that began before: what that curl keeps of all bytes. The
                 control is three curls instead: they must leave it 20 to 30 %, or the rows beside it do not count

Every run is kept in bench/chart.json; docs/comparison.svg and the tables in docs/performance.md are made from that alone.
Programs have their default settings, but for the options in their names; TCP is pinned to CUBIC on all hosts. Hosts and
links are `anabranch lab up`, new for every run. `chrt -r 5` puts all this before ordinary processes; how much of the
machine's CPU these took all the same is recorded, and what they took in caches and memory bandwidth is not.
"""

import argparse
import datetime
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import chart_svg  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
import testbed  # noqa: E402
from mirrors import SHM, World  # noqa: E402
from stack import Failed, PAYLOAD, ROOT, finish, scenario, write  # noqa: E402

DATA = os.path.join(ROOT, "bench", "chart.json")
CC = "cubic"
BYTES = 100_000_000
#: Links in Mbit/s, their round trips and queues in ms.
LINKS = {"equal": ([50, 50], [50, 50], 50), "unequal": ([100, 20], [20, 80], 60), "shared": ([100], [20], 20)}
CONTROL = "three curls (control)"
OURS = ["anabranch, mirrors", "anabranch, mmTP"]
IDLE = ["curl, one mirror", "axel -n2", "aria2 -s2", "aria2 -s2 -k1M", *OURS]
ROWS = {"equal": IDLE, "unequal": IDLE, "shared": [CONTROL, "axel -n3", "aria2 -s3", "aria2 -s16 -x16", *OURS]}


class Run:
    """Hosts and links for one run of one program; its sources are at the addresses of mm.tx."""

    def __init__(self, options, key, path):
        self.options, self.path = options, path
        self.binary = os.path.abspath(options.bin)
        flows = {"mm": [0] * 3, "sp": [0]} if key == "shared" else {"mm": [0, 1]}
        self.hosts = [f"10.1.{p}.1" for p in range(len(flows["mm"]))]
        rates, rtts, queue = LINKS[key]
        text = scenario({f"x{n}": (rate, queue) for n, rate in enumerate(rates)},
                        {flow: [(f"x{n}", rtts[n]) for n in links] for flow, links in flows.items()})
        self.world = World(self.binary, f"chart{os.getpid()}", text, CC, len(self.hosts))
        self.lab, self.out = self.world.lab, self.world.out
        self.got = os.path.join(self.out, "got")
        self.env = {**os.environ, "XDG_CACHE_HOME": os.path.join(self.out, "cache")}

    def command(self, row):
        """Starts the sources of a program, and tells its command."""
        program, *words = row.replace(",", "").split()
        if "mmTP" in words:
            sources = []
            for host in self.hosts:
                serve = self.lab.start("mm.tx", self.binary, "serve", "--listen", f"{host}:26227", self.path,
                                       stdout=subprocess.PIPE, text=True, env=self.env)
                uri = serve.stdout.readline().strip()
                sources += ["--from", f"{host}:26227"]
            return [self.binary, "get", "-o", self.got, uri, *sources]
        for host in self.hosts:
            self.lab.nginx("mm.tx", f"{host}:8000", os.path.dirname(self.path))
        urls = [f"http://{host}:8000/{os.path.basename(self.path)}" for host in self.hosts]
        return {"curl": lambda: ["curl", "-sf", "-o", self.got, urls[0]],
                "three": lambda: ["curl", "-sfZ", *[word for url in urls for word in ("-o", "/dev/null", url)]],
                "axel": lambda: ["axel", "-q", *words, "-o", self.got, *urls],
                "aria2": lambda: ["aria2c", "--no-conf", "-q", *words, "-d", self.out, "-o", "got", *urls],
                "anabranch": lambda: [self.binary, "get", "-o", self.got, *urls]}[program]()

    def meter(self):
        """Bytes that each link has carried; CPU seconds that others took, and that there were; what is wrong."""
        states = map(json.loads, finish([self.binary, "lab", "status", "--json"]).splitlines())
        state = next(state for state in states if state["name"] == self.lab.name)
        with open("/proc/stat", encoding="ascii") as stat:
            user, nice, system, *rest, steal = map(int, stat.readline().split()[1:9])
        # Interrupts are those of our own packets.
        busy = user + nice + system + steal
        ours = sum(os.times()[:4]) + sum(map(testbed.cpu_of, [state["pid"], *(child.pid for child in self.lab.running)]))
        carried, all_s = [link["delivered_bytes"] for link in state["links"]], (busy + sum(rest)) / testbed.TICKS
        return carried, busy / testbed.TICKS - ours, all_s, state["faults"]

    def since(self, before):
        after = self.meter()
        return {"carried": [b - a for a, b in zip(before[0], after[0])], "faults": after[3],
                "others_percent": max(0, 100 * (after[1] - before[1]) / (after[2] - before[2]))}

    def download(self, argv, is_tcp):
        wrong = []

        def check():
            try:
                self.lab.has_controller("mm.tx", 8000, CC)
            except Failed as why:
                wrong.append(why)

        before = self.meter()
        run = self.world.timed("mm.rx", argv, (0.5, check) if is_tcp else None)
        run |= self.since(before)
        said = run.pop("said")
        if wrong:
            raise wrong[0]
        if run["rc"] or subprocess.run(["cmp", "-s", self.got, self.path]).returncode:
            raise Failed(f"exit status {run['rc']}, and the file is not right: {said[-300:]}")
        if sum(run["carried"]) < os.path.getsize(self.path):
            raise Failed(f"the links carried only {run['carried']} bytes")
        return run

    def neighbour(self, argv, is_tcp):
        lab = self.lab
        lab.nginx("sp.tx", "10.2.0.1:8000", os.path.dirname(self.path))
        url = f"http://10.2.0.1:8000/{os.path.basename(self.path)}"
        clients = [lab.start("sp.rx", "curl", "-sf", "-o", "/dev/null", url)]
        time.sleep(1 + 2 * random.random())
        clients.append(lab.start("mm.rx", *argv, env=self.env))
        time.sleep(self.options.warm)
        for host in ("sp.tx", "mm.tx") if is_tcp else ("sp.tx",):
            lab.has_controller(host, 8000, CC)
        before = self.meter()
        mm, sp = lab.rates(self.options.seconds, "mm", "sp")
        if any(client.poll() is not None for client in clients):
            raise Failed("a download ended before the measurement did")
        return {"kept": sp / (mm + sp), "used": (mm + sp) * 8 / 1e6 / LINKS["shared"][0][0]} | self.since(before)


def once(options, key, row, path):
    run = None
    try:
        run = Run(options, key, path)
        argv = run.command(row)
        time.sleep(0.5)
        return (run.neighbour if key == "shared" else run.download)(argv, "mmTP" not in row)
    except (Failed, OSError, StopIteration) as why:
        return {"failed": str(why)}
    finally:
        if run:
            run.world.close()


def measure(options, key):
    """Programs take turns, so that a noisy minute hurts them all."""
    runs = {row: [] for row in ROWS[key]}
    size = (options.warm + options.seconds + 8) * 12_500_000 if key == "shared" else options.bytes
    with tempfile.TemporaryDirectory(prefix="anabranch-chart-", dir=SHM) as scratch:
        path = os.path.join(scratch, "f")
        write(path, size)
        for number in range(options.runs):
            for row in runs:
                run = once(options, key, row, path)
                runs[row].append(run)
                shown = ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in run.items())
                print(f"{key} {number + 1}/{options.runs}: {row}: {shown}", flush=True)
    rates, rtts, queue = LINKS[key]
    return {"rates_mbit": rates, "rtts_ms": rtts, "queue_ms": queue, "bytes": size, "warm_s": options.warm,
            "seconds": options.seconds, "ideal_s": size * 8 / (sum(rates) * 1e6 * PAYLOAD), "runs": runs,
            "machine": machine(options)}


def machine(options):
    policy = {os.SCHED_RR: "round robin", os.SCHED_FIFO: "FIFO"}.get(os.sched_getscheduler(0), "ordinary")
    return {"date": datetime.date.today().isoformat(), "commit": options.commit,
            "kernel": platform.release().split("-")[0], "cores": os.cpu_count(), "tcp_cc": CC, "scheduling": policy,
            "versions": {peer: peers.version(peer) for peer in ("aria2c", "axel", "curl", "nginx")}}


def values(runs, key):
    """Median, least and most of the runs that did not fail; nothing if all did."""
    good = [run[key] for run in runs if "failed" not in run]
    return (statistics.median(good), min(good), max(good)) if good else None


def links(panel):
    rates, rtts = ("+".join(map(str, panel[unit])) for unit in ("rates_mbit", "rtts_ms"))
    return f"{rates} Mbit/s, RTT {rtts.replace('50+50', '50')} ms, queue {panel['queue_ms']} ms"


def conditions(data):
    """What was measured on what; several commits or days, if panels have several."""
    each = lambda key: ", ".join(sorted({str(panel["machine"][key]) for panel in data.values()}))
    good = [r for panel in data.values() for runs in panel["runs"].values() for r in runs if "failed" not in r]
    others, late = [run["others_percent"] for run in good] or [0], sum(bool(run["faults"]) for run in good)
    runs = {key: str(max(map(len, panel["runs"].values()))) for key, panel in data.items()}
    versions = data["shared"]["machine"]["versions"].items()
    return [f"Median (and range) of {runs['equal']} and {runs['unequal']} downloads, and of {runs['shared']} times "
            f"{data['shared']['seconds']} s; all TCP is CUBIC",
            ", ".join(f"{name.removesuffix('c') if name == 'aria2c' else name} {v}" for name, v in versions),
            f"{each('date')}, commit {each('commit')}, Linux {each('kernel')}, {each('cores')} cores, {each('scheduling')} scheduling; "
            f"CPU taken by others: median {statistics.median(others):.0f} %, at most {max(others):.0f} %"
            + f"; links late in {late} of {len(good)} runs" * bool(late)]


def control_holds(data):
    kept = values(data["shared"]["runs"][CONTROL], "kept")
    return bool(kept) and 0.2 <= kept[0] <= 0.3


def table(data):
    parts = []
    for key, panel in data.items():
        rows = []
        for row, runs in panel["runs"].items():
            good = [run for run in runs if "failed" not in run]
            cells = ["–"] * 3
            if good and key == "shared":
                kept = "{:.0f} % ({:.0f}–{:.0f})".format(*(100 * v for v in values(runs, "kept")))
                cells = [kept, f"{100 * values(runs, 'used')[0]:.0f} %"]
            elif good:
                wall = values(runs, "wall_s")
                mb = [f"{statistics.median(link) / 1e6:.0f}" for link in zip(*(run["carried"] for run in good))]
                of_ideal = f"{100 * panel['ideal_s'] / wall[0]:.0f} %"
                cells = ["{:.2f} ({:.2f}–{:.2f})".format(*wall), of_ideal, "/".join(mb)]
            rows.append([row, *cells[:2 if key == "shared" else 3], f"{len(good)}/{len(runs)}"])
        head = ([f"beside one curl: {links(panel)}", "the curl keeps", "link used", "runs"] if key == "shared" else
                [f"{panel['bytes'] / 1e6:.0f} MB: {links(panel)}", "wall s", "of payload ideal", "MB by link", "right"])
        parts += [report.markdown(head, rows), ""]
    if not control_holds(data):
        parts += ["**The control is not within 20 to 30 %: the shares do not count.**", ""]
    return "\n" + "\n".join(parts) + f"\n<sub>{'; '.join(conditions(data))}.</sub>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target", "release", "anabranch"))
    parser.add_argument("--commit", help="what --bin was built from, if not from here")
    parser.add_argument("--only", default=",".join(LINKS), help="these parts; the others stay as they were")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=BYTES)
    parser.add_argument("--seconds", type=int, default=35, help="how long shares are measured")
    parser.add_argument("--warm", type=int, default=10, help="after so many seconds")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--draw", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.bytes, options.seconds, options.warm = 1, 10_000_000, 5, 3
    data = {}
    if os.path.exists(DATA) and not options.quick:
        with open(DATA, encoding="utf-8") as text:
            data = json.load(text)
    if not options.draw:
        missing = [name for name in ("aria2c", "axel", "curl", "nginx") if not shutil.which(name)]
        if os.geteuid() or missing:
            sys.exit(f"needs root, aria2c, axel, curl and nginx; not installed: {' '.join(missing) or 'none'}")
        testbed.install_cleanup()
        # Now, since what is measured goes into the work tree.
        describe = ["git", "describe", "--always", "--dirty"]
        here = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True).stdout.strip()
        options.commit = options.commit or here
        for key in options.only.split(","):
            data[key] = measure(options, key)
            data = {key: data[key] for key in LINKS if key in data}
            if not options.quick:
                report.replace(DATA, json.dumps(data, indent=1) + "\n")
    if len(data) == len(LINKS):
        print(table(data))
    if options.quick:
        return
    if len(data) < len(LINKS):
        sys.exit(f"nothing drawn yet: measure {', '.join(key for key in LINKS if key not in data)} too")
    rows = lambda key, value, scale: [(row, [scale * v for v in values(runs, value) or ()], row in OURS)
                                      for row, runs in data[key]["runs"].items()]
    report.replace(os.path.join(ROOT, "docs", "comparison.svg"), chart_svg.draw(
        {key: (links(data[key]), rows(key, *of), mark) for key, of, mark in (
            ("equal", ("wall_s", 1), data["equal"]["ideal_s"]), ("unequal", ("wall_s", 1), data["unequal"]["ideal_s"]),
            ("shared", ("kept", 100), 50))}, data["equal"]["bytes"], conditions(data), control_holds(data)))
    report.insert(ROOT, {"chart": table(data)})
    if not control_holds(data):
        sys.exit("the control is not within 20 to 30 %: the shares do not count")


if __name__ == "__main__":
    main()
