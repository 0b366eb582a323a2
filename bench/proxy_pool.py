#!/usr/bin/env python3
"""Answers the question that the paper on a virtualised proxy left open (doi 10.1109/ICUFN.2017.7993881, section V): what does a pool of placed
proxies give, where one proxy is S away from the origins?

    cargo build --release -p anabranch-cli --no-default-features --features proxy --bin anabranch-proxy
    sudo python3 bench/proxy_pool.py --bin target/release/anabranch-proxy [--quick] [--write]

Hosts are network namespaces, each with a TUN device; this process is the network between them, and holds each packet for half of the round trip
between its two hosts (no netem is needed; rates are not limited, so only latencies are comparable). Three origins are in three places.

one     a proxy 20 ms from the client and S from each origin
placed  three proxies, each 2 ms from one origin, S + 20 ms from the client and from the other origins: the client chooses

Each row: requests of 1 KB, one after the other over new connections, to the three origins in turn, through `anabranch proxy client`.
The first four to each origin, in which the client tries servers, are not counted. At the end one of the placed servers is drained and one is killed
(SIGKILL) while a program opens connections without a pause. `--write` puts the table into docs/measurements/proxy-pool.md. Root; Python's standard library.
"""

import argparse
import atexit
import ctypes
import fcntl
import heapq
import os
import selectors
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

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "measurements", "proxy-pool.md")
CLIENT, ONE, PLACED, ORIGINS = 1, 10, [11, 12, 13], [21, 22, 23]
CLIENT_RTT, NEAR_RTT = 20, 2
SOCKS, PORT, WEB = ("127.0.0.1", 1080), 26228, 8080
UNCOUNTED = 4
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


def address(host):
    return f"10.90.0.{host}"


def enter(namespace):
    """Makes a network namespace that of this thread."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0x40000000):  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), "setns")


class Network:
    """The hosts and the delays between them."""

    def __init__(self):
        self.rtts_ms, self.devices, self.children, self.is_over = {}, {}, [], False
        self.scratch = tempfile.mkdtemp(prefix="anabranch-pool-")
        self.own = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.pid = os.getpid()
        atexit.register(self.close)
        for host in [CLIENT, ONE, *PLACED, *ORIGINS]:
            self.add(host)
        threading.Thread(target=self.carry, daemon=True).start()

    def space(self, host):
        return f"ap{self.pid}h{host}"

    def add(self, host):
        name = self.space(host)
        subprocess.run(["ip", "netns", "add", name], check=True)
        with open(f"/run/netns/{name}", encoding="ascii") as inside:
            enter(inside.fileno())
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"t0", IFF_TUN | IFF_NO_PI))
        enter(self.own)
        for words in ["link set lo up", f"address add {address(host)}/24 dev t0", "link set t0 up"]:
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        self.devices[host] = device

    def rtt(self, one, other, ms):
        self.rtts_ms[one, other] = self.rtts_ms[other, one] = ms

    def carry(self):
        """Moves packets between the hosts, each when it has been held long enough."""
        waiting, count, selector = [], 0, selectors.DefaultSelector()
        for device in self.devices.values():
            selector.register(device, selectors.EVENT_READ)
        while not self.is_over:
            wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for key, _ in selector.select(wait):
                for _ in range(64):
                    try:
                        packet = os.read(key.fd, 65_536)
                    except OSError:
                        break
                    if len(packet) >= 20 and packet[0] >> 4 == 4:
                        rtt = self.rtts_ms.get((packet[15], packet[19]))
                        if rtt is not None:
                            count += 1
                            heapq.heappush(waiting, (time.monotonic() + rtt / 2_000, count, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, packet = heapq.heappop(waiting)
                try:
                    os.write(self.devices[packet[19]], packet)
                except OSError:
                    pass

    def start(self, host, *argv, log):
        state = os.path.join(self.scratch, log)
        os.makedirs(state, mode=0o700, exist_ok=True)
        env = {**os.environ, "XDG_RUNTIME_DIR": state, "XDG_STATE_HOME": state}
        with open(os.path.join(self.scratch, f"{log}.log"), "wb") as out:
            child = subprocess.Popen(["ip", "netns", "exec", self.space(host), *argv], stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=subprocess.STDOUT, env=env)
        self.children.append(child)
        return child

    def end(self, child):
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def close(self):
        if os.getpid() != self.pid or self.is_over:
            return
        self.is_over = True
        for child in self.children:
            self.end(child)
        for host in self.devices:
            subprocess.run(["ip", "netns", "del", self.space(host)], check=False)
        shutil.rmtree(self.scratch, ignore_errors=True)


def origin():
    """Serves each connection one answer of as many bytes as it asks for: a number and a newline."""
    listener = socket.create_server(("0.0.0.0", WEB), backlog=1_024)
    while True:
        stream, _ = listener.accept()

        def serve(stream=stream):
            with stream:
                length = int(stream.makefile("rb").readline() or 0)
                stream.sendall(bytes(length))

        threading.Thread(target=serve, daemon=True).start()


def ask(to, length, limit_s=20):
    """One request through the client's SOCKS5; the seconds that it took."""
    began = time.monotonic()
    with socket.create_connection(SOCKS, timeout=limit_s) as stream:
        stream.sendall(b"\x05\x01\x00\x05\x01\x00\x01" + socket.inet_aton(to) + struct.pack("!H", WEB) + b"%d\n" % length)
        left = 12 + length
        while left > 0:
            got = stream.recv(1 << 18)
            if not got:
                raise OSError(f"{left} bytes are missing")
            left -= len(got)
    return time.monotonic() - began


def requests(argv):
    """Runs on the client's host: prints the times of `count` requests of `length` bytes, those not counted left out."""
    length, count, *hosts = argv
    for number in range(int(count) + UNCOUNTED):
        for host in hosts:
            took = ask(host, int(length))
            if number >= UNCOUNTED:
                print(took * 1_000)


def without_pause(argv):
    """Runs on the client's host: opens connections one after the other for some seconds. Prints how many, how many failed, the longest."""
    seconds, *hosts = argv
    end, made, failed, longest = time.monotonic() + float(seconds), 0, 0, 0.0
    while time.monotonic() < end:
        try:
            longest = max(longest, ask(hosts[made % len(hosts)], 100))
        except OSError:
            failed += 1
        made += 1
    print(made, failed, longest * 1_000)


class Bench:
    def __init__(self, options):
        self.options, self.net = options, Network()
        for host in ORIGINS:
            self.net.start(host, sys.executable, __file__, "origin", log=f"origin{host}")

    def place(self, s):
        rtt = self.net.rtt
        rtt(CLIENT, ONE, CLIENT_RTT)
        for at, host in enumerate(PLACED):
            rtt(CLIENT, host, CLIENT_RTT + s)
            for where, to in enumerate(ORIGINS):
                rtt(ONE, to, s)
                rtt(host, to, NEAR_RTT if at == where else CLIENT_RTT + s)

    def begin(self, servers):
        """Starts these servers and a client of them; returns both."""
        words = ["server", "--plain", "--quiet", "--from", "10.90.0.0/24", "--allow", "10.90.0.0/24"]
        running = {host: self.net.start(host, self.options.bin, *words, log=f"server{host}") for host in servers}
        time.sleep(0.7)
        named = [word for host in servers for word in ("--server", f"{address(host)}:{PORT}")]
        client = self.net.start(CLIENT, self.options.bin, "client", "--plain", "--quiet", *named, log="client")
        time.sleep(3)
        return running, client

    def inside(self, *argv, **how):
        argv = ["ip", "netns", "exec", self.net.space(CLIENT), sys.executable, __file__, *map(str, argv)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **how)

    def times(self, length, count):
        child = self.inside("requests", length, count, *map(address, ORIGINS))
        out, _ = child.communicate(timeout=300)
        if child.returncode:
            raise SystemExit(f"a request failed; see {self.net.scratch}")
        return sorted(float(line) for line in out.split())

    def stop(self, running, client):
        for child in [client, *running.values()]:
            self.net.end(child)

    def row(self, s):
        self.place(s)
        row = []
        for servers in ([ONE], PLACED):
            running, client = self.begin(servers)
            small = self.times(1_000, 8 if self.options.quick else 40)
            row.append((statistics.median(small), small[int(len(small) * 0.95)]))
            self.stop(running, client)
        return row

    def faults(self, s):
        """A drain, then a kill, while a program opens connections. What each cost."""
        self.place(s)
        rows = []
        for fault in ("drain", "kill"):
            running, client = self.begin(PLACED)
            program = self.inside("without-pause", 12, *map(address, ORIGINS))
            time.sleep(4)
            if fault == "kill":
                inner = subprocess.run(["ip", "netns", "pids", self.net.space(PLACED[0])], capture_output=True, text=True, check=True)
                for pid in inner.stdout.split():
                    os.kill(int(pid), signal.SIGKILL)
            else:
                drain = self.net.start(PLACED[0], self.options.bin, "drain", "--rate", "10/s", log=f"server{PLACED[0]}")
                if drain.wait(30):
                    with open(os.path.join(self.net.scratch, f"server{PLACED[0]}.log"), encoding="utf-8") as said:
                        raise SystemExit(f"the drain did not end: {said.read()}")
                self.net.end(running.pop(PLACED[0]))
            out, _ = program.communicate(timeout=60)
            rows.append((fault, *map(float, out.split())))
            self.stop(running, client)
        return rows


def drawn(rows, faults):
    lines = ["| S, ms | one proxy: 1 KB p50 / p95, ms | three placed: 1 KB p50 / p95, ms |", "| ---: | ---: | ---: |"]
    for s, (one, placed) in rows:
        lines.append(f"| {s} | {one[0]:.0f} / {one[1]:.0f} | {placed[0]:.0f} / {placed[1]:.0f} |")
    lines += ["", "| one of three is | connections opened meanwhile | failed | longest, ms |", "| --- | ---: | ---: | ---: |"]
    what = {"drain": "drained, then stopped", "kill": "killed (SIGKILL)"}
    for fault, made, failed, longest in faults:
        lines.append(f"| {what[fault]} | {made:.0f} | {failed:.0f} | {longest:.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the program anabranch-proxy")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurements/proxy-pool.md")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    load = os.getloadavg()[0]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(1))
    bench = Bench(options)
    rows = [(s, bench.row(s)) for s in (0, 50, 100)]
    table = drawn(rows, bench.faults(50))
    note = f"<sub>{time.strftime('%Y-%m-%d')}; {os.cpu_count()} cores; Linux {os.uname().release}; load average at its beginning {load:.1f}.</sub>"
    print(table, "", note, sep="\n")
    if options.write:
        with open(PAGE, encoding="utf-8") as file:
            before, rest = file.read().split("<!-- table:pool -->\n", 1)
            after = rest.split("<!-- /table:pool -->", 1)[1]
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(f"{before}<!-- table:pool -->\n\n{table}\n\n{note}\n\n<!-- /table:pool -->{after}")


if __name__ == "__main__":
    ROLES = {"origin": lambda _: origin(), "requests": requests, "without-pause": without_pause}
    if len(sys.argv) > 1 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](sys.argv[2:])
    else:
        main()
