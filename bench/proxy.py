#!/usr/bin/env python3
"""Measures `anabranch proxy` beside other proxies in one run, and writes tables p1 to p6 (docs/measurements/proxy.md) and bench/results.json.

    sudo python3 bench/proxy.py                  everything, in a quarter of an hour
    sudo python3 bench/proxy.py --only p1,p3     some tables; the others stay as they are
    sudo python3 bench/proxy.py --quick          little of everything, nothing written: does it work?
    python3 bench/proxy.py --draw                measures nothing: makes the tables again from results.json
    sudo python3 bench/proxy.py --json           also prints the raw data of the tables, one object a line

p1 latency     1 KB one after the other, each on a new connection: loopback, and links with C = 20 ms to the proxy and S = 0, 50,
               100 ms from there to the origin
p2 concurrent  1,000 to 10,000 at a time on loopback, each request on a new connection; and on connections that are kept
p3 one flow    1 GB over loopback
p4 idle        connections that do nothing: memory of each
p5 the paper   1 KB, 900 KB and 164 MB over Wi-Fi and LTE (doi 10.1109/ICUFN.2017.7993881, figures 3 to 7)
p6 two links   what one download takes of two links, beside one over MPTCP without a proxy

Peers are unmodified programs: microsocks and dante (Debian packages microsocks, dante-server), hev-socks5-server if it is
installed or --hev names it. They are one process between program and origin; ours are two, whose figures are added, for there is
a link between them. Everything is in namespaces of its own. Loads come from crates/products/proxy/examples/load.rs, which checks every
byte. Root, Linux with MPTCP; Python's standard library.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from contextlib import closing

sys.dont_write_bytecode = True
import compare  # noqa: E402
import proxies  # noqa: E402
import report  # noqa: E402
import testbed  # noqa: E402
from stack import Failed, Lab, ROOT  # noqa: E402

TABLES = ["p1", "p2", "p3", "p4", "p5", "p6"]
ORIGIN_PORT = 8080
#: The first proxy's, and one more for each: below those that the system takes for connections.
PROXY_PORT = 1100
#: Addresses of loopback that origins and sources are spread over, so that ports do not run out.
SPREAD = 32
C_MS = 20
KEEP = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}


class Local(testbed.Place):
    """One namespace whose loopback has it all."""

    def __init__(self):
        self.place = testbed.Loopback().client
        super().__init__(self.place.name)
        self.ip("route", "replace", "local", "127.0.0.0/8", "dev", "lo", "src", "127.0.0.1", "table", "local",
                "congctl", testbed.TCP_CC)
        self.run_quietly(["sysctl", "-qw", "net.ipv4.ip_local_port_range=10000 65535",
                          "net.core.somaxconn=16384", "net.ipv4.tcp_max_syn_backlog=16384"])

    def run_quietly(self, argv):
        subprocess.run(self.command(argv), check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def output(self, argv):
        return subprocess.run(self.command(argv), check=False, capture_output=True, text=True).stdout

    def close(self):
        testbed._drop(self.place)


class Host:
    """A host of a laboratory, as a place."""

    def __init__(self, lab, name):
        self.lab, self.name = lab, name

    def start(self, argv, log, env=None):
        with open(log, "wb") as out:
            return self.lab.start(self.name, *argv, stdout=out, stderr=subprocess.STDOUT,
                                  env={**os.environ, **(env or {})})

    def output(self, argv):
        return self.lab.run(self.name, *argv)

    def command(self, argv):
        return self.lab.command(self.name, *argv)


class Links:
    """Hosts: the program's (`f.tx`), the proxy's (`f.rx`), the origin's behind it, S ms away.

    `links` are (Mbit/s, RTT in ms, queue in ms) of each path between program and proxy. Where S is 0 the origin is on the proxy's host.
    """

    def __init__(self, binary, name, links, s_ms, scratch):
        text = 'title = "bench"\nduration = "60 s"\n[link.wide]\nrate = "2000 Mbit/s"\nqueue = "20 ms"\n'
        paths = []
        for n, link in enumerate(links):
            down, rtt, queue, *up = link
            text += f'[link.d{n}]\nrate = "{down} Mbit/s"\nqueue = "{queue} ms"\n'
            text += f'[link.u{n}]\nrate = "{up[0] if up else down} Mbit/s"\nqueue = "{queue} ms"\n'
            paths.append(f'{{ via = ["u{n}"], back = ["d{n}"], rtt = "{rtt} ms" }}')
        text += f"[flow.f]\npaths = [{', '.join(paths)}]\n"
        if s_ms:
            text += f'[flow.o]\npaths = [{{ via = ["wide"], back = ["wide2"], rtt = "{s_ms} ms" }}]\n'
            text += '[link.wide2]\nrate = "1000 Mbit/s"\nqueue = "100 ms"\n'
        else:
            text = text.replace('[link.wide]\nrate = "2000 Mbit/s"\nqueue = "20 ms"\n', "")
        self.lab = Lab(binary, name, text)
        try:
            self.join(len(links), s_ms)
        except BaseException:
            self.lab.close()
            raise
        self.near, self.far = Host(self.lab, "f.tx"), Host(self.lab, "f.rx")
        external = "192.168.9.1" if s_ms else "10.1.255.1"
        self.site = proxies.Site(self.near, self.far, "10.1.255.1", external, ["10.0.0.0/8", "192.168.9.0/24"], scratch)
        self.origin_host = Host(self.lab, "o.rx" if s_ms else "f.rx")
        self.origin = f"{'10.2.255.1' if s_ms else '10.1.255.1'}:{ORIGIN_PORT}"
        self.place = self.near

    def join(self, paths, s_ms):
        """Puts the origin's network behind the proxy's host, and the machine's own sizes of buffers everywhere."""
        run = self.lab.run
        hosts = ["f.tx", "f.rx"] + (["o.tx", "o.rx"] if s_ms else [])
        if s_ms:
            pids = [self.lab.start(host, "sleep", "100000").pid for host in ("f.rx", "o.tx")]
            time.sleep(0.3)
            subprocess.run(["ip", "link", "add", "j0", "netns", str(pids[0]), "type", "veth", "peer", "name", "j1",
                            "netns", str(pids[1])], check=True)
            for host, device, address in (("f.rx", "j0", "192.168.9.1/24"), ("o.tx", "j1", "192.168.9.2/24")):
                run(host, "ip", "addr", "add", address, "dev", device)
                run(host, "ip", "link", "set", device, "up")
                run(host, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            for p in range(paths):
                run("f.tx", "ip", "route", "add", "10.2.0.0/16", "dev", f"p{p}", "src", f"10.1.{p}.1", "metric", str(100 + p))
                if paths > 1:
                    run("f.tx", "ip", "route", "add", "10.2.0.0/16", "dev", f"p{p}", "table", str(100 + p))
            run("f.rx", "ip", "route", "add", "10.2.0.0/16", "via", "192.168.9.2")
            run("o.tx", "ip", "route", "add", "10.1.0.0/16", "via", "192.168.9.1")
            for network in ("10.1.0.0/16", "192.168.9.0/24"):
                run("o.rx", "ip", "route", "add", network, "dev", "p0")
        for host in hosts:
            self.lab.controller(host, testbed.TCP_CC)
            for name in ("tcp_rmem", "tcp_wmem"):
                with open(f"/proc/sys/net/ipv4/{name}", encoding="ascii") as own:
                    run(host, "sysctl", "-qw", f"net.ipv4.{name}={' '.join(own.read().split())}")
            run(host, "ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8")

    def close(self):
        self.lab.close()


class Bench:
    def __init__(self, options):
        self.options = options
        self.scratch = testbed.scratch()
        self.binary, self.load = options.bin, options.load
        self.all = proxies.all_of(self.binary, options.hev)
        self.serial = 0

    def words(self, to, via=None, **more):
        words = [self.load, "get", f"to={to}"] + ([f"via={via}"] if via else [])
        return words + [key if value is True else f"{key}={value}" for key, value in more.items() if value is not False]

    def get(self, place, to, via=None, meter=None, **more):
        """Runs the load generator to its end. With what it says: what `meter` said as it began to count, and as it ended."""
        with open(os.path.join(self.scratch, f"load-{threading.get_ident()}"), "w+", encoding="utf-8") as said:
            child = subprocess.Popen(place.command(self.words(to, via, **more)), stdout=subprocess.PIPE, stderr=said, text=True)
            killer = threading.Timer(testbed.RUN_LIMIT_S, child.kill)
            killer.start()
            try:
                meters, run = [meter(child.pid) if meter else None] * 2, None
                for line in child.stdout:
                    if line.startswith("{"):
                        run = json.loads(line)
                    elif meter:
                        meters[line.startswith("ends")] = meter(child.pid)
                    if meter and run and not more.get("seconds"):
                        meters[1] = meter(child.pid)
                child.wait()
            finally:
                killer.cancel()
                child.kill()
                child.wait()
            if child.returncode or not run:
                said.seek(0)
                raise Failed(f"load: exit {child.returncode}: {said.read().strip()[-300:]}")
            if meter:
                run["meters"] = meters
            return run

    def origin(self, place, listen, *more):
        child = place.start([self.load, "origin", f"listen={listen}", *more], os.path.join(self.scratch, "origin.log"))
        if not proxies.wait_port(place, listen):
            raise Failed(f"the origin at {listen} does not start")
        return child

    def local_site(self, place):
        return proxies.Site(place, place, "127.0.0.1", "127.0.0.1", ["127.0.0.0/8"], self.scratch)

    def proxy(self, proxy, site, place):
        self.serial += 1
        running = proxy.start(site, PROXY_PORT + self.serial)
        if not proxies.wait_port(place, running.address):
            running.close()
            raise Failed(f"{proxy.name} does not listen")
        time.sleep(0.5)
        return running

    def measured(self, running, origin, place, to, **more):
        """A load, with the CPU time of each process of the proxy, and of what is beside it, while it counted."""
        def meter(load):
            busy_s, all_s = testbed.machine_busy_s()
            parts = running.cpu_s() if running else {}
            return {"parts": parts, "all_s": all_s, "pss": running.pss() if running else 0,
                    "others_s": busy_s - sum(parts.values()) - proxies.cpu(origin.pid) - proxies.cpu(load)}

        run = self.get(place, to, running and running.address, meter=meter, **more)
        before, after = run.pop("meters")
        run["cpu_s"] = {part: after["parts"][part] - before["parts"][part] for part in after["parts"]}
        run["others_percent"] = max(0, 100 * (after["others_s"] - before["others_s"]) / max(after["all_s"] - before["all_s"], 0.01))
        run["pss"] = after["pss"]
        return run

    def each(self, work):
        """`work(name, proxy)` for every proxy and for none; a failure is a row that says why."""
        rows = {}
        for name, proxy in [("direct", None)] + [(proxy.name, proxy) for proxy in self.all]:
            if not (name == "direct" or not self.options.row or any(row in name for row in self.options.row)):
                continue
            try:
                rows[name] = work(name, proxy)
            except (Failed, OSError, subprocess.SubprocessError) as why:
                rows[name] = [{"failed": str(why)}]
            print(f"  {name}: {brief(rows[name])}", flush=True)
        return rows

    # The tables.

    def latency(self):
        count = 20 if self.options.quick else 100
        beds = []
        with closing(Local()) as place:
            origin = self.origin(place, f"127.0.0.1:{ORIGIN_PORT}")
            site = self.local_site(place)

            def local(_name, proxy):
                running = self.proxy(proxy, site, place) if proxy else None
                try:
                    to = f"127.0.0.1:{ORIGIN_PORT}"
                    self.get(place, to, running and running.address, count=5 * count)
                    return [self.measured(running, origin, place, to, count=20 * count)]
                finally:
                    if running:
                        running.close()

            beds.append({"name": "loopback", "s_ms": None, "runs": self.each(local)})
            testbed.stop([origin])
        results, threads = {}, []

        def far(s_ms):
            try:
                with closing(Links(self.binary, f"proxy{os.getpid()}-s{s_ms}", [(100, C_MS, 50)], s_ms, self.scratch)) as bed:
                    origin = self.origin(bed.origin_host, f"0.0.0.0:{ORIGIN_PORT}")

                    def one(_name, proxy):
                        running = self.proxy(proxy, bed.site, bed.near if proxy.hops == 2 else bed.far) if proxy else None
                        try:
                            via = running and running.address
                            # Twice: what a cookie or a pool learns counts as known.
                            self.get(bed.place, bed.origin, via, count=5)
                            return [self.measured(running, origin, bed.place, bed.origin, count=count)]
                        finally:
                            if running:
                                running.close()

                    results[s_ms] = {"name": f"S = {s_ms} ms", "s_ms": s_ms, "runs": self.each(one)}
            except (Failed, OSError) as why:
                print(f"  S = {s_ms} ms failed: {why}", flush=True)

        for s_ms in (0, 50, 100):
            threads.append(threading.Thread(target=far, args=(s_ms,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        return {"c_ms": C_MS, "beds": beds + [results[s] for s in sorted(results)]}

    def concurrent(self):
        warm, seconds = (1, 1) if self.options.quick else (1, 3)
        beds = []
        with closing(Local()) as place:
            origin = self.origin(place, f"0.0.0.0:{ORIGIN_PORT}")
            site = self.local_site(place)
            for kept, sizes in ((False, [1_000, 2_000, 4_000, 10_000]), (True, [1_000, 4_000])):
                found = {size: {} for size in sizes}

                def one(_name, proxy, kept=kept, sizes=sizes, found=found):
                    every = []
                    for size in sizes[:2] if self.options.quick else sizes:
                        # A new one each time: memory is that of this row.
                        running = self.proxy(proxy, site, place) if proxy else None
                        try:
                            run = self.measured(running, origin, place, f"127.3.0.1:{ORIGIN_PORT}", workers=size,
                                                spread=SPREAD, seconds=seconds, warm=warm, keep=kept)
                            run["workers"] = size
                            if running and not running.alive():
                                raise Failed(f"it ended at {size} connections")
                        except (Failed, subprocess.SubprocessError) as why:
                            run = {"failed": str(why), "workers": size}
                        finally:
                            if running:
                                running.close()
                        every.append(run)
                        found[size].setdefault(_name, []).append(run)
                    return every

                print(f"  {'connections that are kept' if kept else 'new connections'}", flush=True)
                self.each(one)
                beds += [{"workers": size, "kept": kept, "warm": warm, "runs": runs} for size, runs in found.items() if runs]
            testbed.stop([origin])
        return {"beds": beds}

    def flow(self):
        size, times = (100_000_000, 1) if self.options.quick else (1_000_000_000, 3)
        with closing(Local()) as place:
            origin = self.origin(place, f"0.0.0.0:{ORIGIN_PORT}")
            site = self.local_site(place)

            def one(_name, proxy):
                running = self.proxy(proxy, site, place) if proxy else None
                try:
                    return [self.measured(running, origin, place, f"127.0.0.1:{ORIGIN_PORT}", bytes=size, up=up) | {"up": up}
                            for _ in range(times) for up in (False, True)]
                finally:
                    if running:
                        running.close()

            rows = self.each(one)
            testbed.stop([origin])
        return {"bytes": size, "runs": rows}

    def idle(self):
        # Descriptors are the limit: a proxy of one process has two of each connection.
        most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500, 100_000)
        counts = [500] if self.options.quick else [4_000, most // 2, most]
        beds = []
        with closing(Local()) as place:
            site = self.local_site(place)
            for count in counts:
                def one(_name, proxy, count=count):
                    origin = self.origin(place, f"0.0.0.0:{ORIGIN_PORT}")
                    running = self.proxy(proxy, site, place) if proxy else None
                    before, began = running.pss() if running else 0, time.monotonic()
                    child = subprocess.Popen(place.command(self.words(
                        f"127.3.0.1:{ORIGIN_PORT}", running and running.address, workers=count, spread=SPREAD, idle=True,
                        bytes=100)), **KEEP)
                    killer = threading.Timer(120, child.kill)
                    killer.start()
                    try:
                        said = child.stdout.readline()
                        if not said:
                            raise Failed("they did not come in time")
                        run = json.loads(said) | {"took_s": time.monotonic() - began}
                        time.sleep(1)
                        cpu = running.cpu_s() if running else {}
                        time.sleep(2)
                        run["idle_cpu_percent"] = 50 * (sum(running.cpu_s().values()) - sum(cpu.values())) if running else 0
                        run["pss"] = running.pss() if running else 0
                        run["pss_before"] = before
                        return [run | {"others_percent": 0}]
                    finally:
                        killer.cancel()
                        child.kill()
                        child.wait()
                        if running:
                            running.close()
                        testbed.stop([origin])

                print(f"  {count} connections", flush=True)
                beds.append({"count": count, "runs": self.each(one)})
        return {"beds": beds}

    def over_links(self, name, links, s_ms, work):
        with closing(Links(self.binary, f"proxy{os.getpid()}-{name}", links, s_ms, self.scratch)) as bed:
            self.origin(bed.origin_host, f"0.0.0.0:{ORIGIN_PORT}", "mptcp")
            before = testbed.machine_busy_s()
            found = work(bed)
            found["faults"] = bed.lab.state()["faults"]
            after = testbed.machine_busy_s()
            found["busy_percent"] = 100 * (after[0] - before[0]) / (after[1] - before[1])
            return found

    def paper(self):
        long = 8_200_000 if self.options.quick else 164_000_000
        short, middle = (5, 3) if self.options.quick else (40, 15)
        wifi, lte = (36, 20, 100), (26, 50, 100)
        rows = {}

        def sizes(bed, via=None, **more):
            """1 KB on a new connection, and on one that is there; then the longer ones, each on a new one."""
            self.get(bed.place, bed.origin, via, count=3, **more)
            return {
                "1 KB": self.get(bed.place, bed.origin, via, count=short, bytes=1_000, **more),
                "1 KB kept": self.get(bed.place, bed.origin, via, count=short, bytes=1_000, keep=True, **more),
                "900 KB": self.get(bed.place, bed.origin, via, count=middle, bytes=900_000, **more),
                "164 MB": self.get(bed.place, bed.origin, via, count=1, bytes=long, **more)}

        def proxied(bed, proxy):
            running = self.proxy(proxy, bed.site, bed.near if proxy.hops == 2 else bed.far)
            try:
                return sizes(bed, running.address)
            finally:
                running.close()

        ours = self.all[-1]
        jobs = [("WiFi alone", [wifi], 0, sizes), ("LTE alone", [lte], 0, sizes),
                ("MPTCP, direct", [wifi, lte], 0, lambda bed: sizes(bed, mptcp=True)),
                *[(f"proxy +{s} ms", [wifi, lte], s, lambda bed: proxied(bed, ours)) for s in (0, 50, 100)],
                ("WiFi alone +100 ms", [wifi], 100, sizes),
                ("MPTCP, direct +100 ms", [wifi, lte], 100, lambda bed: sizes(bed, mptcp=True))]

        def job(n, name, links, s_ms, work):
            try:
                rows[name] = [self.over_links(f"p{n}", links, s_ms, work)]
            except (Failed, OSError, subprocess.SubprocessError) as why:
                rows[name] = [{"failed": str(why)}]
            print(f"  {name}: {brief_sizes(rows[name][0])}", flush=True)

        self.side_by_side([lambda n=n, j=j: job(n, *j) for n, j in enumerate(jobs)], 3)
        return {"bytes": long, "proxy": ours.name, "runs": {name: rows[name] for name, *_ in jobs}}

    def side_by_side(self, jobs, limit):
        todo = list(reversed(jobs))
        lock = threading.Lock()

        def worker():
            while True:
                with lock:
                    if not todo:
                        return
                    job = todo.pop()
                job()

        threads = [threading.Thread(target=worker) for _ in range(limit)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def aggregate(self):
        seconds, times = (2, 1) if self.options.quick else (10, 3)
        beds = []
        ours = self.all[-1]
        for name, goal, links in (("2 × 500 Mbit/s, 10 ms", 95, [(500, 10, 20)] * 2),
                                  ("2 × 100 Mbit/s, 25 ms", 97, [(100, 25, 25)] * 2),
                                  ("300 Mbit/s, 10 ms + 80 Mbit/s, 30 ms", 95, [(300, 10, 20), (80, 30, 30)])):
            rate = sum(link[0] for link in links)
            size = int(rate * 1e6 / 8 * seconds)

            def one(bed, proxy, size=size):
                running = self.proxy(proxy, bed.site, bed.near) if proxy else None
                try:
                    via, more = (running.address, {}) if running else (None, {"mptcp": True})
                    self.get(bed.place, bed.origin, via, count=3, **more)
                    return self.get(bed.place, bed.origin, via, count=1, bytes=size, **more)
                finally:
                    if running:
                        running.close()

            runs = {}
            for _ in range(times):
                for row, proxy in (("MPTCP, direct", None), (ours.name, ours)):
                    try:
                        run = self.over_links(f"a{len(beds)}", links, 0, lambda bed, proxy=proxy: one(bed, proxy))
                    except (Failed, OSError, subprocess.SubprocessError) as why:
                        run = {"failed": str(why)}
                    runs.setdefault(row, []).append(run)
                    print(f"  {name}: {row}: {json.dumps(run)}", flush=True)
            beds.append({"name": name, "mbit": rate, "goal": goal, "bytes": size, "proxy": ours.name, "runs": runs})
        return {"beds": beds}


def brief(runs):
    def one(run):
        if "failed" in run and isinstance(run["failed"], str):
            return f"failed: {run['failed']}"
        cpu = sum(run.get("cpu_s", {}).values())
        return (f"{run['answered']} in {run['seconds']:.1f} s, p50 {run['p50_us'] / 1e3:.2f} ms, p99 {run['p99_us'] / 1e3:.1f} ms, "
                f"CPU {cpu:.2f} s, {run.get('pss', 0) / 1e6:.1f} MB"
                + (f", failed {run['failed']}" if run["failed"] else ""))
    return " | ".join(map(one, runs))


def brief_sizes(run):
    if "failed" in run:
        return f"failed: {run['failed']}"
    return ", ".join(f"{name} {run[name]['p50_us'] / 1e3:.1f} ms" for name in run if isinstance(run[name], dict))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TABLES), help="tables to measure, with commas")
    parser.add_argument("--row", default="", type=lambda t: [row for row in t.split(",") if row],
                        help="proxies whose name has one of these words in it")
    parser.add_argument("--quick", action="store_true", help="little of everything; writes nothing")
    parser.add_argument("--draw", action="store_true", help="make the tables again from results.json, and end")
    parser.add_argument("--json", action="store_true", help="print the raw data too")
    parser.add_argument("--bin", help="the anabranch binary (default: cargo build --release)")
    parser.add_argument("--load", help="the example `load` (default: cargo build --release)")
    parser.add_argument("--commit", help="what --bin was built from, if not from here")
    parser.add_argument("--note", help="what to say of this run below its tables")
    parser.add_argument("--hev", default="hev-socks5-server", help="hev-socks5-server, if it is not in PATH")
    options = parser.parse_args()
    options.only = [key for key in options.only.split(",") if key in TABLES]
    if not options.commit:
        describe = ["git", "describe", "--always", "--dirty"]
        options.commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return options


def build(options):
    """The programs, built if they were not given."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    for given, argv, path in (("bin", ["-p", "anabranch-cli", "--features", "proxy"], "release/anabranch"),
                              ("load", ["-p", "anabranch-proxy", "--example", "load"], "release/examples/load")):
        if not getattr(options, given):
            subprocess.run(["cargo", "build", "--release", "-q", *argv], cwd=ROOT, check=True)
            setattr(options, given, os.path.join(target, path))
        setattr(options, given, os.path.abspath(getattr(options, given)))


def main():
    options = parse()
    if options.draw:
        results = report.load(ROOT)
        return report.insert(ROOT, {key: report.table(key, results[key]) for key in options.only if key in results})
    if not testbed.IS_ROOT:
        return compare.skip("root is needed for namespaces")
    testbed.install_cleanup()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    build(options)
    bench = Bench(options)
    tables = {"p1": bench.latency, "p2": bench.concurrent, "p3": bench.flow, "p4": bench.idle, "p5": bench.paper,
              "p6": bench.aggregate}
    found = {}
    for key in options.only:
        began = time.monotonic()
        print(f"table {key}", flush=True)
        machine = compare.machine(options.commit) | {"note": options.note, "load": os.getloadavg()[0]}
        found[key] = {**tables[key](), "machine": machine}
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
        if not options.quick and not options.row:
            report.save(ROOT, key, found[key])
        if options.json:
            print(json.dumps({"table": key, **found[key]}), flush=True)
    print()
    for key, result in found.items():
        print(report.table(key, result), end="\n\n")


if __name__ == "__main__":
    main()
