#!/usr/bin/env python3
"""What the controllers inside Linux cost: CPU seconds per gigabyte, against the kernel's own reno.

    anabranch kernel load nmcc lia        # those to measure
    python3 bench/kernel_cost.py          # root; python3 and anabranch (--bin); --json FILE for the numbers

In a network namespace of its own, one socket sends to another over the loopback device as fast as it can, by
TCP and by MPTCP with one subflow. A pair is one run with the controller and one with reno, in alternating order;
what is shown is the median of the pairs' ratios, with an interval that holds the true median with at least 95 %
(order statistics of the sign test).

CPU is that of the whole run as the kernel accounts it to the two processes (user and system time, getrusage of
both ends), plus softirq time of the machine from /proc/stat, which includes what others cause: the interrupts
of a transfer over loopback run mostly in the sender's and receiver's own system calls. The machine's other load
during each run is shown, so that a table made on a busy machine says so.

What noise hides, counting shows. In further runs (--counted) the kernel counts how often it called each of the
controller's programs, and the time in them (sysctl kernel.bpf_stats_enabled, put back afterwards; read through
`anabranch kernel status --json`). That time for a gigabyte, as a share of the CPU time that reno's runs took for one,
is a bound from above of what the controller adds: the clock that is read twice a call is in it, and the work of the
built-in reno, which is not done, is not taken off. Other sockets of the machine that use the controller would be
counted too.
"""

import argparse
import contextlib
import ctypes
import json
import math
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

IPPROTO_MPTCP = 262
CLONE_NEWNET = 0x40000000
TICKS = os.sysconf("SC_CLK_TCK")
STATS = "/proc/sys/kernel/bpf_stats_enabled"
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
#: As Linux calls them (crates/worlds/kernel/src/controllers.rs).
CONTROLLERS = ["cubic_coupled", "nmcc", "lia", "olia", "balia", "wvegas", "ewtcp", "coupled", "reno_anb"]
BASE = "reno"
CHUNK = 256 * 1024
PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "mptcp": IPPROTO_MPTCP}


def own_namespace():
    """Moves this process into a network namespace that ends with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        sys.exit(f"no network namespace of our own: {os.strerror(ctypes.get_errno())}; run as root")
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING.
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 0x41))


def machine():
    """Seconds of the machine so far: busy, softirq."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _wait, irq, softirq, *_ = (int(word) for word in stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / TICKS, softirq / TICKS


def own(usage):
    return usage.ru_utime + usage.ru_stime


def send(to, protocol, controller, size):
    """The sending process."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as out:
        out.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, controller.encode())
        out.connect(to)
        chunk, left = bytes(CHUNK), size
        while left > 0:
            left -= out.send(chunk[:left] if left < CHUNK else chunk)
        used = out.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
        if used != controller:
            raise SystemExit(f"the socket has {used}, not {controller}")


def run(protocol, controller, size, cores):
    """One transfer: seconds of CPU, by whom, and of time."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        child = os.fork()
        if child == 0:
            try:
                os.sched_setaffinity(0, {cores[0]})
                listener_name = listener.getsockname()
                listener.close()
                send(listener_name, protocol, controller, size)
                os._exit(0)
            except BaseException as error:  # pylint: disable=broad-except
                print(f"{controller}: {error}", file=sys.stderr)
                os._exit(1)
        os.sched_setaffinity(0, {cores[-1]})
        taken, _ = listener.accept()
        busy, softirq = machine()
        began, start = time.monotonic(), os.times()
        buffer, got = bytearray(CHUNK), 0
        with taken:
            while count := taken.recv_into(buffer):
                got += count
        took, end = time.monotonic() - began, os.times()
        receiver = end.user + end.system - start.user - start.system
        _, status, usage = os.wait4(child, 0)
    busy, softirq = machine()[0] - busy, machine()[1] - softirq
    if status != 0 or got != size:
        sys.exit(f"{controller}: the transfer failed ({got} of {size} bytes)")
    cpu = own(usage) + receiver + softirq
    return {"cpu_s": cpu, "sender_s": own(usage), "receiver_s": receiver, "softirq_s": softirq, "time_s": took,
            "others": max(0.0, busy - cpu) / (took * (os.cpu_count() or 1))}


def interval(ratios):
    """The ranks that hold the median with at least 95 % (sign test), and with how much."""
    n, tail, rank = len(ratios), 0.0, 0
    while rank < n // 2:
        more = tail + math.comb(n, rank) / 2**n
        if more > 0.025:
            break
        tail, rank = more, rank + 1
    ordered = sorted(ratios)
    low = max(rank - 1, 0)
    sure = 1 - 2 * sum(math.comb(n, i) for i in range(low + 1)) / 2**n
    return ordered[low], ordered[n - 1 - low], sure


def measure(name, protocol, args, cores):
    """All pairs of one controller and protocol."""
    size, ratios, costs, runs = int(args.gb * 1e9), [], {name: [], BASE: []}, []
    for pair in range(args.pairs):
        cpu = {}
        for controller in (name, BASE) if pair % 2 == 0 else (BASE, name):
            one = run(PROTOCOLS[protocol], controller, size, cores)
            cpu[controller] = one["cpu_s"]
            costs[controller].append(one["cpu_s"] / args.gb)
            runs.append({"pair": pair, "controller": controller, **one})
        ratios.append(cpu[name] / cpu[BASE])
    low, high, sure = interval(ratios)
    return {"controller": name, "protocol": protocol, "pairs": args.pairs, "gb": args.gb,
            "cpu_s_per_gb": statistics.median(costs[name]), "reno_cpu_s_per_gb": statistics.median(costs[BASE]),
            "ratio": statistics.median(ratios), "ratio_low": low, "ratio_high": high, "confidence": sure,
            "others": statistics.mean(one["others"] for one in runs), "runs": runs}


@contextlib.contextmanager
def counting():
    """While the kernel counts the calls of eBPF programs; what was set before is put back."""
    with open(STATS, encoding="ascii") as file:
        before = file.read()
    try:
        with open(STATS, "w", encoding="ascii") as file:
            file.write("1")
        yield
    finally:
        with open(STATS, "w", encoding="ascii") as file:
            file.write(before)


def programs(binary, name):
    """Calls and nanoseconds of each program of a controller, as counted so far."""
    said = subprocess.run([binary, "kernel", "status", "--json"], check=True, capture_output=True)
    rows = {row["linux"]: row["programs"] for row in json.loads(said.stdout)["controllers"]}
    if not rows.get(name):
        sys.exit(f"{binary} sees no programs of {name}: is it built with --features kernel?")
    return {program["on"]: (program["calls"], program["time_ns"]) for program in rows[name]}


def count(row, args, cores):
    """Adds to a row what the controller's programs did in runs of their own."""
    name, size, runs = row["controller"], int(args.gb * 1e9), []
    with counting():
        for _ in range(args.counted):
            before = programs(args.bin, name)
            one = run(PROTOCOLS[row["protocol"]], name, size, cores)
            after = programs(args.bin, name)
            none = (0, 0)
            each = {on: {"calls": calls - before.get(on, none)[0], "time_ns": time_ns - before.get(on, none)[1]}
                    for on, (calls, time_ns) in after.items()}
            calls, time_ns = (sum(program[what] for program in each.values()) for what in ("calls", "time_ns"))
            if not calls:
                sys.exit(f"{name}: the kernel counted no call of it")
            runs.append({"programs": each, "calls_per_gb": calls / args.gb, "ns_per_call": time_ns / calls,
                         "s_per_gb": time_ns / 1e9 / args.gb, **one})
    counted = {what: statistics.median(one[what] for one in runs)
               for what in ("calls_per_gb", "ns_per_call", "s_per_gb")}
    row["counted"] = {**counted, "share_of_reno": counted["s_per_gb"] / row["reno_cpu_s_per_gb"], "runs": runs}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("controllers", nargs="*", help="as Linux calls them; otherwise all that are loaded")
    parser.add_argument("--gb", type=float, default=4.0, help="gigabytes (10^9 bytes) of a run")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--counted", type=int, default=3, help="runs in which calls are counted; 0: none")
    parser.add_argument("--bin", metavar="PATH", help="anabranch, built with --features kernel; otherwise that "
                        "of PATH, or target/release/anabranch here")
    parser.add_argument("--protocols", default="tcp,mptcp")
    parser.add_argument("--mtu", type=int, help="of the loopback device; otherwise 65536")
    parser.add_argument("--json", metavar="FILE", help="write all numbers there ('-': standard output)")
    args = parser.parse_args()
    args.bin = args.bin or shutil.which("anabranch") or os.path.join(
        os.path.dirname(__file__), "..", "target", "release", "anabranch")
    # So that settings are put back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    own_namespace()
    with open(AVAILABLE, encoding="ascii") as file:
        available = file.read().split()
    names = args.controllers or [name for name in CONTROLLERS if name in available]
    missing = [name for name in names if name not in available]
    if missing or not names:
        sys.exit(f"not loaded: {' '.join(missing) or 'any controller'} (anabranch kernel load NAME…)")
    if args.mtu:
        os.system(f"ip link set lo mtu {args.mtu}")
    with open("/proc/sys/net/ipv4/tcp_no_metrics_save", "w", encoding="ascii") as file:
        file.write("1")
    cores = sorted(os.sched_getaffinity(0))
    print(f"kernel {os.uname().release}, {len(cores)} cores, load {os.getloadavg()[0]:.2f}, "
          f"{args.pairs} pairs of {args.gb:g} GB each; CPU of both ends and softirq")
    if args.counted:
        print(f"counted: what the controller's programs took in {args.counted} more runs, and that as a share of "
              "reno's CPU: at most so much is added")
    print(f"{'controller':12} {'protocol':9} {'CPU s/GB':>9} {'reno':>7} {'ratio':>7}  interval"
          f"{'':8} {'others':>7}"
          + (f" {'calls/GB':>9} {'ns/call':>8} {'ms/GB':>7} {'share':>6}" if args.counted else ""))
    results = []
    for protocol in args.protocols.split(","):
        run(PROTOCOLS[protocol], BASE, int(args.gb * 1e9 / 4), cores)
        for name in names:
            row = measure(name, protocol, args, cores)
            results.append(row)
            counted = ""
            if args.counted:
                count(row, args, cores)
                what = row["counted"]
                counted = (f" {what['calls_per_gb']:9.0f} {what['ns_per_call']:8.0f} {1e3 * what['s_per_gb']:7.2f} "
                           f"{100 * what['share_of_reno']:5.2f}%")
            print(f"{name:12} {protocol:9} {row['cpu_s_per_gb']:9.3f} {row['reno_cpu_s_per_gb']:7.3f} "
                  f"{row['ratio']:7.3f}  {row['ratio_low']:.3f} to {row['ratio_high']:.3f} "
                  f"{100 * row['others']:6.1f}%{counted}", flush=True)
    if args.json:
        text = json.dumps({"kernel": os.uname().release, "mtu": args.mtu or 65536, "results": results}, indent=1)
        if args.json == "-":
            print(text)
        else:
            with open(args.json, "w", encoding="utf-8") as file:
                file.write(text + "\n")


if __name__ == "__main__":
    main()
