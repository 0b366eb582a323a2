#!/usr/bin/env python3
"""A second fetch through a warm forwarder: how fast, and what it still takes from the source.

    sudo chrt -r 5 python3 bench/cache.py --bin target/release/anabranch [--mb 100] [--near 100] [--narrow 10] [--again 3]

A receiver `a`, a forwarder with a cache beside it (`--near` Mbit/s, 5 ms), a narrow line of `--narrow` Mbit/s and 20 ms, and behind that the
publisher. `anabranch net up` makes namespaces and lines of it, and starts all programs. The file is fetched by name once, then
`--again` times. Printed is a row for each: goodput; which part of the time the line to the receiver was in use by its own counters; bytes
that left the source, and what of them came to the receiver, by the lines' counters too; packets that the receiver took for lost, those
that a line dropped, and timeouts.

Standard library only. The exit status is 1 if a file differs.
"""

import argparse
import filecmp
import json
import os
import random
import subprocess
import sys
import tempfile
import time

DOMAIN = """
name = "cachebench"
forwarders = ["r1", "r2"]
[rendezvous]
node = "rv"
[topology]
node = "tm"
[scopes]
films = "{key}"
[[line]]
between = ["a", "r1"]
delay_ms = 5
rate_mbit = {near}
[[line]]
between = ["r1", "r2"]
delay_ms = 20
rate_mbit = {narrow}
[[line]]
between = ["r2", "p"]
delay_ms = 1
rate_mbit = 100
[[line]]
between = ["r1", "rv"]
[[line]]
between = ["r1", "tm"]
"""


class Net:
    """A domain that is up."""

    def __init__(self, program, directory, options):
        self.program, self.directory = program, directory
        self.name = f"cachebench-{os.getpid()}"
        key = self.run("net", "key", "films.key").split('"')[1]
        with open(self.path("net.toml"), "w") as file:
            file.write(DOMAIN.format(key=key, near=options.near, narrow=options.narrow))
        with open(self.path("film"), "wb") as file:
            file.write(random.Random(1).randbytes(options.mb * 1_000_000))
        self.run("net", "up", "net.toml", "--name", self.name, "--cache", f"r1={options.cache}",
                 "--serve", "p=film", "--key", "films.key")

    def path(self, name):
        return os.path.join(self.directory, name)

    def run(self, *args):
        done = subprocess.run([self.program, *args], cwd=self.directory, capture_output=True, text=True,
                              env={**os.environ, "XDG_CACHE_HOME": self.directory})
        # 7: lines were late, which `down` says.
        if done.returncode not in (0, 7):
            sys.exit(f"{' '.join(args)}: {done.stderr}")
        return done.stdout

    def state(self):
        states = map(json.loads, self.run("net", "status", "--json").splitlines())
        return next(state for state in states if state["name"] == self.name)

    def wait_published(self):
        for _ in range(200):
            if "is published" in self.run("net", "log", f"{self.name}/p"):
                return
            time.sleep(0.1)
        sys.exit("the file is not published")

    def get(self, target):
        """Fetches the film; the summary of it."""
        out = self.run("net", "exec", f"{self.name}/a", "--", self.program, "get", "films/film", "-o", target, "--json")
        return json.loads(out.splitlines()[-1])


def counts(state):
    """What lines have carried, by their ends."""
    return {(line["from"], line["to"]): line for line in state["lines"]}


def measure(net, number, options):
    before = counts(net.state())
    summary = net.get(f"got{number}")
    after = net.state()
    lateness, after = after["late_p99_us"], counts(after)
    if not filecmp.cmp(net.path("film"), net.path(f"got{number}"), shallow=False):
        sys.exit("another file came")

    def grown(line, field):
        return after[line][field] - before[line][field]

    took = summary["last"]["elapsed_s"]
    paths = summary["last"]["paths"]
    used = grown(("r1", "a"), "delivered_bytes") * 8 / (options.near * 1e6 * took)
    dropped = sum(grown(line, "dropped") for line in after)
    print(f"| {'first' if number == 0 else 'again'} | {took:.2f} | {options.mb * 8 / took:.1f} | {100 * used:.1f} % "
          f"| {grown(('p', 'r2'), 'delivered_bytes'):,} | {grown(('r2', 'r1'), 'delivered_bytes'):,} "
          f"| {max(path['loss_percent'] for path in paths):.3f} % | {dropped} "
          f"| {sum(path['timeouts'] for path in paths)} | {lateness:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/anabranch", help="the program")
    parser.add_argument("--mb", type=int, default=100, help="megabytes of the file")
    parser.add_argument("--near", type=float, default=100, help="Mbit/s of the receiver's line")
    parser.add_argument("--narrow", type=float, default=10, help="Mbit/s of the line behind the cache")
    parser.add_argument("--cache", default="1GiB", help="how much the forwarder keeps")
    parser.add_argument("--again", type=int, default=3, help="how often it is fetched again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        net = Net(os.path.abspath(options.bin), directory, options)
        try:
            net.wait_published()
            print("| fetch | seconds | Mbit/s | of the line | bytes of the source | over the narrow line | taken for lost "
                  "| dropped | timeouts | line late, p99 µs |\n"
                  "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
            for number in range(options.again + 1):
                measure(net, number, options)
                os.remove(net.path(f"got{number}"))
        finally:
            net.run("net", "down", net.name)


if __name__ == "__main__":
    main()
