#!/usr/bin/env python3
"""Multipath TCP in user space (`anabranch tcp`) beside the kernel's: the same links, the same server, in turns.

    sudo python3 bench/mptcp.py [--bin target/release/anabranch] [--runs 3] [--only "2 x 100,tail"] [--json FILE]

2 x 100   an upload of 100 MB over two links of 100 Mbit/s and 20 ms, drop-tail queues of one product
100 + 20  the same over 100 Mbit/s and 20 ms beside 20 Mbit/s and 80 ms
silent    an upload over two links of 50 Mbit/s and 20 ms; after 20 MB nothing passes on the first, both ways: the longest
          time in which the server gets no byte
tail      a burst of 2 MB over the same, after which nothing follows; the first link falls silent soon after the server
          has 0.6 MB of it: how long the rest takes beyond the time that it takes on the second link alone

The server is the kernel's. Hosts and links are `anabranch lab up`; the stack in user space has a TUN device for each
link, whose packets the client's kernel forwards. In a real-time class (chrt) links are late less often. Standard
library only; every namespace ends with the program.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from contextlib import closing

sys.dont_write_bytecode = True
import markup  # noqa: E402
from stack import ROOT, Failed, Lab, scenario  # noqa: E402

PORT = 5000
SERVER = "10.1.255.1"
MB = 1_000_000
#: TCP payload of a packet of 1,500 bytes: timestamps and a DSS with numbers of 64 bits take room.
PAYLOAD = 1420 / 1500
#: A run that takes longer hangs.
PATIENCE_S = 40

#: Lets nothing in on p0 of the host where it runs.
CUT = ("add table ip cut; add chain ip cut in { type filter hook prerouting priority -300; };"
       "add rule ip cut in iifname p0 drop")
#: The server. Argument: the first link falls silent when it has so many bytes; 0: never.
RECEIVE = f"""
import json, socket, subprocess, sys, threading, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.setsockopt(1, 2, 1)
s.bind(("0.0.0.0", {PORT})); s.listen(4); print("listening", flush=True)
c, _ = s.accept(); room, total, seen = bytearray(1 << 18), 0, []
begun, at, silent_at = time.monotonic(), int(sys.argv[1]), []
def cut():
    subprocess.run(["nft", {CUT!r}], check=True)
    silent_at.append(time.monotonic()); print("silent", flush=True)
while n := c.recv_into(room):
    total += n; seen.append([time.monotonic(), total])
    if 0 < at <= total: at = 0; threading.Thread(target=cut).start()
print(json.dumps({{"begun": begun, "seen": seen, "silent_at": silent_at}}), flush=True)
c.close()
"""
#: The kernel's client: sends its standard input.
SEND = f"""
import socket, sys
c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); c.connect(("{SERVER}", {PORT}))
while data := sys.stdin.buffer.raw.read(1 << 16): c.sendall(data)
c.shutdown(socket.SHUT_WR); c.recv(1)
"""
#: Waits for a line, then cuts.
SILENCE = f"""
import subprocess, sys
sys.stdin.readline()
subprocess.run(["nft", {CUT!r}], check=True)
"""

EQUAL = scenario({"x": (100, 20), "y": (100, 20)}, {"mm": [("x", 20), ("y", 20)]})
SKEWED = scenario({"x": (100, 20), "y": (20, 80)}, {"mm": [("x", 20), ("y", 80)]})
HALF = scenario({"x": (50, 20), "y": (50, 20)}, {"mm": [("x", 20), ("y", 20)]})


class Bed:
    """Two hosts, a server, and one client that has not begun."""

    def __init__(self, binary, name, text, ours, silent_after=0):
        self.lab, self.ours = Lab(binary, name, text), ours
        if ours:
            self.lab.run("mm.tx", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            for no in range(2):
                self.lab.run("mm.tx", "ip", "rule", "add", "from", f"10.77.{no}.2", "lookup", 100 + no)
                self.lab.run("mm.rx", "ip", "route", "add", f"10.77.{no}.0/24", "dev", f"p{no}")
        self.server = self.piped("mm.rx", sys.executable, "-c", RECEIVE, silent_after)
        if self.server.stdout.readline().strip() != "listening":
            raise Failed("the server does not listen")
        self.silence = self.piped("mm.tx", sys.executable, "-c", SILENCE)

    def piped(self, host, *args):
        return self.lab.start(host, *args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self):
        """The client; what is written to its standard input is sent."""
        if self.ours:
            tun = [f"--tun=t{no}=10.77.{no}.2@10.77.{no}.1/24" for no in range(2)]
            command = [self.lab.binary, "tcp", "connect", *tun, "--quiet", f"{SERVER}:{PORT}"]
        else:
            command = [sys.executable, "-c", SEND]
        return self.lab.start("mm.tx", *command, stdin=subprocess.PIPE)

    def received(self):
        """When the server accepted, when it had how many bytes, and when the first link fell silent, if it did."""
        timer = threading.Timer(PATIENCE_S, self.server.kill)
        timer.start()
        line = self.server.stdout.readline()
        if line.strip() == "silent":
            # The other direction, too.
            self.silence.stdin.write("now\n")
            self.silence.stdin.flush()
            line = self.server.stdout.readline()
        timer.cancel()
        if not line:
            raise Failed(f"{'ours' if self.ours else 'the kernel'} hangs: not all has arrived in {PATIENCE_S} s")
        told = json.loads(line)
        return told["begun"], told["seen"], next(iter(told["silent_at"]), None)

    def close(self):
        self.lab.close()


def feed(client, bytes_wanted):
    """Writes as fast as it is taken; ends the input if all is written."""
    block, left = os.urandom(1 << 16), bytes_wanted
    try:
        while left > 0:
            client.stdin.write(block[:left])
            left -= len(block[:left])
        client.stdin.close()
    except BrokenPipeError:
        pass


def bulk(bed, rates):
    feed(bed.begin(), 100 * MB)
    begun, seen, _ = bed.received()
    rate = seen[-1][1] * 8 / (seen[-1][0] - begun) / 1e6
    return {"Mbit/s": rate, "percent": 100 * rate / (sum(rates) * PAYLOAD), "of_best": 100 * rate / (max(rates) * PAYLOAD)}


def silent(bed, _rates):
    threading.Thread(target=feed, args=(bed.begin(), 40 * MB), daemon=True).start()
    _, seen, cut = bed.received()
    after = [at for at, _ in seen if at >= cut - 0.05]
    return {"stall_s": max(later - at for at, later in zip(after, after[1:]))}


def tail(bed, rates):
    client = bed.begin()
    # Both paths are measured before.
    client.stdin.write(os.urandom(MB))
    client.stdin.flush()
    time.sleep(1.5)
    threading.Thread(target=feed, args=(client, 2 * MB), daemon=True).start()
    _, seen, cut = bed.received()
    there = max((total for at, total in seen if at <= cut), default=0)
    alone = (3 * MB - there) * 8 / (rates[1] * 1e6 * PAYLOAD)
    if there == 3 * MB:
        raise Failed("all was there when the link fell silent")
    return {"tail_s": max(0, seen[-1][0] - cut - alone), "missing_bytes": 3 * MB - there}


#: Name, links, their rates, after how many bytes the first falls silent, what is done, the unit and its format.
BEDS = [
    ("2 x 100", EQUAL, (100, 100), 0, bulk, "Mbit/s", ".0f"),
    ("100 + 20", SKEWED, (100, 20), 0, bulk, "Mbit/s", ".0f"),
    ("silent", HALF, (50, 50), 20 * MB, silent, "stall_s", ".3f"),
    ("tail", HALF, (50, 50), 1.6 * MB, tail, "tail_s", ".3f"),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target", "release", "anabranch"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", help="beds, separated by commas")
    parser.add_argument("--json", metavar="FILE", help="every run")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("skipped: root is needed for namespaces and TUN devices")
    beds = [bed for bed in BEDS if not options.only or bed[0] in options.only.split(",")]
    runs, loads = [], []
    for run in range(options.runs):
        for no, (name, text, rates, silent_after, measure, _, _) in enumerate(beds):
            for ours in (True, False):
                loads.append(os.getloadavg()[0])
                row = {"bed": name, "run": run, "stack": "ours" if ours else "kernel", "load": loads[-1]}
                try:
                    name_of_run = f"m{run}-{no}-{row['stack']}"
                    with closing(Bed(os.path.abspath(options.bin), name_of_run, text, ours, int(silent_after))) as bed:
                        row |= measure(bed, rates)
                except (Failed, OSError, ValueError) as e:
                    row["failed"] = str(e)[-200:]
                print(f"# {json.dumps(row)}", file=sys.stderr, flush=True)
                runs.append(row)
    table = []
    for name, _, _, _, _, unit, form in beds:
        cells = []
        for stack in ("ours", "kernel"):
            got = [row[unit] for row in runs if (row["bed"], row["stack"]) == (name, stack) and unit in row]
            cells.append(f"{statistics.median(got):{form}} ({min(got):{form}} to {max(got):{form}})" if got else "–")
        failed = sum("failed" in row for row in runs if row["bed"] == name)
        table.append([name, unit.replace("_", ", "), *cells, options.runs, failed])
    print(markup.table(["bed", "unit", "ours", "kernel", "runs", "failed"], table))
    print(f"load {min(loads):.1f} to {max(loads):.1f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(runs, out, indent=1)


if __name__ == "__main__":
    main()
