#!/usr/bin/env python3
"""Emulators beside each other on this machine: ours (`anabranch lab up`), mahimahi, and the kernel's TBF.

    sudo python3 bench/emulators.py --mahimahi DIR [--bin anabranch] [--seconds 20] [--runs 3]

delay  20 ms one way, nothing else: round trips of UDP probes, 200 a second, beside the 40 ms that were asked for
rate   100 Mbit/s and 1 Gbit/s, a queue of 20 ms, hardly any delay (ours 1 ms one way; the others have none): what one TCP
       connection (iperf3) carries of the payload of packets of 1,500 bytes
TBF has no delay, so that it is only in the second table; mahimahi's two shells within each other do not work here. DIR has mahimahi's mm-delay and mm-link, set-user-id root; they
refuse to be run by root, and are run by `nobody` in a network namespace of their own. The same probe and the same iperf3
everywhere, one after the other in each run. Standard library only; every namespace ends with the program.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing

import markup
from stack import Lab, PAYLOAD, ROOT, scenario

ASKED_MS = 40
SPACE = "anabranch-emulators"

#: Echoes until it is ended. Argument: the port.
ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", int(sys.argv[1])))
while True: s.sendto(*s.recvfrom(64))
"""
#: Prints round trips, ms. Arguments: address, port, seconds.
PROBE = """
import json, socket, sys, threading, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], int(sys.argv[2]))); s.settimeout(1)
got, end = [], time.monotonic() + float(sys.argv[3])
def read():
    while time.monotonic() < end + 0.5:
        try: sent = int(s.recv(64))
        except TimeoutError: continue
        got.append((time.monotonic_ns() - sent) / 1e6)
reader = threading.Thread(target=read); reader.start()
while time.monotonic() < end: s.send(str(time.monotonic_ns()).encode()); time.sleep(0.005)
reader.join(); print(json.dumps(got))
"""


def run(*command):
    """Its output. A real-time class, so that a late probe is not taken for a late packet."""
    done = subprocess.run(["chrt", "-f", "5", *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:200]}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def start(*command):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(["chrt", "-f", "5", *map(str, command)], start_new_session=True, **quiet)
    time.sleep(0.7)
    return child


def stop(child):
    try:
        os.killpg(child.pid, 9)
    except ProcessLookupError:
        pass
    child.wait()


def carried(text):
    """Of iperf3's report: bits a second of payload."""
    return json.loads(text)["end"]["sum_received"]["bits_per_second"]


class Ours:
    name = "anabranch"

    def __init__(self, options):
        self.binary = options.bin

    def over(self, rtt_ms, rate_mbps, server, client):
        text = scenario({"x": (rate_mbps, 20)}, {"f": [("x", rtt_ms)]})
        with closing(Lab(self.binary, "emulators", text)) as lab:
            child = start(*lab.command("f.rx", *server))
            text = run(*lab.command("f.tx", *client("10.1.255.1")))
            stop(child)
            return text

    def delay(self, seconds):
        probe = lambda at: (sys.executable, "-c", PROBE, at, 7000, seconds)
        return json.loads(self.over(ASKED_MS, 1000, (sys.executable, "-c", ECHO, 7000), probe))

    def rate(self, mbps, seconds):
        return carried(self.over(2, mbps, ("iperf3", "-s", "-1"), lambda at: ("iperf3", "-c", at, "-t", seconds, "-J")))


class Space:
    """A namespace with loopback, for those who bring no hosts of their own."""

    def __enter__(self):
        subprocess.run(["ip", "netns", "add", SPACE], check=True)
        for command in (["ip", "link", "set", "lo", "up"], ["ip", "addr", "add", "10.9.9.9/32", "dev", "lo"],
                        ["sysctl", "-qw", "net.ipv4.ip_forward=1"]):
            run(*self.command(*command))
        return self

    def command(self, *args):
        return ["ip", "netns", "exec", SPACE, *args]

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", SPACE], check=True)


class Mahimahi:
    name = "mahimahi"

    def __init__(self, options):
        self.dir = options.mahimahi

    def over(self, shell, server, client):
        with Space() as space:
            child = start(*space.command(*server))
            try:
                # Its shells take the rest of the line as the command; the base address is the namespace's side.
                inner = " ".join(f"'{word}'" if n else str(word) for n, word in enumerate(client("$BASE")))
                inner = inner.replace("'$BASE'", '"$MAHIMAHI_BASE"')
                line = f"{' '.join(map(str, shell))} sh -c {json.dumps(inner).replace('$', chr(92) + '$')}"
                return run(*space.command("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
                                          "env", "HOME=/tmp", "USER=nobody", "sh", "-c", line))
            finally:
                stop(child)

    def delay(self, seconds):
        with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as f:
            f.write(PROBE)
        os.chmod(f.name, 0o644)
        try:
            probe = lambda at: ("python3", f.name, at, 7000, seconds)
            return json.loads(self.over([f"{self.dir}/mm-delay", 20], (sys.executable, "-c", ECHO, 7000), probe))
        finally:
            os.unlink(f.name)

    def rate(self, mbps, seconds):
        with tempfile.NamedTemporaryFile("w", suffix=".trace", delete=False) as f:
            # An opportunity for 1,500 bytes a line, with its millisecond; a second of them.
            packets = mbps * 1000 // 12
            f.writelines(f"{(n + 1) * 1000 // packets}\n" for n in range(packets))
        os.chmod(f.name, 0o644)
        try:
            queue = f"--uplink-queue=droptail --uplink-queue-args=bytes={mbps * 125 * 20}"
            shell = [f"{self.dir}/mm-link", f.name, f.name, queue, "--"]
            client = lambda at: ("iperf3", "-c", "10.9.9.9", "-t", seconds, "-J")
            return carried(self.over(shell, ("iperf3", "-s", "-1"), client))
        finally:
            os.unlink(f.name)


class Tbf:
    name = "TBF"

    def __init__(self, options):
        pass

    def rate(self, mbps, seconds):
        with Space() as space:
            for command in (
                f"ip link add v0 type veth peer name v1 netns {os.getpid()}",
                "ip addr add 10.8.8.1/24 dev v0", "ip link set v0 up",
            ):
                run(*space.command(*command.split()))
            try:
                for command in ("ip addr add 10.8.8.2/24 dev v1", "ip link set v1 up",
                                f"tc qdisc add dev v1 root tbf rate {mbps}mbit burst 15000 limit {mbps * 125 * 20}"):
                    run(*command.split())
                child = start(*space.command("iperf3", "-s", "-1"))
                text = run("iperf3", "-c", "10.8.8.1", "-t", seconds, "-J")
                stop(child)
                return carried(text)
            finally:
                subprocess.run(["ip", "link", "del", "v1"], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target", "release", "anabranch"))
    parser.add_argument("--mahimahi", help="the directory of mm-delay and mm-link; without it: not measured")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("skipped: root is needed for namespaces and TUN devices")
    kinds = [Ours] + ([Mahimahi] if options.mahimahi else []) + ([Tbf] if shutil.which("tc") else [])
    all_of = [kind(options) for kind in kinds]
    delays, rates = {}, {}
    for _ in range(options.runs):
        for one in all_of:
            if hasattr(one, "delay"):
                delays.setdefault(one.name, []).append(sorted(one.delay(options.seconds)))
            for mbps in (100, 1000):
                rates.setdefault((one.name, mbps), []).append(one.rate(mbps, options.seconds))
    table = []
    for name, runs in delays.items():
        # The median of the runs: one stall of the machine is not the emulator's.
        cells = [statistics.median(trips[min(int(len(trips) * q), len(trips) - 1)] for trips in runs) - ASKED_MS
                 for q in (0.5, 0.95, 0.99, 1)]
        table.append([name, *(f"{cell:+.2f} ms" for cell in cells), sum(map(len, runs))])
    print(markup.table(["20 ms one way", "p50 - 40 ms", "p95", "p99", "max", "probes"], table), end="\n\n")
    table = []
    for (name, mbps), runs in rates.items():
        percent = [100 * rate / (mbps * 1e6 * PAYLOAD) for rate in runs]
        of_rate = f"{statistics.median(percent):.2f} % ({min(percent):.2f}–{max(percent):.2f})"
        table.append([name, f"{mbps} Mbit/s", of_rate])
    print(markup.table(["one TCP connection", "asked", "of the payload rate (median; range)"], table))


if __name__ == "__main__":
    main()
