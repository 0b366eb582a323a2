#!/usr/bin/env python3
"""On the real stack, over emulated links: who takes what beside one Linux TCP flow, and how much of two links is used.

    sudo python3 bench/stack.py [--seconds 45] [--runs 2] [--json]

Share: three sources behind one 100 Mbit/s bottleneck (20 ms, queue of one product), fetched by `anabranch get`, aria2 -s3
and aria2 -s16, beside one TCP flow (Reno, then CUBIC) of iperf3: what the TCP flow keeps, in percent of all bytes delivered.
Disjoint: the same three sources over three links of their own: what of the links `get` uses.
Aggregation: one MPTCP connection over two disjoint links of 100 Mbit/s, equal and unequal RTT, NMCC with groups set.

Hosts and links are `anabranch lab up`; everything else is an unmodified program. What a testbed says about fairness counts
only beside its control, two TCP flows against one, which is the last row. Standard library only.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

sys.dont_write_bytecode = True
import markup  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WARM_S = 8

#: TCP payload of a packet that fills the links' MTU.
PAYLOAD = 1448 / 1500


def scenario(links, flows):
    """Of links and flows. A link: its rate in Mbit/s or its trace's file, its queue in ms or as written, perhaps loss in
    percent. A path: its link, its RTT in ms.
    """
    text = 'title = "bench"\nduration = "60 s"\n'
    for name, (rate, queue, *loss) in links.items():
        text += f'[link.{name}]\n' + (f'trace = "{rate}"\n' if isinstance(rate, str) else f'rate = "{rate} Mbit/s"\n')
        text += f'queue = "{queue}"\n' if isinstance(queue, str) else f'queue = "{queue} ms"\n'
        text += f"loss = {loss[0] / 100}\n" if any(loss) else ""
    for name, paths in flows.items():
        paths = ", ".join(f'{{ via = ["{via}"], rtt = "{rtt} ms" }}' for via, rtt in paths)
        text += f"[flow.{name}]\npaths = [{paths}]\n"
    return text


SHARED = scenario({"c": (100, 20)}, {"mm": [("c", 20)] * 3, "sp": [("c", 20)]})
CONTROL = scenario({"c": (100, 20)}, {flow: [("c", 20)] for flow in ("a", "b", "sp")})
DISJOINT = scenario({link: (100, 20) for link in "xyz"}, {"mm": [(link, 20) for link in "xyz"]})
TWO = scenario({"x": (100, 20), "y": (100, 20)}, {"mm": [("x", 20), ("y", 20)]})
SKEWED = scenario({"x": (100, 10), "y": (100, 50)}, {"mm": [("x", 10), ("y", 50)]})

NGINX = """daemon off; master_process off; worker_processes 1; pid {dir}/nginx{n}.pid; error_log stderr error;
events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {dir}; proxy_temp_path {dir};
  fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};
  server {{ listen {listen}; root {root}; }} }}
"""


class Failed(Exception):
    """A program of ours failed, or a condition of a run does not hold: the run is worth nothing."""


def finish(argv):
    """Runs a program to its end and returns what it prints."""
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(argv)}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def write(path, size):
    """A file that no two megabytes of are the same."""
    block = os.urandom(1 << 20)
    with open(path, "wb") as f:
        for number in range(-(-size // len(block))):
            f.write(number.to_bytes(8, "big") + block[8:])
        f.truncate(size)


def all_of(limit, jobs):
    """Calls these, so many at a time; returns how many failed, each having said why."""

    def one(job):
        try:
            job()
            return 0
        except (Failed, OSError, ValueError) as e:
            print(f"# failed: {e}", file=sys.stderr, flush=True)
            return 1

    with ThreadPoolExecutor(limit) as pool:
        return sum(pool.map(one, jobs))


class Lab:
    """One `lab up`, and programs on its hosts; all ended at the end. `seed` decides which packets a link loses."""

    def __init__(self, binary, name, text, seed=1):
        self.binary, self.name, self.running, self.servers = binary, name, [], []
        self.dir = tempfile.mkdtemp(prefix="anabranch-stack-")
        path = os.path.join(self.dir, f"{name}.toml")
        with open(path, "w") as f:
            f.write(text)
        finish([binary, "lab", "up", path, "--name", name, "--seed", str(seed)])

    def command(self, host, *args):
        return [self.binary, "lab", "exec", f"{self.name}/{host}", "--", *map(str, args)]

    def run(self, host, *args):
        return finish(self.command(host, *args))

    def start(self, host, *args, **how):
        said = tempfile.TemporaryFile()
        how = {"stdout": subprocess.DEVNULL, "stderr": said, **how}
        child = subprocess.Popen(self.command(host, *args), start_new_session=True, **how)
        child.said = said
        self.running.append(child)
        return child

    def check(self):
        """Nothing that was started and not waited for has failed so far."""
        for child in self.running:
            if child.poll():
                child.said.seek(0)
                said = child.said.read().decode(errors="replace").strip()
                raise Failed(f"{' '.join(child.args)}: exit status {child.returncode}: {said}")

    def state(self):
        """What its links have carried, and what is wrong with them (`faults`)."""
        states = map(json.loads, finish([self.binary, "lab", "status", "--json"]).splitlines())
        return next(state for state in states if state["name"] == self.name)

    def nginx(self, host, listen, root):
        """A server of one process, whose number is put behind those of `servers`."""
        n = len(self.servers)
        conf, pid = (os.path.join(self.dir, f"nginx{n}.{end}") for end in ("conf", "pid"))
        with open(conf, "w", encoding="ascii") as f:
            f.write(NGINX.format(dir=self.dir, n=n, listen=listen, root=root))
        self.start(host, "nginx", "-c", conf)
        for _ in range(100):
            if os.path.exists(pid) and (number := open(pid).read().strip()):
                self.servers.append(int(number))
                return
            time.sleep(0.05)
            self.check()
        raise Failed(f"nginx at {listen} does not start")

    def received(self, *flows):
        """When, and what each of these flows' receivers has got, in bytes on the wire."""
        read = "import time; print(time.monotonic(), open('/proc/net/dev').read())"
        got = []
        for flow in flows:
            at, text = self.run(f"{flow}.rx", sys.executable, "-c", read).split(" ", 1)
            lines = [line.split() for line in text.splitlines() if line.strip().startswith("p")]
            got.append((float(at), sum(int(words[1]) for words in lines)))
        return got

    def rates(self, seconds, *flows):
        """Bytes a second of these flows over so many seconds, by the clock."""
        before = self.received(*flows)
        time.sleep(seconds)
        after = self.received(*flows)
        self.check()
        return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(before, after)]

    def controller(self, host, cc):
        """The TCP of a host, by its routes: to a namespace's sysctl Linux allows some only."""
        for route in self.run(host, "ip", "-4", "route", "show", "table", "all").splitlines():
            words = [word for word in route.split() if word != "linkdown"]
            if words[0] != "broadcast":
                self.run(host, "ip", "route", "replace", *words, "congctl", cc)

    def has_controller(self, host, side, port, cc, least=1):
        """All connections of a host with this port (`sport`: its own) have this controller, and so many there are."""
        told = self.run(host, "ss", "-tinH", "state", "established", side, "=", f":{port}").splitlines()
        with_it = sum(cc in line.split() for line in told)
        if with_it < least or 2 * with_it != len(told):
            raise Failed(f"{self.name}/{host}: not all connections of {side} {port} have {cc}, or too few: {told}")

    def close(self):
        for child in self.running:
            try:
                os.killpg(child.pid, 9)
            except ProcessLookupError:
                pass
            child.wait()
        subprocess.run([self.binary, "lab", "down", self.name], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)


def tcp(lab, flow, number, cc, seconds):
    lab.start(f"{flow}.rx", "iperf3", "-s", "-1")
    time.sleep(0.4)
    lab.start(f"{flow}.tx", "iperf3", "-c", f"10.{number}.255.1", "-C", cc, "-t", seconds + 30)


def fetch(lab, tool, content):
    if tool == "get":
        out = lab.start("mm.tx", lab.binary, "serve", *[a for p in range(3) for a in ("--listen", f"10.1.{p}.1:26227")],
                        content, stdout=subprocess.PIPE, text=True).stdout
        uri = out.readline().strip()
        time.sleep(0.5)
        sources = [a for p in range(3) for a in ("--from", f"10.1.{p}.1:26227")]
        return lambda *more: lab.start("mm.rx", lab.binary, "get", uri, *sources, *more, "-o", os.path.join(lab.dir, "got"))
    lab.nginx("mm.tx", "8000", os.path.dirname(content))
    urls = [f"http://10.1.{p}.1:8000/{os.path.basename(content)}" for p in range(3)]
    split = tool.split("-s")[1]
    return lambda *more: lab.start("mm.rx", "aria2c", "-q", "-s", split, "-x", "16", "-k", "1M", "-d", lab.dir, "-o", "got", *urls)


def share(binary, content, name, tool, cc, seconds):
    with closing(Lab(binary, name, SHARED)) as lab:
        lab.controller("mm.tx", cc)
        go = fetch(lab, tool, content)
        tcp(lab, "sp", 2, cc, seconds)
        time.sleep(1)
        go()
        time.sleep(WARM_S)
        if tool != "get":
            lab.has_controller("mm.tx", "sport", 8000, cc)
        mm, sp = lab.rates(seconds, "mm", "sp")
        return {"what": f"{tool} beside one {cc}", "kept_percent": 100 * sp / (mm + sp),
                "used_percent": 100 * (mm + sp) * 8 / 100e6}


def control(binary, name, cc, seconds):
    with closing(Lab(binary, name, CONTROL)) as lab:
        for number, flow in enumerate(("a", "b", "sp"), 1):
            tcp(lab, flow, number, cc, seconds)
        time.sleep(WARM_S)
        got = lab.rates(seconds, "a", "b", "sp")
        return {"what": f"control: two {cc} beside one {cc} (33.3)", "kept_percent": 100 * got[2] / sum(got),
                "used_percent": 100 * sum(got) * 8 / 100e6}


def disjoint(binary, content, name, seconds):
    with closing(Lab(binary, name, DISJOINT)) as lab:
        go = fetch(lab, "get", content)
        go("--disjoint")
        time.sleep(WARM_S)
        got = lab.rates(seconds, "mm")[0]
        return {"what": "get over three disjoint links", "used_percent": 100 * got * 8 / 300e6}


MPTCP_PORT = 5555
#: MPTCP over all paths of a sender (IPPROTO_MPTCP is 262). Receives a file. Argument: where to.
RECEIVE = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.setsockopt(1, 2, 1)
s.bind(("0.0.0.0", {MPTCP_PORT})); s.listen(4)
c, _ = s.accept()
with open(sys.argv[1], "wb", buffering=0) as out:
    while data := c.recv(1 << 20): out.write(data)
"""
#: Sends a file, and ends when the receiver has it. Arguments: the file, the congestion control.
SEND = f"""
import socket, sys
c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); c.setsockopt(6, 13, sys.argv[2].encode())
c.connect(("10.1.255.1", {MPTCP_PORT}))
with open(sys.argv[1], "rb", buffering=0) as file:
    while data := file.read(1 << 18): c.sendall(data)
c.shutdown(socket.SHUT_WR); c.recv(1)
"""


def aggregation(binary, name, text, cc, groups, seconds):
    with closing(Lab(binary, name, text)) as lab:
        try:
            for p in range(2 if groups else 0):
                lab.run("mm.tx", binary, "kernel", "group", f"10.1.{p}.1={p + 1}")
            lab.start("mm.rx", sys.executable, "-c", RECEIVE, "/dev/null")
            time.sleep(0.5)
            lab.start("mm.tx", sys.executable, "-c", SEND, "/dev/zero", cc)
            time.sleep(WARM_S)
            got = lab.rates(seconds, "mm")[0]
        finally:
            if groups:
                lab.run("mm.tx", binary, "kernel", "group", "--clear")
        rtt = "10 and 50 ms" if text == SKEWED else "20 ms"
        groups = ", groups set" if groups else ""
        return {"what": f"one MPTCP connection, two links, {rtt}, {cc}{groups}",
                "used_percent": 100 * got * 8 / 200e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target", "release", "anabranch"))
    parser.add_argument("--seconds", type=int, default=45)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--only", default="share,disjoint,aggregation")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("skipped: root is needed for namespaces and TUN devices")
    binary, seconds = os.path.abspath(options.bin), options.seconds
    scratch = tempfile.mkdtemp(prefix="anabranch-stack-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    content = os.path.join(scratch, "content")
    write(content, ((seconds + 60) * 300 // 8) << 20)
    listed = open("/proc/sys/net/ipv4/tcp_available_congestion_control").read().split()
    ours = [cc for cc in ("nmcc", "reno") if cc in listed]
    jobs = []
    if "share" in options.only:
        for cc in ("reno", "cubic"):
            jobs += [(share, (content, f"{tool}-{cc}", tool, cc, seconds)) for tool in ("get", "aria2 -s3", "aria2 -s16")]
            jobs.append((control, (f"control-{cc}", cc, seconds)))
    if "disjoint" in options.only:
        jobs.append((disjoint, (content, "disjoint", seconds)))
    if "aggregation" in options.only:
        for cc in ours:
            groups = cc != "reno"
            jobs += [(aggregation, (f"{cc}-{kind}", text, cc, groups, seconds)) for kind, text in (("two", TWO), ("skewed", SKEWED))]
    rows = {}
    lock = threading.Lock()

    def work(job, args, run):
        name = args[1] if job in (share, disjoint) else args[0]
        changed = [f"s{run}-{name}".replace(" ", "-") if a == name else a for a in args]
        row = job(binary, *changed)
        with lock:
            rows.setdefault(row["what"], []).append(row)

    # Two at a time: each moves up to 300 Mbit/s through this machine.
    failed = all_of(2, [partial(work, *job, run) for run in range(options.runs) for job in jobs])
    shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        print(json.dumps([row for runs in rows.values() for row in runs]))
    else:
        mean = lambda runs, key: f"{sum(row[key] for row in runs) / len(runs):.1f}" if key in runs[0] else ""
        print(markup.table(["what", "TCP keeps %", "links used %", "runs"],
                              [[what, mean(runs, "kept_percent"), mean(runs, "used_percent"), len(runs)]
                               for what, runs in rows.items()]))
    if failed:
        sys.exit(f"{failed} runs failed")


if __name__ == "__main__":
    main()
