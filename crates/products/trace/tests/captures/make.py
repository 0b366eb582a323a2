#!/usr/bin/env python3
"""Captures of the kernel's own Multipath TCP between two network namespaces, for the tests of this crate.

    sudo python3 crates/products/trace/tests/captures/make.py --to DIR [NAME...]

Two links (10.77.1.0/24, 10.77.2.0/24) between two namespaces, with rates, queues and delays that a third one between them
makes (their names have this process's number: several of these run beside each other); a transfer of Python's own sockets (protocol 262, IPPROTO_MPTCP); an AF_PACKET socket on both links of each end writes a pcap of the first
SNAP bytes of each frame. Segmentation offloads are switched off, so that frames are what the wire would have.
Standard library only.
"""

import argparse
import collections
import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import threading
import time

MPTCP = 262
ETH_P_ALL = 3
CLONE_NEWNET = 0x40000000
SOL_PACKET, PACKET_STATISTICS = 263, 6
SNAP = 96
NAMES = C, S, M = [f"trace{os.getpid()}{end}" for end in "CSM"]

libc = ctypes.CDLL(None, use_errno=True)


def run(line, check=True):
    return subprocess.run(line.split(), check=check, capture_output=True, text=True)


def enter(name):
    """Moves this thread into a network namespace."""
    with open(f"/run/netns/{name}") as space:
        if libc.setns(space.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), name)


def inside(name, work):
    """Runs `work` on a thread in a namespace; returns the thread."""
    def body():
        enter(name)
        work()
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread


def plain_frames(name, device):
    """Switches segmentation and receive offloads off: a veth has no ethtool here, so by ioctl."""
    def work():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # ETHTOOL_STXCSUM (a frame that is passed on needs its checksum), STSO, SGSO, SGRO.
        for command in (0x17, 0x1F, 0x24, 0x2C):
            value = struct.pack("II", command, 0)
            data = ctypes.create_string_buffer(value)
            request = struct.pack("16sP", device.encode(), ctypes.addressof(data))
            fcntl.ioctl(sock, 0x8946, request)
    inside(name, work).join()


class Tap:
    """Writes what passes the devices of a namespace into a pcap file."""

    def __init__(self, name, devices, path, snap):
        self.frames, self.stopped, self.snap, self.path = [], False, snap, path
        self.ready = threading.Event()
        self.thread = inside(name, lambda: self.work(devices))
        self.ready.wait()

    def work(self, devices):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        sock.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        sock.settimeout(0.2)
        self.ready.set()
        names = set(devices)
        while not self.stopped:
            try:
                data, control, _, address = sock.recvmsg(70000, 64)
            except TimeoutError:
                continue
            if address[0] not in names:
                continue
            seconds, nanoseconds = struct.unpack("qq", control[0][2][:16])
            self.frames.append((seconds, nanoseconds, len(data), data[:self.snap]))
        self.lost = struct.unpack("II", sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]

    def stop(self):
        self.stopped = True
        self.thread.join()
        with open(self.path, "wb") as out:
            out.write(struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, self.snap, 1))
            for seconds, nanoseconds, length, data in sorted(self.frames, key=lambda f: f[:2]):
                out.write(struct.pack("<IIII", seconds, nanoseconds, len(data), length) + data)
        print(f"{self.path}: {len(self.frames)} frames, {self.lost} lost by the tap")


class Line:
    """One direction of a link: what comes in at one device goes out at another, at a rate and after a delay.

    `queue` is the longest time that a frame waits for those before it; what would wait longer is dropped.
    """

    def __init__(self, device_in, device_out, rate_bits, delay, queue=0.15):
        self.rate_bits, self.delay, self.queue, self.stopped = rate_bits, delay, queue, False
        self.thread = inside(M, lambda: self.work(device_in, device_out))

    def work(self, device_in, device_out):
        source, sink = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) for _ in range(2))
        source.bind((device_in, ETH_P_ALL))
        sink.bind((device_out, 0))
        waiting, free = collections.deque(), 0.0
        while not self.stopped:
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                sink.send(waiting.popleft()[1])
            timeout = min(waiting[0][0] - now, 0.2) if waiting else 0.2
            if not select.select([source], [], [], timeout)[0]:
                continue
            frame, address = source.recvfrom(70000)
            # 4 is PACKET_OUTGOING: what the other line sends here.
            now = time.monotonic()
            if address[2] != 4 and free - now <= self.queue:
                free = max(free, now) + len(frame) * 8 / self.rate_bits
                waiting.append((free + self.delay, frame))


class Bed:
    """Two namespaces, and between them two links, which a third one has: rates in Mbit/s, delays of one way in seconds."""

    def __init__(self, rates, delays=(0.01, 0.02)):
        for name in NAMES:
            run(f"ip netns del {name}", check=False)
            run(f"ip netns add {name}")
            run(f"ip -n {name} link set lo up")
        self.lines = []
        for number, (rate, delay) in enumerate(zip(rates, delays), 1):
            for side, letter, host in ((C, "c", 1), (S, "s", 2)):
                device, middle = f"{letter}{number}", f"m{letter}{number}"
                run(f"ip -n {side} link add {device} type veth peer name {middle} netns {M}")
                run(f"ip -n {side} addr add 10.77.{number}.{host}/24 dev {device}")
                for name, end in ((side, device), (M, middle)):
                    run(f"ip -n {name} link set {end} up")
                    plain_frames(name, end)
            for device_in, device_out in ((f"mc{number}", f"ms{number}"), (f"ms{number}", f"mc{number}")):
                self.lines.append(Line(device_in, device_out, rate * 1e6, delay))
        for name in (C, S):
            run(f"ip netns exec {name} sysctl -qw net.mptcp.enabled=1 net.ipv6.conf.all.disable_ipv6=1")
            run(f"ip -n {name} mptcp limits set subflows 4 add_addr_accepted 4")
        time.sleep(0.3)

    def close(self):
        for line in self.lines:
            line.stopped = True
        for line in self.lines:
            line.thread.join()
        for name in NAMES:
            run(f"ip netns del {name}", check=False)


def pump(sock, until, total):
    """Sends until a time or a number of bytes."""
    data, sent = bytes(range(256)) * 256, 0
    while sent < total and time.monotonic() < until:
        sent += sock.send(data[:min(len(data), total - sent)])
    return sent


def drain(sock):
    total = 0
    while data := sock.recv(1 << 18):
        total += len(data)
    return total


def transfer(down, seconds, total, protocol, server_protocol):
    """One connection: up, or down after a byte of request. Returns the bytes that arrived."""
    result, listening = {}, threading.Event()

    def server():
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, server_protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("0.0.0.0", 5001))
        sock.listen()
        listening.set()
        peer, _ = sock.accept()
        if down:
            peer.recv(1)
            pump(peer, time.monotonic() + seconds, total)
            peer.shutdown(socket.SHUT_WR)
            peer.recv(1)
        else:
            result["bytes"] = drain(peer)
        peer.close()
        sock.close()

    def client():
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
        sock.connect(("10.77.1.2", 5001))
        if down:
            sock.send(b"x")
            result["bytes"] = drain(sock)
        else:
            result["sent"] = pump(sock, time.monotonic() + seconds, total)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)
        sock.close()

    threads = [inside(S, server)]
    listening.wait()
    threads.append(inside(C, client))
    for thread in threads:
        thread.join(60)
    return result


def scene(name, to, rates, down=False, seconds=4, total=1 << 40, endpoints=(), during=(), protocol=MPTCP,
          server_protocol=MPTCP, sysctls=(), snap=SNAP):
    bed = Bed(rates)
    try:
        for line in sysctls:
            for space in (C, S):
                run(f"ip netns exec {space} sysctl -qw {line}")
        for line in endpoints:
            run(line)
        devices = range(1, len(rates) + 1)
        taps = [Tap(C, [f"c{n}" for n in devices], f"{to}/{name}_client.pcap", snap),
                Tap(S, [f"s{n}" for n in devices], f"{to}/{name}_server.pcap", snap)]

        def events():
            for after, line in during:
                time.sleep(after)
                run(line)
        thread = threading.Thread(target=events, daemon=True)
        thread.start()
        print(name, transfer(down, seconds, total, protocol, server_protocol))
        thread.join()
        time.sleep(0.5)
        for tap in taps:
            tap.stop()
        print(run(f"ip netns exec {C} nstat -az MPTcpExtMPTCPRetrans MPTcpExtDuplicateData").stdout)
        print(run(f"ip netns exec {S} nstat -az MPTcpExtMPTCPRetrans MPTcpExtDuplicateData").stdout)
    finally:
        bed.close()


SECOND = f"ip -n {C} mptcp endpoint add 10.77.2.1 dev c2 subflow"
DEAD = [(2, f"ip -n {C} link set c1 down")]
SLOW = dict(rates=(1.6, 0.8), seconds=4)
SCENES = {
    "small": dict(rates=(20, 10), total=300_000, endpoints=[SECOND]),
    "handover_up": dict(**SLOW, endpoints=[SECOND], during=DEAD),
    "handover_down": dict(**SLOW, down=True, endpoints=[SECOND], during=DEAD),
    "backup_down": dict(**SLOW, down=True, endpoints=[SECOND + " backup"], during=DEAD),
    "signals": dict(**SLOW, down=True, endpoints=[
        f"ip -n {C} mptcp endpoint add 10.77.2.1 dev c2 id 9 subflow fullmesh",
        f"ip -n {S} mptcp endpoint add 10.77.2.2 dev s2 id 5 signal"], during=[
        (1, f"ip -n {C} mptcp endpoint change id 9 backup fullmesh"),
        (0.8, f"ip -n {C} mptcp endpoint change id 9 nobackup fullmesh"),
        (0.8, f"ip -n {C} mptcp endpoint delete id 9")]),
    "checksum": dict(rates=(20, 10), total=60_000, endpoints=[SECOND], snap=2000,
                     sysctls=["net.mptcp.checksum_enabled=1"]),
    "fallback": dict(rates=(20,), total=40_000, server_protocol=0),
    "tcp": dict(rates=(20,), total=100_000, protocol=0, server_protocol=0),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--to", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    os.makedirs(args.to, exist_ok=True)
    for name in args.names or SCENES:
        scene(name, args.to, **SCENES[name])


main()
