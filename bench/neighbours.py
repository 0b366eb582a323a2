#!/usr/bin/env python3
"""Measures `anabranch cache` with a neighbour on its LAN: an object from the sources, from the neighbour, and beside a neighbour that is dead.

    cargo build --release -p anabranch-cli --features cache --bin anabranch-cache
    sudo python3 bench/neighbours.py --bin target/release/anabranch-cache

Two caches and an origin are namespaces on one bridge; the origin's link has the rate of an uplink (TBF), the caches' have none. Root,
iproute2, nginx and curl; Python's standard library.
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROUTE = '[[route]]\nat = "/"\npreset = "oci"\nsources = ["http://10.77.0.3:8080"]\n'
NGINX = ("user root; daemon off; pid {0}/nginx.pid; error_log /dev/null; events {{}} http {{ access_log off; "
         "server {{ listen 10.77.0.3:8080; root {0}/www; }} }}")


class Lan:
    """Hosts `a` and `b` with a cache each, `o` with the origin."""

    def __init__(self, options):
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.options, self.dir, self.children = options, tempfile.mkdtemp(prefix="anabranch-neighbours-", dir=base), []
        self.blobs = os.path.join(self.dir, "www/v2/a/blobs")
        os.makedirs(self.blobs)
        for name in ("hub", "a", "b", "o"):
            self.sh(f"ip netns add {self.space(name)}")
            self.ip(name, "link set lo up")
        self.ip("hub", "link add lan type bridge")
        self.ip("hub", "link set lan up")
        for number, name in enumerate(("a", "b", "o"), 1):
            self.ip("hub", f"link add p{number} type veth peer name lan0 netns {self.space(name)}")
            self.ip("hub", f"link set p{number} master lan up")
            self.ip(name, f"address add 10.77.0.{number}/24 dev lan0")
            self.ip(name, "link set lan0 up")
        self.sh(f"ip netns exec {self.space('o')} tc qdisc add dev lan0 root tbf rate {options.uplink}mbit burst 64kb latency 50ms")
        with open(f"{self.dir}/nginx.conf", "w", encoding="ascii") as out:
            out.write(NGINX.format(self.dir))
        self.start("o", "nginx", "-c", f"{self.dir}/nginx.conf")
        for name in ("a", "b"):
            with open(f"{self.dir}/{name}.toml", "w", encoding="ascii") as out:
                out.write(f'directory = "{self.dir}/store-{name}"\ncapacity = "8GB"\n{ROUTE}')
            self.start(name, options.bin, "--neighbours", "--quiet", f"{self.dir}/{name}.toml")
        for _ in range(100):
            if self.numbers("b").get("neighbours"):
                return
            time.sleep(0.1)
        raise SystemExit("the caches do not find each other")

    def space(self, name):
        return f"an{os.getpid()}{name}"

    def sh(self, words):
        subprocess.run(words.split(), check=True)

    def ip(self, name, words):
        self.sh(f"ip -n {self.space(name)} {words}")

    def command(self, name, *argv):
        return ["ip", "netns", "exec", self.space(name), *argv]

    def start(self, name, *argv):
        self.children.append(subprocess.Popen(self.command(name, *argv), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def get(self, name, path):
        """Seconds to the last and to the first byte, bytes, status."""
        words = ["curl", "-s", "-o", "/dev/null", "-w", "%{time_total} %{time_starttransfer} %{size_download} %{http_code}"]
        said = subprocess.run(self.command(name, *words, f"http://127.0.0.1:8470{path}"), check=False, capture_output=True, text=True)
        total, first, size, status = said.stdout.split()
        return {"seconds": float(total), "first_s": float(first), "bytes": int(size), "status": int(status)}

    def numbers(self, name):
        said = subprocess.run(self.command(name, "curl", "-s", "http://127.0.0.1:8470/status"), check=False, capture_output=True, text=True)
        return json.loads(said.stdout) if said.stdout else {}

    def blob(self, length):
        body = os.urandom(length)
        name = f"sha256:{hashlib.sha256(body).hexdigest()}"
        with open(os.path.join(self.blobs, name), "wb") as out:
            out.write(body)
        return f"/v2/a/blobs/{name}"

    def close(self):
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.wait()
        for name in ("hub", "a", "b", "o"):
            subprocess.run(["ip", "netns", "del", self.space(name)], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="target/release/anabranch-cache")
    parser.add_argument("--uplink", type=int, default=100, help="Mbit/s of the origin's link")
    parser.add_argument("--mb", type=int, default=100, help="length of an object")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print each run as a line of JSON")
    options = parser.parse_args()
    if os.geteuid():
        print("root is needed, for namespaces", file=sys.stderr)
        return 1
    options.bin = os.path.abspath(options.bin)
    rows = {"from the origin": [], "from the neighbour": [], "stored": [], "in the origin only, all alive": [], "the neighbour is dead": []}
    lan = Lan(options)
    try:
        def note(row, run):
            rows[row].append(run)
            if options.json:
                print(json.dumps({"row": row, **run}), flush=True)

        for _ in range(options.runs):
            path = lan.blob(options.mb * 1_000_000)
            stored = lan.numbers("a")["objects"]
            note("from the origin", lan.get("a", path))
            while lan.numbers("a")["objects"] == stored:
                time.sleep(0.05)
            note("from the neighbour", lan.get("b", path))
            note("stored", lan.get("a", path))
            note("in the origin only, all alive", lan.get("b", lan.blob(1_000)))
            os.remove(os.path.join(lan.dir, "www" + path))
        shared = lan.numbers("b")
        lan.ip("hub", "link set p1 down")
        for _ in range(max(options.runs, 3)):
            note("the neighbour is dead", lan.get("b", lan.blob(1_000)))
    finally:
        lan.close()
    print(f"| an object of {options.mb} MB; origin behind {options.uplink} Mbit/s | s, median | longest | first byte, s |\n| --- | ---: | ---: | ---: |")
    for row in ("from the origin", "from the neighbour", "stored"):
        took = [run["seconds"] for run in rows[row]]
        first = statistics.median(run["first_s"] for run in rows[row])
        print(f"| {row} | {statistics.median(took):.2f} | {max(took):.2f} | {first:.3f} |")
    print("\n| an object of 1 KB that no neighbour has | ms, each request |\n| --- | --- |")
    for row in ("in the origin only, all alive", "the neighbour is dead"):
        print(f"| {row} | {', '.join(format(1e3 * run['seconds'], '.1f') for run in rows[row])} |")
    print(f"\n{shared['from_neighbours']} of {options.runs} objects came from the neighbour, {shared['fetched_bytes']} bytes from the origin.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
