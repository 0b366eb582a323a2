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
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import chart_svg  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
import testbed  # noqa: E402
from links import CC, Bed, good, once, shown, values  # noqa: E402
from mirrors import SHM  # noqa: E402
from stack import PAYLOAD, ROOT, write  # noqa: E402

DATA = os.path.join(ROOT, "bench", "chart.json")
BYTES = 100_000_000
LINKS = {"equal": Bed([50, 50], [50, 50], 50), "unequal": Bed([100, 20], [20, 80], 60),
         "shared": Bed([100], [20], 20, paths=3)}
CONTROL = "three curls (control)"
OURS = ["anabranch, mirrors", "anabranch, mmTP"]
IDLE = ["curl, one mirror", "axel -n2", "aria2 -s2", "aria2 -s2 -k1M", *OURS]
ROWS = {"equal": IDLE, "unequal": IDLE, "shared": [CONTROL, "axel -n3", "aria2 -s3", "aria2 -s16 -x16", *OURS]}


def measure(options, key):
    """Programs take turns, so that a noisy minute hurts them all."""
    runs = {row: [] for row in ROWS[key]}
    size = (options.warm + options.seconds + 8) * 12_500_000 if key == "shared" else options.bytes
    with tempfile.TemporaryDirectory(prefix="anabranch-chart-", dir=SHM) as scratch:
        path = os.path.join(scratch, "f")
        write(path, size)
        for number in range(options.runs):
            for row in runs:
                beside = (options.warm, options.seconds) if key == "shared" else None
                run = once(options.bin, LINKS[key], path, row, beside)
                runs[row].append(run)
                print(f"{key} {number + 1}/{options.runs}: {row}: {shown(run)}", flush=True)
    rates = LINKS[key].rates
    return {"rates_mbit": rates, "rtts_ms": LINKS[key].rtts, "queue_ms": LINKS[key].queue, "bytes": size, "warm_s": options.warm,
            "seconds": options.seconds, "ideal_s": size * 8 / (sum(rates) * 1e6 * PAYLOAD), "runs": runs,
            "machine": machine(options)}


def machine(options):
    return {"date": datetime.date.today().isoformat(), "commit": options.commit,
            "kernel": platform.release().split("-")[0], "cores": os.cpu_count(), "tcp_cc": CC, "scheduling": testbed.scheduling(),
            "versions": {peer: peers.version(peer) for peer in ("aria2c", "axel", "curl", "nginx")}}


def links(panel):
    rates, rtts = ("+".join(map(str, panel[unit])) for unit in ("rates_mbit", "rtts_ms"))
    return f"{rates} Mbit/s, RTT {rtts.replace('50+50', '50')} ms, queue {panel['queue_ms']} ms"


def conditions(data):
    """What was measured on what; several commits or days, if panels have several."""
    each = lambda key: ", ".join(sorted({str(panel["machine"][key]) for panel in data.values()}))
    all_good = [run for panel in data.values() for runs in panel["runs"].values() for run in good(runs)]
    others, late = [run["others_percent"] for run in all_good] or [0], sum(bool(run["faults"]) for run in all_good)
    runs = {key: str(max(map(len, panel["runs"].values()))) for key, panel in data.items()}
    versions = data["shared"]["machine"]["versions"].items()
    return [f"Median (and range) of {runs['equal']} and {runs['unequal']} downloads, and of {runs['shared']} times "
            f"{data['shared']['seconds']} s; all TCP is CUBIC",
            ", ".join(f"{name.removesuffix('c') if name == 'aria2c' else name} {v}" for name, v in versions),
            f"{each('date')}, commit {each('commit')}, Linux {each('kernel')}, {each('cores')} cores, {each('scheduling')} scheduling; "
            f"CPU taken by others: median {statistics.median(others):.0f} %, at most {max(others):.0f} %"
            + f"; links late in {late} of {len(all_good)} runs" * bool(late)]


def control_holds(data):
    kept = values(data["shared"]["runs"][CONTROL], "kept")
    return bool(kept) and 0.2 <= kept[0] <= 0.3


def table(data):
    parts = []
    for key, panel in data.items():
        rows = []
        for row, runs in panel["runs"].items():
            cells, right = ["–"] * 3, good(runs)
            if right and key == "shared":
                kept = "{:.0f} % ({:.0f}–{:.0f})".format(*(100 * v for v in values(runs, "kept")))
                cells = [kept, f"{100 * values(runs, 'used')[0]:.0f} %"]
            elif right:
                wall = values(runs, "wall_s")
                mb = [f"{statistics.median(link) / 1e6:.0f}" for link in zip(*(run["carried"] for run in right))]
                of_ideal = f"{100 * panel['ideal_s'] / wall[0]:.0f} %"
                cells = ["{:.2f} ({:.2f}–{:.2f})".format(*wall), of_ideal, "/".join(mb)]
            rows.append([row, *cells[:2 if key == "shared" else 3], f"{len(right)}/{len(runs)}"])
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
