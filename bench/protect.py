#!/usr/bin/env python3
"""Protected machines: the lag that is shown beside the true one when a path is cut, and what a killed source has lost.

    sudo python3 bench/protect.py [--bin target/release/anabranch-vm] [--guest DIR] [--kills 10] [--cut 20] [--thin 5]

Two hosts, network namespaces, have two links of 100 Mbit/s. A guest (contrib/guest, TCG) writes 50 numbered blocks a second to a
disk of 32 MB, which is protected. *Cut*: after a while the first link drops every packet, without a word; over both links, and
over the first one alone. *Thin*: one link of so many Mbit/s, fewer than the guest's writes take. The true lag is read from the two
files: the age of the oldest block that the source has and the shadow has not. *Kills*: the source's QEMU is killed at a random time, and the other host takes over; of the blocks that are older than the
lag that was shown last, none may be missing. Needs root, QEMU with its tools, iproute2, and what contrib/guest/guest.py needs.
Standard library only; every process it starts it ends, by its number.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MB = 32


class Failed(Exception):
    """What was to be measured could not be."""


def run(*argv, text=None, check=True):
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise Failed(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done


def blocks(path):
    """Returns the numbers of the guest's blocks in a file, and when it wrote each, ms."""
    data = pathlib.Path(path).read_bytes()
    heads = (struct.unpack_from("<8sQQ", data, at) for at in range(0, len(data), 4096))
    return {number: at for magic, number, at in heads if magic == b"ANABRANC"}


def newest_and_missing(source, shadow):
    """The time of the source's newest block, and of its oldest one that the shadow lacks and has not replaced by a newer one."""
    oldest = max(source) - 900
    missing = [at for number, at in source.items() if number > oldest and number not in shadow]
    return max(source.values()), min(missing, default=None)


class Bed:
    """Two hosts that are paired, an agent at the second one, and a guest at the first."""

    def __init__(self, options, mbit=100):
        self.dir, self.vm = pathlib.Path(tempfile.mkdtemp(prefix="anabranch-protect-")), str(options.bin)
        self.net, self.mbit = f"protect{os.getpid()}", mbit
        self.children = []
        try:
            for host in "ab":
                run("ip", "netns", "add", self.net + host)
                run("ip", "-n", self.net + host, "link", "set", "lo", "up")
                (self.dir / f"disks-{host}").mkdir()
            for n in (1, 2):
                run("ip", "-n", f"{self.net}a", "link", "add", f"up{n}", "type", "veth", "peer", "name", f"up{n}", "netns", f"{self.net}b")
                for host, last in (("a", 1), ("b", 2)):
                    run("ip", "-n", self.net + host, "addr", "add", f"10.78.{n}.{last}/24", "dev", f"up{n}")
                    run("ip", "-n", self.net + host, "link", "set", f"up{n}", "up")
                    self.shape(host, n, "rate", "100mbit", "burst", "64kb", "latency", "40ms")
            line = self("b", "pair", "a").stdout
            self("a", "trust", "b", "10.78.1.2", text=line)
            self.start("b", "agent", "--disks", self.dir / "disks-b")
            self.disk = self.dir / "disks-a" / "disk.raw"
            self.disk.write_bytes(os.urandom(MB << 18) + bytes((MB << 20) - (MB << 18)))
            self("a", "run", "m", "--tcg", "--memory", "96M", "--kernel", options.guest / "vmlinuz", "--initrd", options.guest / "initrd",
                 "--append", "console=ttyS0 quiet disk=50", "--disk", self.disk)
            self.wait(lambda: "alive" in self.console("a"))
        except BaseException:
            self.close()
            raise

    def shape(self, host, n, *how):
        run("ip", "netns", "exec", self.net + host, "tc", "qdisc", "replace", "dev", f"up{n}", "root", "tbf", *how)

    def cut(self, n):
        """Has a link drop every packet, both ways: none is as short as this."""
        for host in "ab":
            self.shape(host, n, "rate", "8bit", "burst", "10b", "latency", "1ms")

    def command(self, host, *words):
        return ["ip", "netns", "exec", self.net + host, self.vm, *map(str, words), "--state", str(self.dir / host)]

    def __call__(self, host, *words, text=None, check=True):
        return run(*self.command(host, *words), text=text, check=check)

    def start(self, host, *words):
        child = subprocess.Popen(self.command(host, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(child)

    def console(self, host):
        path = self.dir / host / "machines/m/console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def shadow(self):
        return next((self.dir / "disks-b").iterdir())

    @staticmethod
    def wait(is_so, limit_s=90):
        for _ in range(limit_s * 20):
            if is_so():
                return
            time.sleep(0.05)
        raise Failed("what was waited for does not come")

    def protect(self, *links):
        self("a", "protect", "m", "--to", "b", *[word for link in links for word in ("--via", link)])
        if self.mbit != 100:
            # The first copy is not what is measured.
            for host in "ab":
                self.shape(host, 1, "rate", f"{self.mbit}mbit", "burst", "64kb", "latency", "100ms")

    def lag(self):
        lines = map(json.loads, self("a", "protection", "m", "--json").stdout.splitlines())
        return next(line["lag_ms"] for line in lines if line["event"] == "protection")

    def true_lag(self):
        newest, missing = newest_and_missing(blocks(self.disk), blocks(self.shadow()))
        return newest - missing if missing is not None else 0

    def pid(self):
        lines = map(json.loads, self("a", "ls", "--json").stdout.splitlines())
        return next(line["pid"] for line in lines if line["event"] == "machine")

    def close(self):
        for child in self.children:
            child.terminate()
            child.wait()
        # What outlives its command has this directory among its words.
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str(self.dir).encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass
        for host in "ab":
            run("ip", "netns", "del", self.net + host, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


def cut(options, links, mbit=100):
    """Returns (s since the cut, or the beginning on a thin link, shown ms, true ms just before and just after) of each look."""
    bed = Bed(options, mbit)
    try:
        bed.protect(*links)
        time.sleep(3)
        rows, began = [], None
        while began is None or time.monotonic() - began < options.cut:
            before, shown, after = bed.true_lag(), bed.lag(), bed.true_lag()
            rows.append((time.monotonic() - began if began else -1.0, shown, before, after))
            if began is None and len(rows) >= 5:
                if mbit == 100:
                    bed.cut(1)
                began = time.monotonic()
            time.sleep(0.5)
        return rows
    finally:
        bed.close()


def kill(options):
    """Returns (shown ms, lost ms, blocks lost, blocks missing before the lag, s until the guest runs again)."""
    bed = Bed(options)
    try:
        bed.protect("up1", "up2")
        pid = bed.pid()
        time.sleep(random.uniform(1, 6))
        began = time.monotonic()
        shown = bed.lag()
        os.kill(pid, signal.SIGKILL)
        shown += round((time.monotonic() - began) * 1000)
        began = time.monotonic()
        bed("b", "failover", "m")
        source, shadow = blocks(bed.disk), blocks(bed.shadow())
        bed.wait(lambda: "disk " in bed.console("b"))
        back = time.monotonic() - began
        newest, missing = newest_and_missing(source, shadow)
        lost = [number for number in source if number > max(source) - 900 and number not in shadow]
        early = [number for number in lost if source[number] + shown < newest]
        return shown, newest - missing if missing is not None else 0, len(lost), len(early), back
    finally:
        bed.close()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--bin", type=pathlib.Path, default=ROOT / "target/release/anabranch-vm")
    options.add_argument("--guest", type=pathlib.Path, default=ROOT / "target/guest")
    options.add_argument("--kills", type=int, default=10)
    options.add_argument("--cut", type=float, default=20)
    options.add_argument("--thin", type=int, default=5)
    options = options.parse_args()
    options.bin, options.guest = options.bin.resolve(), options.guest.resolve()
    run(sys.executable, ROOT / "contrib/guest/guest.py", options.guest)
    for links, mbit in ((("up1", "up2"), 100), (("up1",), 100), (("up1",), options.thin)):
        rows = cut(options, links, mbit) if mbit else []
        what = "up1 is cut at 0 s" if mbit == 100 else f"a link of {mbit} Mbit/s"
        print(f"Protected over {' and '.join(links)}; {what}:\n\n| s | shown | true before | and after |\n| --- | --- | --- | --- |")
        for at, shown, before, after in rows:
            print(f"| {f'{at:.1f}' if at >= 0 else 'before'} | {shown} ms | {before} ms | {after} ms |")
        known = [max(shown - max(true), min(true) - shown, 0) for _, shown, *true in rows if shown is not None]
        print(f"\nLargest difference: {max(known, default=0)} ms; unknown in {len(rows) - len(known)} of {len(rows)}.\n", flush=True)
    if options.kills:
        print("| kill | shown | lost | blocks lost | of them older than shown | guest writes again |\n|" + " --- |" * 6)
    for n in range(options.kills):
        shown, lost, count, early, back = kill(options)
        print(f"| {n + 1} | {shown} ms | {lost} ms | {count} | {early} | {back:.1f} s |", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError, StopIteration) as why:
        sys.exit(f"not measured: {why}")
