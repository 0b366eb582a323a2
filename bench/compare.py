#!/usr/bin/env python3
"""Measures anabranch and its peers in one run, and writes the tables of docs/measurements, docs/performance.md and the chart.

    just bench                      everything that this machine can run (root for the namespace rows)
    just bench --only b,c           some tables; the others stay as they are
    just bench --quick              small files, one run each: whether it works, not how fast it is
    just bench --draw --only h      measures nothing: makes this table again from results.json
    just bench --check              measures nothing: is every table what results.json says?
    sudo chrt -r 5 just bench --only h --bed 'RTT 120' --row 'mmTP$|aria2'    some links and programs of a table

Tables: a ceiling, b loopback, c links, d stall, e corrupt source, f short objects, g fairness, h idle links with a
delay, i shared links with a delay, j beside a call.
Standard library only.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import closing

sys.dont_write_bytecode = True
import chart  # noqa: E402
import delay  # noqa: E402
import peers  # noqa: E402
import polite  # noqa: E402
import report  # noqa: E402
import testbed  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEGA = 1_000_000
TABLES = "abcdefghij"
#: Those over links with a delay.
DELAYED = {"h": delay.idle, "i": delay.shared, "j": polite.parts}
#: Tables that other programs make: each prints JSON rows or a Markdown table on its standard output.
HOOKS = {
    "a": ("crates/worlds/net/examples/udp_ceiling.rs", "-p anabranch-net --example udp_ceiling -- --json"),
    "f": ("crates/products/lab/examples/small_objects.rs", "-p anabranch-lab --example small_objects"),
    "g": ("scenarios/fairness.toml", "-p anabranch-cli --features lab --bin anabranch-lab -- run fairness --json"),
}


def skip(text):
    print(f"skipped: {text}", flush=True)


class Bench:
    """One invocation: its options, its files, the programs that are there."""

    def __init__(self, options):
        self.options = options
        self.scratch = testbed.scratch()
        self.binary = self.find_binary()
        needed = ["nginx", "curl", "aria2c", "axel"] if set(options.only) & set("bcdej") else []
        needed += delay.programs() if set(options.only) & set(DELAYED) else []
        if set(options.only) & set("cde") and testbed.IS_ROOT:
            needed += ["ip", "tc"]
        self.there = peers.install(needed) if options.install else {c for c in needed if shutil.which(c)}

    def find_binary(self):
        if self.options.bin:
            return os.path.abspath(self.options.bin)
        if not set(self.options.only) & {*"bcde", *DELAYED}:
            return None
        built = subprocess.run(["cargo", "build", "--release", "-q", "-p", "anabranch-cli", "--features", "all", "--bins", "--example", "liar"], cwd=ROOT, check=False)
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
        path = os.path.join(target, "release", "anabranch")
        usable = built.returncode == 0 and os.path.exists(path) and subprocess.run(
            [path, "serve", "--help"], stdout=subprocess.PIPE, check=False).stdout
        if not usable:
            skip("the rows of anabranch: it does not build or has no command `serve` yet")
        return path if usable else None

    def file(self, size):
        """Random bytes in memory: nothing on the way can compress or skip them."""
        path = os.path.join(self.scratch, f"{size}.bin")
        if not os.path.exists(path):
            with open(path, "wb") as out:
                for at in range(0, size, 1 << 22):
                    out.write(os.urandom(min(1 << 22, size - at)))
        return path

    def compare(self, bed, size, fetchers, liar=None, disturb=None):
        """Every fetcher in turn, `reps` times round, so that all share the machine's noise."""
        path, rows = self.file(size), {}
        usable = [f for f in fetchers if self.usable(f)]
        for round_ in range(self.options.reps):
            for fetcher in usable:
                sources = None
                try:
                    if fetcher.server == "nginx":
                        sources = peers.nginx(bed, path, self.scratch, liar)
                    else:
                        sources = peers.anabranch(bed, path, self.scratch, self.binary, liar)
                    carried = bed.carried()
                    run = fetcher.fetch(bed, sources, path, self.scratch, disturb(sources) if disturb else ())
                    if carried:
                        run.update(bytes=size, carried=[a - b for a, b in zip(bed.carried(), carried)])
                    if bypassed(run):
                        run["failed"] = describe(run)
                except RuntimeError as error:
                    run = {"failed": str(error)}
                finally:
                    if sources:
                        sources.close()
                rows.setdefault(fetcher.label, []).append(run)
                print(f"  {round_ + 1}/{self.options.reps} {fetcher.label}: {describe(run)}", flush=True)
        return {"bytes": size, "runs": rows, "verifies": {f.label: f.verifies for f in usable}}

    def usable(self, fetcher):
        return bool(self.binary) if fetcher.server == "anabranch" else fetcher.needs <= self.there

    def get(self, *options):
        return peers.get(self.binary, *options, *self.options.get_args.split(), label=" ".join(["anabranch get", *options]))

    def links_or_none(self, mbit):
        if not testbed.IS_ROOT:
            skip("links in namespaces: needs root")
            return None
        if not {"ip", "tc"} <= self.there:
            skip("links in namespaces: needs ip and tc (Debian package iproute2)")
            return None
        return testbed.Links(mbit)

    # The tables.

    def hook(self, key):
        source, argv = HOOKS[key]
        if not os.path.exists(os.path.join(ROOT, source)):
            return skip(f"table {key}: there is no {source}")
        command = ["cargo", "run", "--release", "-q", *argv.split()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        # 7: `lab run` has measured all, and not all is where its scenario expects it.
        if done.returncode not in (0, 7):
            print(done.stderr[-600:], file=sys.stderr)
            return skip(f"table {key}: {' '.join(command)} failed")
        return {"command": " ".join(command), "output": done.stdout}

    def loopback(self):
        size = 100 * MEGA if self.options.quick else 1000 * MEGA
        with closing(testbed.Loopback()) as bed:
            return self.compare(bed, size, [
                self.get(),
                peers.curl("curl, one source"),
                peers.aria2("-s3", "-x1", "-k1M"),
                peers.aria2("-s3", "-x1", "-k1M", checksum=True),
            ])

    def links(self):
        size, result = (40 if self.options.quick else 400) * MEGA, {"beds": []}
        for mbit in ((100, 100, 100), (100, 50, 10)):
            bed = self.links_or_none(mbit)
            if not bed:
                return None
            print(f"  links of {'/'.join(map(str, mbit))} Mbit/s", flush=True)
            with closing(bed):
                rows = self.compare(bed, size, [
                    self.get("--disjoint"),
                    self.get(),
                    peers.aria2(),
                    peers.aria2("-s3", "-k1M"),
                    peers.aria2("-s16", "-x16", "-k1M"),
                    peers.axel("axel -n 3"),
                ])
                result["beds"].append({**rows, "mbit": mbit, "ideal_s": bed.ideal_s(size)})
        return result

    def stall(self):
        size, after = (100 * MEGA, 1.0) if self.options.quick else (400 * MEGA, 3.0)
        bed = self.links_or_none((100, 100, 100))
        if not bed:
            return None
        with closing(bed):
            rows = self.compare(bed, size, [
                self.get("--disjoint"),
                peers.aria2("-s3", "-k1M"),
                peers.axel("axel -n 3"),
            ], disturb=lambda sources: [(after, lambda: os.kill(sources.children[1].pid, 19))])
            return {**rows, "after_s": after, "ideal_s": bed.ideal_s(size, after, 1)}

    def delayed(self, key, before, save):
        if not testbed.IS_ROOT or not self.binary or not set(delay.programs()) <= self.there:
            return skip(f"table {key}: needs root, {', '.join(delay.programs())} and anabranch")
        self.options.binary = self.binary
        return delay.measure(self.options, DELAYED[key](self.options), before, save)

    def corrupt(self):
        size = (40 if self.options.quick else 400) * MEGA
        bed = self.links_or_none((100, 100, 100))
        if not bed:
            return None
        with closing(bed):
            rows = self.compare(bed, size, [
                self.get("--disjoint"),
                peers.aria2("-s3", "-x1", "-k1M"),
                peers.aria2("-s3", "-x1", "-k1M", checksum=True),
                peers.aria2_metalink("aria2, Metalink with SHA-256 of each MiB"),
            ], liar=1)
            return {**rows, "ideal_s": bed.ideal_s(size, 0, 1), "liar": f"{bed.addresses[1]}:{peers.PORT + 1}"}


def bypassed(run):
    """A testbed proves its own conditions: what arrived must have gone over its links."""
    return "carried" in run and run["right"] and sum(run["carried"]) < run["bytes"]


def describe(run):
    if "failed" in run:
        return f"failed: {run['failed']}"
    if bypassed(run):
        return f"the links carried only {sum(run['carried'])} bytes, so it came by another way"
    right = "right" if run["right"] else "WRONG" if run["rc"] == 0 else "failed"
    text = f"{run['wall_s']:.2f} s, {run['cpu_s'] + run['cpu_sources_s']:.2f} CPU s, {right}"
    return text + (f" (exit {run['rc']})" if run["rc"] else "")


def machine(commit):
    """What the numbers belong to."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    return {"date": datetime.date.today().isoformat(), "cpu": model.group(1) if model else platform.machine(),
            "cores": os.cpu_count(), "kernel": platform.release().split("-")[0], "commit": commit, "scheduling": testbed.scheduling(),
            "tcp_cc": testbed.TCP_CC if testbed.IS_ROOT else "the host's", "namespaces": testbed.IS_ROOT,
            "versions": {c: peers.version(c) for c in ("aria2c", "nginx", "curl", "axel")}}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=TABLES, type=lambda t: [k for k in t if k in TABLES],
                        help="tables to measure: letters, with or without commas")
    parser.add_argument("--quick", action="store_true", help="small files, one run; writes nothing into docs/")
    parser.add_argument("--reps", type=int, help="runs of each row (default 5 on loopback, 3 on links, 2 of h, i and j)")
    parser.add_argument("--bin", help="the anabranch binary (default: cargo build --release)")
    parser.add_argument("--commit", help="what --bin was built from, if not from here")
    parser.add_argument("--bed", default="", help="of h, i and j: links whose name this regular expression finds")
    parser.add_argument("--row", default="", help="of h, i and j: programs whose name this regular expression finds")
    parser.add_argument("--traces", type=lambda t: [os.path.abspath(path) for path in t.split(",")], help="of h: captured links, files of delivery times (mahimahi's "
                        "form), with commas between: one more pair of links")
    parser.add_argument("--jobs", type=int, default=2, help="of h, i and j: runs side by side")
    parser.add_argument("--check", action="store_true", help="compare the tables with results.json, and end")
    parser.add_argument("--draw", action="store_true", help="make these tables again from results.json, and end")
    parser.add_argument("--get-args", default="", help="more options for `anabranch get`, in one string")
    parser.add_argument("--no-install", dest="install", action="store_false", help="do not install missing peers")
    options = parser.parse_args()
    options.only = options.only or list(TABLES)
    if not options.commit:
        # Now, since what is measured goes into the work tree.
        describe = ["git", "describe", "--always", "--dirty"]
        options.commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return options


def main():
    options = parse()
    if options.check:
        wrong = report.differing(ROOT) + ["the chart"] * (not chart.is_current(ROOT))
        sys.exit(f"not what bench/results.json says: {', '.join(wrong)}" if wrong else 0)
    if options.draw:
        results = report.load(ROOT)
        report.insert(ROOT, {key: report.table(key, results[key]) for key in options.only if key in results})
        return chart.save(ROOT)
    testbed.install_cleanup()
    bench = Bench(options)
    tables = {"a": bench.hook, "b": bench.loopback, "c": bench.links, "d": bench.stall, "e": bench.corrupt,
              "f": bench.hook, "g": bench.hook}
    results = report.load(ROOT)
    asked = options.reps
    for key in options.only:
        print(f"table {key}", flush=True)
        options.reps = asked or (1 if options.quick else {"b": 5, "h": 2, "i": 2, "j": 2}.get(key, 3))

        def keep(found, key=key):
            results[key] = {**found, "machine": machine(options.commit)}
            if not options.quick:
                report.save(ROOT, key, results[key])
                chart.save(ROOT)

        if key in DELAYED:
            bench.delayed(key, None if options.quick else results.get(key), keep)
        elif found := tables[key](key) if key in HOOKS else tables[key]():
            keep(found)
    print()
    for key in options.only:
        if key in results:
            print(report.table(key, results[key]), end="\n\n")


if __name__ == "__main__":
    main()
