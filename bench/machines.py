#!/usr/bin/env python3
"""Moves of machines: what was predicted beside what came, two paths beside one, and the gap that the guest felt.

    sudo python3 bench/machines.py [--bin target/release/anabranch] [--guest DIR] [--only REGEX] [--limit 60] [--json FILE]

A guest of 256 MB (contrib/guest), translated (TCG), moves between two hosts of `anabranch lab up`, over one or two links that
have a round-trip time of 10 ms and a queue of 50 ms. Each move is predicted first, then made; one that is predicted to never end
is begun all the same, and interrupted after `--limit` seconds. Printed is a table in Markdown. Needs root, QEMU, and what
contrib/guest/guest.py needs. Standard library only; every process it starts it ends, by its number.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from stack import Failed, Lab, ROOT, scenario  # noqa: E402

RTT_MS, QUEUE_MS = 10, 50
MEMORY = "256M"
#: The one address of the host mm.rx.
ADDRESS = "10.1.255.1"
#: What the guest does: words of its command line.
GUESTS = {"idle": "", "a busy processor": "spin", "128 MB filled": "fill=128", "4 MB/s": "dirty=64,4", "8 MB/s": "dirty=64,8",
          "12 MB/s": "dirty=64,12", "18 MB/s": "dirty=64,18"}
#: Mbit/s of each link, and the guests that move over one and over two of them.
ROWS = [(100, name) for name in GUESTS] + [(300, name) for name in ("idle", "8 MB/s", "18 MB/s")]
LINKS = "xy"


class Bed:
    """Two hosts that are paired, an agent on each, and a guest at mm.tx."""

    def __init__(self, binary, guest, mbit, paths, work):
        links = LINKS[:paths]
        self.lab = Lab(binary, f"machines{os.getpid()}", scenario({link: (mbit, QUEUE_MS) for link in links},
                                                                 {"mm": [(link, RTT_MS) for link in links]}))
        self.dir = tempfile.mkdtemp(prefix="anabranch-machines-")
        self.vm = str(pathlib.Path(binary).resolve().with_name("anabranch-vm"))
        try:
            line = self.run("mm.rx", "pair", "here").stdout
            self.run("mm.tx", "trust", "there", ADDRESS, stdin=line)
            self.agent = self.lab.start("mm.rx", self.vm, "agent", "--state", self.state("mm.rx"))
            self.run("mm.tx", "run", "m", "--tcg", "--memory", MEMORY, "--kernel", f"{guest}/vmlinuz", "--initrd", f"{guest}/initrd",
                     "--append", f"console=ttyS0 quiet {work}")
            console = pathlib.Path(self.state("mm.tx"), "machines/m/console.log")
            self.wait(lambda: "READY" in console.read_text(errors="replace"))
            # What the start of a guest changes is no part of its work.
            time.sleep(4)
        except BaseException:
            self.close()
            raise

    def state(self, host):
        return os.path.join(self.dir, host)

    def command(self, host, *words):
        return self.lab.command(host, self.vm, *words, "--state", self.state(host))

    def run(self, host, *words, stdin=""):
        done = subprocess.run(self.command(host, *words), input=stdin, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"vm {words[0]}: {done.stderr.strip()}")
        return done

    @staticmethod
    def wait(is_so, limit_s=90):
        for _ in range(limit_s * 10):
            if is_so():
                return
            time.sleep(0.1)
        raise Failed("the guest does not start")

    def predict(self):
        lines = map(json.loads, self.run("mm.tx", "predict", "m", "--to", "there", "--json").stdout.splitlines())
        return next(line for line in lines if line["event"] == "outlook")

    def move(self, limit_s):
        """Moves the guest; None if that does not end within the limit."""
        child = subprocess.Popen(self.command("mm.tx", "move", "m", "--to", "there", "--anyway", "--json"), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = child.communicate(timeout=limit_s + 15)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGINT)
            out, err = child.communicate(timeout=30)
        lines = [json.loads(line) for line in out.splitlines()]
        moved = [line for line in lines if line["event"] == "moved"]
        if not moved and child.returncode != 130:
            raise Failed(f"vm move: {err.strip()}")
        outlook = [line for line in lines if line["event"] == "outlook"]
        return (moved[0] if moved else None), outlook[0]

    def alive(self):
        """Whether the guest goes on at the destination."""
        console = pathlib.Path(self.state("mm.rx"), "machines/m/console.log")
        before = console.read_text(errors="replace").count("alive")
        self.wait(lambda: console.read_text(errors="replace").count("alive") > before, 15)

    def close(self):
        for host in ("mm.tx", "mm.rx"):
            subprocess.run(self.command(host, "stop", "m"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self.lab.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def one(options, mbit, name, paths):
    bed = Bed(options.bin, options.guest, mbit, paths, GUESTS[name])
    try:
        moved, outlook = bed.move(options.limit)
        if moved:
            bed.alive()
        forecast = outlook["forecasts"][-1]
        ends = forecast["prediction"].get("ends")
        return {"mbit": mbit, "guest": name, "paths": paths, "rate": forecast["rate_bytes"], "used": outlook["used_bytes"],
                "changed": outlook["changed_bytes"], "predicted_ms": ends and ends["total_ms"], "moved": moved}
    finally:
        bed.close()


def seconds(ms):
    return "never" if ms is None else f"{ms / 1000:.1f} s"


def verdict(row):
    predicted, came = row["predicted_ms"], row["moved"] and row["moved"]["total_ms"]
    if predicted is None or came is None:
        return "right" if predicted is None and came is None else "wrong"
    return f"{100 * (predicted / came - 1):+.0f} %"


def table(rows, limit):
    print(f"| links | guest | changes, measured | paths carry | predicted | came | off | stood still | QEMU says | felt |\n|{' --- |' * 10}")
    for row in rows:
        moved = row["moved"] or {}
        ms = lambda key: f"{moved[key]} ms" if moved.get(key) is not None else "–"
        print(f"| {row['paths']} × {row['mbit']} Mbit/s | {row['guest']} | {row['changed'] / 1e6:.1f} MB/s | {row['rate'] / 1e6:.1f} MB/s | "
              f"{seconds(row['predicted_ms'])} | {seconds(moved.get('total_ms')) if moved else f'not in {limit} s'} | {verdict(row)} | "
              f"{ms('stood_still_ms')} | {ms('qemu_pause_ms')} | {ms('felt_ms')} |")
    good = [row for row in rows if verdict(row) == "right" or "%" in verdict(row) and abs(int(verdict(row)[:-2])) <= 20]
    print(f"\nWithin 20 %, or never right: {len(good)} of {len(rows)}.")
    times = {(row["mbit"], row["guest"], row["paths"]): row["moved"]["total_ms"] for row in rows if row["moved"]}
    gains = [f"{guest} at {mbit} Mbit/s {times[mbit, guest, 1] / ms:.2f} ×" for (mbit, guest, paths), ms in times.items()
             if paths == 2 and (mbit, guest, 1) in times]
    print(f"Two paths against one: {', '.join(gains) or 'not measured'}.")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--bin", default=os.path.join(ROOT, "target/release/anabranch"))
    options.add_argument("--guest", default=os.path.join(ROOT, "target/guest"))
    options.add_argument("--only", default="")
    options.add_argument("--limit", type=int, default=60)
    options.add_argument("--json")
    options = options.parse_args()
    subprocess.run([sys.executable, os.path.join(ROOT, "contrib/guest/guest.py"), options.guest], check=True)
    rows = []
    for mbit, name in ROWS:
        for paths in (1, 2):
            label = f"{paths} x {mbit} {name}"
            if not re.search(options.only, label):
                continue
            try:
                rows.append(one(options, mbit, name, paths))
                print(f"{label}: {verdict(rows[-1])}", file=sys.stderr, flush=True)
            except (Failed, subprocess.SubprocessError, OSError) as why:
                print(f"{label}: {why}", file=sys.stderr, flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    table(rows, options.limit)


if __name__ == "__main__":
    main()
