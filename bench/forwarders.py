#!/usr/bin/env python3
"""Measures `anabranch forward` beside forwarders of NDN and a bare relay, and writes table n1 (docs/measurements/network.md) and bench/results.json.

    sudo python3 bench/forwarders.py --ndnd PATH [--nfd DIR]   everything, in some minutes
    sudo python3 bench/forwarders.py --quick ...               little of everything, nothing written: does it work?
    python3 bench/forwarders.py --draw                         measures nothing: makes the table again from results.json

PATH is the program of named-data/ndnd (`make` there; $NDND is taken too); DIR has nfd and nfdc of named-data/NFD ($NFD). A forwarder that is
not given loses its rows. All run one after the other, some rounds, in a namespace of their own with nothing but loopback: a host that
sends, the forwarder, a host that receives. The load is crates/products/network/examples/forwarder_load.rs: a closed loop of so many packets
that hardly any is lost. *In trains*: 16 in a call (8 of the large ones), as mmTP sends them. Counted are packets of content that came to the receiver (Data of NDN; each needs an Interest through the same
forwarder), by the CPU time of the forwarder's process, all threads. Caches are off: all is forwarded. Root; Python's standard library.
"""

import argparse
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import compare  # noqa: E402
import report  # noqa: E402
import testbed  # noqa: E402
from stack import ROOT  # noqa: E402

HOST = "127.91.201.{}"
DOMAIN = f"""name = "bench"
forwarders = ["r"]
[rendezvous]
node = "b"
[topology]
node = "b"
[[line]]
between = ["a", "r"]
addresses = ["{HOST.format(1)}", "{HOST.format(2)}"]
[[line]]
between = ["r", "b"]
addresses = ["{HOST.format(3)}", "{HOST.format(4)}"]
"""
FORWARDER_PORT, RELAY_PORT, SINK_PORT, NDN_PORT, PRODUCER = 7700, 7799, 9000, 6363, "127.0.0.1:9100"
#: Of a frame and of a Data packet: what mmTP sends where the path has 1,500 bytes, and what NDN may have at most.
SIZES = [1424, 8000]
#: Packets in a call, where it carries so many bytes.
TRAIN, CALL_BYTES = 16, 65_000
#: Packets under way: more makes queues of NDN's forwarders drop, whose sockets have the system's default room.
WINDOW = {"frames": 512, "ndn": 64}
NDND = """core: {{log_level: ERROR}}
faces:
  udp: {{enabled_unicast: true, enabled_multicast: false, port_unicast: {port}, default_mtu: 9000}}
  tcp: {{enabled: false}}
  unix: {{enabled: true, socket_path: "{socket}"}}
  websocket: {{enabled: false}}
fw: {{threads: 1}}
tables:
  content_store: {{capacity: 0, admit: false, serve: false}}
"""
NFD = """general {{ }}
log {{ default_level NONE }}
tables {{ cs_max_packets 0 strategy_choice {{ / /localhost/nfd/strategy/best-route }} }}
face_system
{{
  general {{ enable_congestion_marking no }}
  unix {{ path {socket} }}
  udp {{ listen yes port {port} enable_v6 no mcast no unicast_mtu 8800 }}
}}
authorizations {{ authorize {{ certfile any privileges {{ faces fib cs strategy-choice }} }} }}
rib {{ localhost_security {{ trust-anchor {{ type any }} }} }}
"""


class Bench:
    def __init__(self, options):
        self.options = options
        self.place = testbed.Loopback().client
        self.scratch = testbed.scratch()
        self.domain = self.file("bench.toml", DOMAIN)

    def file(self, name, text):
        path = os.path.join(self.scratch, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def programs(self):
        """Name, how it is started, what it is asked by."""
        rows = [("bare relay", self.relay, 1), ("anabranch forward", self.ours, 1),
                ("bare relay, in trains", self.relay, TRAIN), ("anabranch forward, in trains", self.ours, TRAIN)]
        if self.options.ndnd:
            rows.append(("ndnd", self.ndnd, None))
        if self.options.nfd:
            rows.append(("NFD", self.nfd, None))
        return rows

    def log(self):
        return os.path.join(self.scratch, "log")

    def relay(self):
        ends = [HOST.format(2), RELAY_PORT], [HOST.format(3), RELAY_PORT], [HOST.format(4), SINK_PORT]
        child = self.place.start([self.options.load, "relay", *("{}:{}".format(*end) for end in ends)], self.log())
        return child, f"{HOST.format(2)}:{RELAY_PORT}"

    def ours(self):
        argv = [self.options.bin, "forward", "--domain", self.domain, "--node", "r", "--quiet"]
        argv = argv if self.options.bin else [self.options.load, "forward", self.domain]
        return self.place.start(argv, self.log()), f"{HOST.format(2)}:{FORWARDER_PORT}"

    def ask(self, socket, *argv):
        env = {**os.environ, "NDN_CLIENT_TRANSPORT": f"unix://{socket}", "HOME": self.scratch}
        done = subprocess.run(self.place.command(argv), env=env, capture_output=True, text=True, timeout=20)
        if done.returncode:
            sys.exit(f"{' '.join(argv)}: {done.stdout}{done.stderr}")

    def ndnd(self):
        socket = os.path.join(self.scratch, "ndnd.sock")
        config = self.file("ndnd.yml", NDND.format(port=NDN_PORT, socket=socket))
        child = self.place.start([self.options.ndnd, "fw", "run", config], self.log())
        time.sleep(1)
        self.ask(socket, self.options.ndnd, "fw", "route-add", "prefix=/anabranch", f"face=udp4://{PRODUCER}")
        return child, f"127.0.0.1:{NDN_PORT}"

    def nfd(self):
        socket = os.path.join(self.scratch, "nfd.sock")
        config = self.file("nfd.conf", NFD.format(port=NDN_PORT, socket=socket))
        child = self.place.start([os.path.join(self.options.nfd, "nfd"), "--config", config], self.log(),
                                 env={"HOME": self.scratch})
        time.sleep(1)
        nfdc = os.path.join(self.options.nfd, "nfdc")
        self.ask(socket, nfdc, "cs", "config", "admit", "off", "serve", "off")
        self.ask(socket, nfdc, "route", "add", "/anabranch", f"udp4://{PRODUCER}")
        return child, f"127.0.0.1:{NDN_PORT}"

    def measure(self, start, train, size):
        child, hop = start()
        try:
            time.sleep(0.5)
            if train:
                argv = ["frames", self.domain, hop, train, size, WINDOW["frames"]]
            else:
                argv = ["ndn", hop, PRODUCER, size, WINDOW["ndn"]]
            return self.load(child, [self.options.load, *map(str, argv), str(self.options.seconds)])
        finally:
            testbed.stop([child])

    def load(self, child, argv):
        """What came, and what it took the process in the middle."""
        run = subprocess.Popen(self.place.command(argv), stdout=subprocess.PIPE, text=True)
        look = lambda: (time.monotonic(), testbed.cpu_of(child.pid), testbed.cpu_of(run.pid), testbed.machine_busy_s()[0])
        for line in run.stdout:
            word, *numbers = line.split()
            if word == "begins":
                before = look()
            elif word == "ends":
                seconds, used, by_load, busy = (now - then for now, then in zip(look(), before))
                run.wait()
                packets, lost = map(int, numbers)
                return {"packets": packets, "lost": lost, "seconds": seconds, "cpu_s": used,
                        "others_percent": max(0, 100 * (busy - used - by_load) / (seconds * os.cpu_count()))}
        return {"failed": f"the load ended with {run.wait()}"}

    def all(self):
        beds = []
        for size in SIZES:
            runs = {}
            for _ in range(self.options.rounds):
                for name, start, train in self.programs():
                    run = self.measure(start, train and min(train, CALL_BYTES // size), size)
                    print(f"  {size} bytes: {name}: {json.dumps(run)}", flush=True)
                    runs.setdefault(name, []).append(run)
            beds.append({"bytes": size, "runs": runs})
        return {"beds": beds}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ndnd", default=os.environ.get("NDND"), help="the program ndnd")
    parser.add_argument("--nfd", default=os.environ.get("NFD"), help="where nfd and nfdc are")
    parser.add_argument("--bin", help="the anabranch binary (default: the same forwarder in the program of the load)")
    parser.add_argument("--load", help="the example `forwarder_load` (default: cargo build --release)")
    parser.add_argument("--commit", help="what --bin and --load were built from, if not from here")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each row")
    parser.add_argument("--seconds", type=int, default=5, help="of each run")
    parser.add_argument("--quick", action="store_true", help="little of everything; writes nothing")
    parser.add_argument("--draw", action="store_true", help="make the table again from results.json, and end")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1
    if not options.commit:
        describe = ["git", "describe", "--always", "--dirty"]
        options.commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return options


def build(options):
    """The load, built if it was not given."""
    if not options.load:
        argv = ["cargo", "build", "--release", "-q", "-p", "anabranch-network", "--example", "forwarder_load"]
        subprocess.run(argv, cwd=ROOT, check=True)
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
        options.load = os.path.join(target, "release/examples/forwarder_load")
    options.load = os.path.abspath(options.load)


def main():
    options = parse()
    if options.draw:
        return report.insert(ROOT, {"n1": report.table("n1", report.load(ROOT)["n1"])})
    if not testbed.IS_ROOT:
        return compare.skip("root is needed for namespaces")
    testbed.install_cleanup()
    build(options)
    machine = compare.machine(options.commit) | {"load": os.getloadavg()[0]}
    result = {**Bench(options).all(), "machine": machine}
    if not options.quick:
        report.save(ROOT, "n1", result)
    print(report.table("n1", result))


if __name__ == "__main__":
    main()
