#!/usr/bin/env python3
"""Packet functions: how many live, how fast they start, what a packet costs beside nftables, and moves under traffic.

    sudo python3 bench/packet_functions.py [--bin target/release/anabranch-op] [--only storm,packets,moves,kills] [--moves 20] [--kills 12] [--json FILE]

Network namespaces, joined by veth and bridges: a user, a server, and two hosts with an agent each, paired, with two links between them. Printed are
tables in Markdown. Needs root, iproute2, nftables and taskset. Standard library only; every process it starts it ends, by its number.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from stack import Failed, ROOT, finish  # noqa: E402

USER, SERVER = "10.1.0.9", "10.2.0.9"
RATE = 1000
#: SOL_UDP and UDP_SEGMENT of linux/udp.h: one call sends many packets.
SOL_UDP, UDP_SEGMENT = 17, 103
SEGMENT, SEGMENTS = 18, 60
#: Of several rounds the best counts: what else runs on the machine only ever makes one slower.
ROUNDS = 4
FUNCTIONS = {"firewall": [], "limiter": ["rate=100G", "burst=4G"], "nat44": []}
#: nftables for the same job.
RULES = {
    "firewall": ["chain f { type filter hook forward priority 0; policy drop; }", "ct state established,related accept", "iifname in0 ct state new accept"],
    "limiter": ["chain f { type filter hook forward priority 0; }", "iifname in0 meter u { ip saddr limit rate over 4000 mbytes/second } drop"],
    "nat44": ["chain f { type nat hook postrouting priority 100; }", "oifname out0 meta l4proto udp snat to 10.2.0.1:1024-1087"],
}


class Net:
    """Namespaces with a name each, removed at the end."""

    def __init__(self, *names):
        self.label, self.names = f"anb-op{os.getpid()}", []
        for name in names:
            finish(["ip", "netns", "add", self.system(name)])
            self.names.append(name)
            self.ip(name, "link set lo up")

    def system(self, name):
        return f"{self.label}-{name}"

    def ip(self, name, line):
        finish(["ip", "-n", self.system(name), *line.split()])

    def inside(self, name, *argv):
        return ["ip", "netns", "exec", self.system(name), *map(str, argv)]

    def veth(self, here, there, device, peer):
        self.ip(here, f"link add {device} type veth peer name {peer} netns {self.system(there)}")
        self.ip(here, f"link set {device} up")
        self.ip(there, f"link set {peer} up")

    def packets(self, name, device):
        """Packets that a device has received."""
        said = json.loads(finish(["ip", "-n", self.system(name), "-s", "-j", "link", "show", device]))
        return said[0]["stats64"]["rx"]["packets"]

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", self.system(name)], check=False)


class Bed:
    """A user, a server, two hosts with bridges, and what runs there."""

    def __init__(self, binary):
        self.binary, self.agents = binary, {}
        self.dir = tempfile.mkdtemp(prefix="anabranch-operator-")
        self.net = net = Net("sw", "user", "server", "a", "b")
        for bridge in ("in", "out"):
            net.ip("sw", f"link add {bridge} type bridge")
            net.ip("sw", f"link set {bridge} up")
        for name, bridge, address, others, via in (("user", "in", USER, "10.2.0.0/24", "10.1.0.1"),
                                                   ("server", "out", SERVER, "10.1.0.0/24", "10.2.0.1")):
            self.plug(name, "e0", bridge)
            net.ip(name, f"addr add {address}/24 dev e0")
            net.ip(name, f"route add {others} via {via}")
        for host in "ab":
            for bridge in ("in", "out"):
                self.plug(host, f"{bridge}0", bridge)
                net.ip(host, f"link add br-{bridge} type bridge")
                net.ip(host, f"link set {bridge}0 master br-{bridge}")
                net.ip(host, f"link set br-{bridge} up")
        for link in (1, 2):
            net.veth("a", "b", f"up{link}", f"up{link}")
            for number, host in enumerate("ab", 1):
                net.ip(host, f"addr add 10.77.{link}.{number}/24 dev up{link}")
        for host, other, address in (("a", "b", "10.77.1.2"), ("b", "a", "10.77.1.1")):
            line = self.op(other, "pair", host).stdout
            self.op(host, "trust", other, address, stdin=line)

    def plug(self, name, device, bridge):
        self.net.veth("sw", name, f"{bridge}-{name}", device)
        self.net.ip("sw", f"link set {bridge}-{name} master {bridge}")

    def command(self, host, *words):
        return self.net.inside(host, self.binary, *words, "--state", os.path.join(self.dir, host))

    def op(self, host, *words, stdin="", fails=False):
        done = subprocess.run(self.command(host, *words), input=stdin, capture_output=True, text=True, check=False)
        if done.returncode and not fails:
            raise Failed(f"op {' '.join(words)}: {done.stderr.strip()}")
        return done

    def start(self, host, pinned=None):
        pin = ["taskset", "-c", str(pinned)] if pinned is not None else []
        argv = self.command(host, "agent", "--inside", "fn-in@br-in", "--outside", "fn-out@br-out", "--store", "redb", "--json")
        at = argv.index(self.binary)
        agent = subprocess.Popen(argv[:at] + pin + argv[at:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.agents[host] = agent
        for line in agent.stdout:
            if json.loads(line)["event"] == "ready":
                threading.Thread(target=agent.stdout.read, daemon=True).start()
                return agent
        raise Failed("the agent does not start")

    def kill(self, host, how=signal.SIGKILL):
        agent = self.agents.pop(host)
        agent.send_signal(how)
        agent.wait()

    def run(self, host, name, function):
        sets = [word for value in FUNCTIONS[function] for word in ("--set", value)]
        self.op(host, "fn", "run", name, function, "--inside", "10.1.0.1/24", "--outside", "10.2.0.1/24", *sets)

    def state(self, host):
        lines = [json.loads(line) for line in self.op(host, "fn", "ls", "--json", fails=True).stdout.splitlines()]
        return next((line["state"] for line in lines if line["event"] == "instance"), None)

    def close(self):
        for host in list(self.agents):
            self.kill(host, signal.SIGTERM)
        self.net.close()
        shutil.rmtree(self.dir)


# What runs inside of namespaces: this file, with a word.

def flood(seconds):
    """Sends small packets to the server as fast as one processor can."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((USER, 5000))
    sock.connect((SERVER, 9))
    sock.setsockopt(SOL_UDP, UDP_SEGMENT, SEGMENT)
    block, end, sent = bytes(SEGMENT * SEGMENTS), time.monotonic() + float(seconds), 0
    while time.monotonic() < end:
        try:
            sock.send(block)
            sent += SEGMENTS
        except OSError:
            pass
    print(sent)


def echo():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((SERVER, 7))
    print("ready", flush=True)
    while True:
        data, who = sock.recvfrom(64)
        sock.sendto(data, who)


def probe():
    """Sends RATE packets a second until standard input ends; prints when each came back, as JSON: number: [sent, came]."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((USER, 5001))
    sock.connect((SERVER, 7))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    sent, came, over = [], {}, threading.Event()

    def hear():
        sock.settimeout(0.1)
        while not (over.is_set() and time.monotonic() > sent[-1] + 1):
            try:
                came.setdefault(struct.unpack("<Q", sock.recv(64))[0], []).append(time.monotonic())
            except (TimeoutError, ConnectionError):
                pass

    thread = threading.Thread(target=hear)
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    begin = time.monotonic()
    sent.append(begin)
    thread.start()
    sent.clear()
    while not over.is_set():
        left = begin + len(sent) / RATE - time.monotonic()
        if left > 0:
            time.sleep(left)
        sock.send(struct.pack("<Q", len(sent)))
        sent.append(time.monotonic())
    thread.join()
    print(json.dumps({"sent": sent, "came": {number: times for number, times in came.items()}}))


def storm(binary, results):
    print("\n## Storm\n\n| function | how | instances | first | last | median | 99 % | memory each | instantiate | configure | record | attach |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    rows = [("firewall", "as it is", 10000, []), ("limiter", "as it is", 10000, ["--set", "rate=1M"]), ("firewall", "store redb", 2000, ["--store", "redb"]),
            ("firewall", "without pool", 5000, ["--no-pool"]), ("firewall", "without copy on write", 5000, ["--no-copy-on-write"]),
            ("firewall", "without shared code", 50, ["--no-shared-code"])]
    for function, how, count, more in rows:
        said = finish([binary, "fn", "storm", "--function", function, "--count", str(count), "--json", *more])
        line = next(json.loads(line) for line in said.splitlines() if '"storm"' in line)
        if line["answered_again"] != count:
            raise Failed(f"{line['answered_again']} of {count} answer")
        results.append({"storm": how, **line})
        print(f"| {function} | {how} | {count} | {line['first_us'] / 1e3:.0f} ms | {line['last_us'] / 1e3:.2f} ms | {line['median_us'] / 1e3:.2f} ms | "
              f"{line['p99_us'] / 1e3:.2f} ms | {line['memory_bytes_each'] / 1e3:.1f} KB | {line['instantiate_us']:.0f} µs | {line['configure_us']:.0f} µs | "
              f"{line['record_us']:.0f} µs | {line['attach_us']:.0f} µs |", flush=True)


def plane_seconds(pid):
    """The processor time of the thread that moves packets. `ip netns exec` and taskset have become the agent."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        stat = (task / "stat").read_text()
        if "(plane)" in stat:
            fields = stat.rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise Failed("no thread `plane`")


def sent_from(net, seconds, device, to):
    """Floods; returns packets a second that came to a device of the server's namespace."""
    before, begin = net.packets(to, device), time.monotonic()
    finish(net.inside("user", "taskset", "-c", "0", sys.executable, __file__, "flood", seconds))
    return (net.packets(to, device) - before) / (time.monotonic() - begin)


def packets(binary, results, seconds=2):
    print("\n## Packets\n\n| function | here: came through | here: per second of its thread | nftables, one processor | without any (a route) |")
    print("| --- | --- | --- | --- | --- |")
    for function in FUNCTIONS:
        bed = Bed(binary)
        try:
            agent = bed.start("a", 1)
            bed.run("a", "n", function)
            sent_from(bed.net, 1, "e0", "server")
            rate = per_core = 0
            for _ in range(ROUNDS):
                cpu, before = plane_seconds(agent.pid), bed.net.packets("server", "e0")
                rate = max(rate, sent_from(bed.net, seconds, "e0", "server"))
                time.sleep(0.2)
                per_core = max(per_core, (bed.net.packets("server", "e0") - before) / (plane_seconds(agent.pid) - cpu))
        finally:
            bed.close()
        beside = [router(rules, seconds) for rules in (RULES[function], None)]
        results.append({"packets": function, "rate": rate, "per_core": per_core, "nftables": beside[0], "route": beside[1]})
        print(f"| {function} | {rate / 1e3:.0f} k/s | {per_core / 1e3:.0f} k/s | {beside[0] / 1e3:.0f} k/s | {beside[1] / 1e3:.0f} k/s |", flush=True)


def router(rules, seconds):
    """Packets a second through a namespace that forwards, with these rules of nftables: all of it on the sender's processor."""
    net = Net("user", "r", "server")
    try:
        net.veth("r", "user", "in0", "e0")
        net.veth("r", "server", "out0", "e0")
        for name, device, address in (("r", "in0", "10.1.0.1"), ("r", "out0", "10.2.0.1"), ("user", "e0", USER), ("server", "e0", SERVER)):
            net.ip(name, f"addr add {address}/24 dev {device}")
        net.ip("user", "route add default via 10.1.0.1")
        net.ip("server", "route add default via 10.2.0.1")
        finish(net.inside("r", "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        # As behind a TAP device, segments are cut before they come: what is compared is the work for a packet.
        net.ip("user", "link set e0 gso_max_segs 1")
        if rules:
            chain, *lines = rules
            text = "\n".join(["add table ip t", f"add {chain}".replace("chain f", "chain ip t f")] + [f"add rule ip t f {line}" for line in lines])
            subprocess.run(net.inside("r", "nft", "-f", "-"), input=text, text=True, check=True)
        sent_from(net, 1, "e0", "server")
        return max(sent_from(net, seconds, "e0", "server") for _ in range(ROUNDS))
    finally:
        net.close()


def moves(binary, results, count):
    bed = Bed(binary)
    children = []
    try:
        for host in "ab":
            bed.start(host)
        bed.run("a", "n", "nat44")
        server = subprocess.Popen(bed.net.inside("server", sys.executable, __file__, "echo"), stdout=subprocess.PIPE, text=True)
        children.append(server)
        server.stdout.readline()
        user = subprocess.Popen(bed.net.inside("user", sys.executable, __file__, "probe"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(user)
        time.sleep(2)
        at, still, spans = "a", [], []
        for _ in range(count):
            to = "b" if at == "a" else "a"
            begin = time.monotonic()
            said = bed.op(at, "fn", "move", "n", "--to", to, "--via", "up1", "--via", "up2", "--json").stdout
            spans.append((begin, time.monotonic()))
            moved = next(json.loads(line) for line in said.splitlines() if '"moved"' in line)
            still.append(moved["still_us"] / 1e3)
            at = to
        time.sleep(1)
        told = json.loads(user.communicate()[0])
        sent, came = told["sent"], {int(number): times for number, times in told["came"].items()}
        lost = [number for number in range(len(sent)) if number not in came]
        twice = sum(len(times) > 1 for times in came.values())
        delays = [max((came[n][0] - sent[n]) * 1e3 for n in range(len(sent)) if n in came and begin <= sent[n] <= end) for begin, end in spans]
        usual = statistics.median((came[n][0] - sent[n]) * 1e3 for n in came)
        results.append({"moves": count, "still_ms": still, "longest_ms": delays, "lost": len(lost), "sent": len(sent), "twice": twice, "usual_ms": usual,
                        "last": moved})
        print(f"\n## Moves\n\n{count} moves of a `nat44` under {RATE} packets/s: {len(lost)} of {len(sent)} lost, {twice} came twice; its state: "
              f"{moved['state_bytes']} bytes. Usual round trip {usual:.2f} ms.\n\n| | median | longest |\n| --- | --- | --- |")
        print(f"| stood still, as the agent says | {statistics.median(still):.1f} ms | {max(still):.1f} ms |")
        print(f"| the longest round trip of a packet | {statistics.median(delays):.1f} ms | {max(delays):.1f} ms |", flush=True)
    finally:
        for child in children:
            child.kill()
            child.wait()
        bed.close()


def kills(binary, results, count):
    """Kills an agent somewhere in a move; one instance runs in the end, each time."""
    bed, where = Bed(binary), {"a": 0, "b": 0}
    seed = random.Random(7)
    try:
        for host in "ab":
            bed.start(host)
        bed.run("a", "n", "firewall")
        at, ends = "a", {"here": 0, "there": 0}
        for number in range(count):
            to = "b" if at == "a" else "a"
            victim = (at, to)[number % 2]
            moving = subprocess.Popen(bed.command(at, "fn", "move", "n", "--to", to), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(seed.uniform(0.01, 0.7))
            bed.kill(victim)
            moving.wait()
            time.sleep(0.1)
            bed.start(victim)
            for _ in range(200):
                states = {host: bed.state(host) for host in "ab"}
                if list(states.values()).count("runs") > 1:
                    raise Failed(f"two run: {states}")
                if sorted(states.values(), key=str) == [None, "runs"] or set(states.values()) == {"runs", None}:
                    break
                time.sleep(0.05)
            else:
                raise Failed(f"it is not settled: {states}")
            now = next(host for host in "ab" if states[host] == "runs")
            ends["here" if now == at else "there"] += 1
            where[now] += 1
            at = now
        results.append({"kills": count, **ends})
        print(f"\n## Kills\n\n{count} moves, in each of which the agent of the source or of the destination was killed (SIGKILL) 10 to 700 ms after the command began, and "
              f"started again: exactly one instance ran each time, {ends['here']} times at the source, {ends['there']} times at the destination.", flush=True)
    finally:
        bed.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target/release/anabranch-op"))
    parser.add_argument("--only", default="storm,packets,moves,kills")
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--json")
    args = parser.parse_args()
    binary, results = str(pathlib.Path(args.bin).resolve()), []
    load = os.getloadavg()
    print(f"{os.cpu_count()} processors, load {load[0]:.1f} at the beginning")
    parts = {"storm": lambda: storm(binary, results), "packets": lambda: packets(binary, results), "moves": lambda: moves(binary, results, args.moves),
             "kills": lambda: kills(binary, results, args.kills)}
    for part in args.only.split(","):
        parts[part]()
    load = os.getloadavg()
    print(f"\nLoad {load[0]:.1f} at the end")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    inside = {"flood": flood, "echo": echo, "probe": probe}
    if len(sys.argv) > 1 and sys.argv[1] in inside:
        inside[sys.argv[1]](*sys.argv[2:])
    else:
        try:
            main()
        except Failed as e:
            sys.exit(f"failed: {e}")
