#!/usr/bin/env python3
"""Subflows of Linux's MPTCP beside one TCP flow: what they take, what they lose, and why. Two of them, but in `coupling`, `step` and `jitter`.

    sudo anabranch kernel load cubic-coupled nmcc lia  # what is not loaded loses its rows
    sudo chrt -r 5 python3 bench/subflows.py --bin target/release/anabranch [--only coupling,step,apart] [--runs 6]
    sudo chrt -r 5 python3 bench/subflows.py --trace --only cause  # counts acknowledgements, needs clang and libbpf
    python3 bench/subflows.py --sim --only coupling,step,tied    # the same in the simulator

One bottleneck of 20 Mbit/s with a round trip of 20 ms and a queue of one product of both, drop-tail unless a row says otherwise.
Hosts and links are `anabranch lab up`; sockets are the kernel's; every receiver reads at once. Beside each row stands its
control: the same links with as many TCP flows in place of the subflows. A run is 24 s, of which the first five do not count. The
share is of what crossed the bottleneck in packets of 1,500 bytes (TCP brings 1,448 of them, MPTCP 1,428).

In a real-time class (chrt), as others would make the links late. Standard library only.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

sys.dont_write_bytecode = True
import markup  # noqa: E402
from stack import Failed, Lab  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
RATE_BITS = 20e6
RTT_MS, THERE_MS = 20, 5
BEGIN_S, END_S = 5, 24
TCP, MPTCP = 6, 262
#: Flows that are not the one beside, by their number.
NAMES = "abcd"
#: TCP payload of a packet.
PAYLOAD = {TCP: 1448, MPTCP: 1428}
#: The port of the one flow's receiver is this much above that of the others.
BESIDE = 1

RECEIVE = """
import json, socket, sys, time
protocol, port, begin, end = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", port)); s.listen(4)
c, _ = s.accept(); room = bytearray(1 << 18); total, seen, marks = 0, [], [begin, end]
while marks and (n := c.recv_into(room)):
    while marks and time.monotonic() >= marks[0]:
        seen.append(total); marks.pop(0)
    total += n
print(json.dumps(seen))
"""
SEND = """
import json, socket, sys, time
protocol, port, to, cc, start, begin, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], *map(float, sys.argv[5:])

def segments():
    names, numbers = (line.split() for line in open("/proc/self/net/snmp") if line.startswith("Tcp:"))
    return [int(numbers[names.index(name)]) for name in ("OutSegs", "RetransSegs")]

time.sleep(max(0, start - time.monotonic()))
while True:
    c = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol); c.setsockopt(socket.IPPROTO_TCP, 13, cc.encode())
    try: c.connect((to, port)); break
    except ConnectionRefusedError: time.sleep(0.05)
data, seen, marks = bytes(1 << 15), [], [begin, end - 1]
while marks:
    c.sendall(data)
    if time.monotonic() >= marks[0]:
        seen.append(segments()); marks.pop(0)
print(json.dumps([after - before for before, after in zip(*seen)]), flush=True)
try:
    while True: c.sendall(data)
except OSError: pass
"""


class Links:
    """The bottleneck's queue, and of each path its delays in ms: data go there in 5, acknowledgements come back in 15, unless
    said otherwise. `held`: those of the second wait for up to so much. `tick`: those of all but the last path come back in
    steps of so much, of the second so much later."""

    def __init__(self, queue="", jitter=0, held=0, tick=None, tock=0):
        self.queue, self.jitter, self.held, self.tick, self.tock = queue, jitter, held, tick, tock

    def toml(self, count, mptcp, scratch, ours=None, beside=None):
        """`mptcp`: these many are subflows of one connection, not flows of their own. For the simulator: who controls them."""
        text = 'title = "subflows"\nduration = "60 s"\n'
        text += f'[link.bottleneck]\nrate = "20 Mbit/s"\nqueue = "{RTT_MS} ms"\n{self.queue}\n'
        if self.tick:
            with open(os.path.join(scratch, "ticks"), "w", encoding="ascii") as ticks:
                ticks.write(f"{self.tick}\n" * 64)
        paths = []
        for no in range(count + 1):
            after, held = (self.tock, self.held) if no == 1 else (0, 0)
            back = [f"back-{no}"]
            text += f'[link.there-{no}]\ndelay = "{THERE_MS} ms"\njitter = "{self.jitter} ms"\n'
            text += f'[link.back-{no}]\ndelay = "{RTT_MS - THERE_MS - after} ms"\njitter = "{held} ms"\n'
            if self.tick and no < count:
                back += [f"tick-{no}", f"after-{no}"]
                text += f'[link.tick-{no}]\ntrace = "{scratch}/ticks"\n[link.after-{no}]\ndelay = "{after} ms"\n'
            paths.append(f'{{ via = ["there-{no}", "bottleneck"], back = {json.dumps(back)}, rtt = "{RTT_MS} ms" }}')
        flows = {"a": paths[:count]} if mptcp else {name: [path] for name, path in zip(NAMES[:count], paths)}
        for name, of in {**flows, "z": paths[count:]}.items():
            text += f"[flow.{name}]\npaths = [{', '.join(of)}]\n"
            if ours:
                text += f'start_within = "1 s"\ncontroller = "{beside if name == "z" else ours}"\n'
        return text


#: Paths as they are on a desk: nothing between the flows but the bottleneck.
PLAIN = Links()
#: The acknowledgements of the second, and of nobody else, are held back by up to 4 ms.
HELD = Links(held=4)
#: Acknowledgements of these come back at the same ticks of 2 ms, or at ticks in turn.
TIED, IN_TURN = Links(tick=2), Links(tick=2, tock=1)
#: Data of each flow is held back by up to a millisecond, or two: a packet takes 0.6 of them.
OUT_OF_STEP, JITTER = Links(jitter=1), Links(jitter=2)
#: Drops that go by chance: one in fifty while more than a third of the queue is full.
RANDOM = Links(queue="random = { band = 22, drop = 0.02 }")


class Row:
    """What is sent: `mptcp` subflows of one connection, else connections of `protocol`, coupled if `across`; `count` of them.

    `pacing`: the rate at which Linux paces them, in % of window/RTT (120 is its own), in congestion avoidance."""

    def __init__(self, group, name, links, cc, mptcp=False, protocol=TCP, beside="cubic", across=False, pacing=None,
                 count=2):
        self.group, self.name, self.links, self.cc, self.count = group, name, links, cc, count
        self.pacing, self.across, self.mptcp, self.protocol, self.beside = pacing, across, mptcp, MPTCP if mptcp else protocol, beside


def rows():
    """All that is measured."""
    both = lambda group, name, links, cc, **more: [
        Row(group, f"{name}: two TCP", links, cc, **more),
        Row(group, f"{name}: two subflows", links, cc, mptcp=True, **more)]
    table = []
    for group, name, links in (("coupling", "", PLAIN), ("step", "a jitter of 1 ms, ", OUT_OF_STEP)):
        for count in range(1, len(NAMES) + 1):
            table.append(Row(group, f"{name}control: {count} TCP", links, "cubic", count=count))
            for cc in ("cubic", "cubic_coupled", "nmcc", "lia"):
                table.append(Row(group, f"{name}{count} subflow{'s' * (count > 1)}", links, cc, mptcp=True, count=count))
    for count in range(2, len(NAMES) + 1):
        table.append(Row("jitter", f"a jitter of 2 ms, control: {count} TCP", JITTER, "cubic", count=count))
        table.append(Row("jitter", f"a jitter of 2 ms, {count} subflows", JITTER, "cubic_coupled", mptcp=True, count=count))
    for cc in ("cubic", "reno"):
        table += both("cause", "as it is", PLAIN, cc, beside=cc)
        table.append(Row("cause", "as it is: two connections of one subflow", PLAIN, cc, protocol=MPTCP, beside=cc))
    for cc in ("cubic", "reno"):
        table += both("apart", "acknowledgements of one held by up to 4 ms", HELD, cc, beside=cc)
        table.append(Row("tied", "acknowledgements every 2 ms, in turn: two TCP", IN_TURN, cc, beside=cc))
        table.append(Row("tied", "acknowledgements every 2 ms, together: two TCP", TIED, cc, beside=cc))
    for cc in ("cubic", "reno"):
        table += both("random", "random drops", RANDOM, cc, beside=cc)
    for cc in ("cubic_coupled", "nmcc"):
        table.append(Row("random", "random drops: two subflows", RANDOM, cc, mptcp=True))
    for group, name, links in (("across", "", PLAIN), ("across-step", "a jitter of 1 ms: ", OUT_OF_STEP)):
        for cc in ("cubic_coupled", "nmcc"):
            table.append(Row(group, f"{name}two TCP, coupled", links, cc, across=True))
        table.append(Row(group, f"{name}two connections of one subflow, coupled", links, "cubic_coupled", protocol=MPTCP,
                         across=True))
    for links, name in ((PLAIN, ""), (OUT_OF_STEP, "a jitter of 1 ms, ")):
        for pacing in (100, 150, 200):
            table.append(Row("pacing", f"{name}paced at {pacing} %: two subflows", links, "cubic_coupled", mptcp=True,
                             pacing=pacing))
    table.append(Row("alone", "two TCP that are alone, beside the kernel's CUBIC", PLAIN, "cubic_coupled"))
    return table


class Trace:
    """What acks.bpf.c counts, by the port of a receiver."""

    KINDS = ("own", "fresh", "own_together", "fresh_together")
    NAMES = ("acks", "acks_read", "acks_together", "acks_together_read", "sends", "sends_together",
             *(f"packets_{kind}" for kind in KINDS), *(f"lost_{kind}" for kind in KINDS), *(f"acked_{most}" for most in (1, 2, 4, 8, 16, "more")),
             *(f"late_{most}" for most in ("0.1", "0.3", "0.6", "1.2", "5", "more")))
    #: Those of a reader, then those that give a subflow data.
    FUNCTIONS = ("mptcp_cleanup_rbuf", "tcp_cleanup_rbuf", "__mptcp_subflow_push_pending", "__mptcp_push_pending",
                 "tcp_sendmsg_locked")

    def __init__(self):
        self.libbpf = ctypes.CDLL("libbpf.so.1", use_errno=True)
        compiled = tempfile.NamedTemporaryFile(suffix=".o")
        subprocess.run(["clang", "--target=bpf", "-mcpu=v3", "-O2", "-g", "-c", os.path.join(HERE, "acks.bpf.c"), "-o",
                        compiled.name], check=True)
        call = lambda name, *args: self._pointer(name)(*args)
        self.object = ctypes.c_void_p(call("bpf_object__open_file", compiled.name.encode(), None))
        if self.libbpf.bpf_object__load(self.object):
            sys.exit("the kernel does not take acks.bpf.c")
        program, self.links = None, []
        while program := call("bpf_object__next_program", self.object, ctypes.c_void_p(program)):
            self.links.append(call("bpf_program__attach", ctypes.c_void_p(program)))
        self.counts = self._map("counts")
        functions = (ctypes.c_uint64 * (2 * len(self.FUNCTIONS)))()
        for no, name in enumerate(self.FUNCTIONS):
            functions[no], functions[no + len(self.FUNCTIONS)] = self._place(name)
        self._set(self._map("functions"), 0, functions)

    def _pointer(self, name):
        function = getattr(self.libbpf, name)
        function.restype = ctypes.c_void_p
        return function

    def _map(self, name):
        return self.libbpf.bpf_object__find_map_fd_by_name(self.object, name.encode())

    def _set(self, fd, key, value):
        if self.libbpf.bpf_map_update_elem(fd, ctypes.byref(ctypes.c_uint32(key)), ctypes.byref(value), ctypes.c_uint64(0)):
            raise Failed("a map of acks.bpf.c takes no value")

    @staticmethod
    def _place(name):
        """Where a function of the kernel begins and ends."""
        lines = (line.split()[:3] for line in open("/proc/kallsyms"))
        places = sorted((int(at, 16), of) for at, kind, of in lines if kind in "tT")
        no = next(no for no, (_, of) in enumerate(places) if of == name)
        return places[no][0], next(at for at, _ in places[no:] if at > places[no][0])

    def reset(self, port):
        self._set(self.counts, port, (ctypes.c_uint64 * len(self.NAMES))())

    def read(self, port):
        value = (ctypes.c_uint64 * len(self.NAMES))()
        self.libbpf.bpf_map_lookup_elem(self.counts, ctypes.byref(ctypes.c_uint32(port)), ctypes.byref(value))
        return dict(zip(self.NAMES, value))


def measure(binary, row, run, port, trace):
    """One run: share, use of the link, loss of ours and of the one."""
    name = f"s{os.getpid()}-{port}"
    chance = random.Random(run)
    scratch = tempfile.mkdtemp(prefix=f"anabranch-{name}-")
    with closing(Lab(binary, name, row.links.toml(row.count, row.mptcp, scratch))) as lab:
        zero = time.monotonic() + 3
        begin, end = zero + BEGIN_S, zero + END_S
        ours = ["a"] if row.mptcp else list(NAMES[:row.count])
        receivers, senders = {}, {}
        rules = [f"{flow}.tx" for flow in ours if row.across]
        for host in rules:
            lab.run(host, lab.binary, "kernel", "group", f"all={port}")
        for flow in ours if row.pacing else ():
            lab.run(f"{flow}.tx", "sh", "-c", f"echo {row.pacing} > /proc/sys/net/ipv4/tcp_pacing_ca_ratio")
        for number, flow in enumerate([*ours, "z"], 1):
            protocol, cc, to = (TCP, row.beside, port + BESIDE) if flow == "z" else (row.protocol, row.cc, port)
            receivers[flow] = lab.start(f"{flow}.rx", sys.executable, "-c", RECEIVE, protocol, to, begin, end,
                                        stdout=subprocess.PIPE, text=True)
            senders[flow] = lab.start(f"{flow}.tx", sys.executable, "-c", SEND, protocol, to, f"10.{number}.255.1", cc,
                                      zero + chance.random(), begin, end, stdout=subprocess.PIPE, text=True)
        time.sleep(max(0, begin - time.monotonic()))
        for of in (port, port + BESIDE) if trace else ():
            trace.reset(of)
        if row.mptcp:
            lab.has_controller("a.tx", "dport", port, row.cc, row.count)
        time.sleep(max(0, end - time.monotonic() - 0.5))
        counted = {of: trace.read(port + of) for of in (0, BESIDE)} if trace else {}
        got, sent = {}, {}
        for flow, child in receivers.items():
            text = child.communicate(timeout=20)[0]
            seen = json.loads(text or "[]")
            if len(seen) != 2:
                raise Failed(f"{name}: {flow} has not received to the end: {seen}")
            sent[flow] = json.loads(senders[flow].stdout.readline())
            got[flow] = (seen[1] - seen[0]) / PAYLOAD[TCP if flow == "z" else row.protocol] * 1500
        late = bool(lab.state()["faults"])
        for host in rules:
            lab.run(host, lab.binary, "kernel", "group", "--clear", "all")
    shutil.rmtree(scratch, ignore_errors=True)
    loss = lambda flows: 100 * sum(sent[f][1] for f in flows) / sum(sent[f][0] for f in flows)
    whole = sum(got.values())
    return {"share": 100 * (whole - got["z"]) / whole, "used": 100 * whole * 8 / (END_S - BEGIN_S) / RATE_BITS,
            "loss": loss(ours), "loss_one": loss(["z"]), "late": late, "trace": counted.get(0, {}), "trace_one": counted.get(BESIDE, {})}


def simulate(binary, row, runs):
    """The same in the simulator, where all flows are packet flows and those that are coupled are one flow's paths."""
    scratch = tempfile.mkdtemp(prefix="anabranch-subflows-")
    ours = row.cc.replace("_", "-")
    both = row.mptcp or row.across
    longer = f'"124 s"\ncount_from = "{BEGIN_S} s"\nseeds = {runs}\ncontrollers = ["{ours}"]'
    text = row.links.toml(row.count, both, scratch, ours, row.beside).replace('"60 s"', longer, 1)
    flows = json.dumps(["a"] if both else list(NAMES[:row.count]))
    path = os.path.join(scratch, "subflows.toml")
    with open(path, "w", encoding="utf-8") as out:
        out.write(f'{text}[[measure]]\nmetric = "share"\nkind = "share"\nflows = {flows}\n')
    told = subprocess.run([binary, "lab", "run", path], capture_output=True, text=True)
    shutil.rmtree(scratch, ignore_errors=True)
    share = next((line.split(ours, 1)[1].strip() for line in told.stdout.splitlines() if line.startswith("share")), None)
    return [row.name, row.cc, share or told.stderr.strip()[-100:]]


def show(row, runs):
    """A line of the table."""
    of = lambda key: [run[key] for run in runs]
    spread = statistics.stdev(of("share")) if len(runs) > 1 else 0
    mean = lambda key: f"{statistics.mean(of(key)):.2f}"
    line = [row.name, row.cc, f"{statistics.mean(of('share')):.1f}", f"{spread:.1f}", len(runs), mean("loss"), mean("loss_one"),
            f"{statistics.mean(of('used')):.1f}", sum(of("late"))]
    if runs[0]["trace"]:
        total = lambda *names: sum(run["trace"][name] for run in runs for name in names)
        per = lambda part, whole: f"{100 * total(*part) / max(1, total(*whole)):.2f}"
        packets, lost = ([f"{what}_{kind}" for kind in Trace.KINDS] for what in ("packets", "lost"))
        line += [per([part], ["acks"]) for part in ("acks_read", "acks_together", "acks_together_read")]
        line += [per(packets[2:], packets), per(lost[2:], packets[2:]), per(packets[1::2], packets), per(lost[1::2], packets[1::2]),
                 per(lost[:1], packets[:1]), per(["late_5", "late_more"], ["acks"])]
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "target", "release", "anabranch"))
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=4, help="runs side by side")
    parser.add_argument("--only", help="groups of rows: " + ", ".join(dict.fromkeys(row.group for row in rows())))
    parser.add_argument("--cc", help="rows with these controllers only, as Linux calls them")
    parser.add_argument("--trace", action="store_true", help="count acknowledgements and what made them")
    parser.add_argument("--sim", action="store_true", help="in the simulator, with as many seeds")
    parser.add_argument("--json", metavar="FILE", help="every run")
    options = parser.parse_args()
    table = [row for row in rows() if not options.only or row.group in options.only.split(",")]
    table = [row for row in table if not options.cc or row.cc in options.cc.split(",")]
    if options.sim:
        told = [simulate(os.path.abspath(options.bin), row, options.runs) for row in table]
        print(markup.table(["flows beside one", "controller", "share %, 95 %"], told))
        return
    if os.geteuid():
        sys.exit("skipped: root is needed for namespaces and TUN devices")
    listed = open(AVAILABLE).read().split()
    table = [row for row in table if row.cc in listed]
    trace = Trace() if options.trace else None
    results, lock = {id(row): [] for row in table}, threading.Lock()

    def work(no):
        run, row = divmod(no, len(table))
        row = table[row]
        try:
            measured = measure(os.path.abspath(options.bin), row, run, 20_000 + 2 * no, trace)
        except (Failed, OSError, ValueError, subprocess.SubprocessError) as e:
            print(f"# failed: {row.name}: {str(e)[-200:]}", file=sys.stderr, flush=True)
            return
        with lock:
            results[id(row)].append(measured)

    # The rows take turns, so that a busy minute hurts them all.
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, range(options.runs * len(table))))
    head = ["flows beside one", "controller", "share %", "sd", "runs", "lost %", "the one loses %", "used %", "runs with late links"]
    if trace:
        head += ["acks of readers %", "acks together %", "of readers %", "packets together %", "lost %", "fresh %", "lost %",
                 "others lost %", "acks late %"]
    print(markup.table(head, [show(row, results[id(row)]) for row in table if results[id(row)]]))
    print(f"load {os.getloadavg()[0]:.1f}; {options.jobs} runs side by side")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump([{"row": row.name, "cc": row.cc, "beside": row.beside, "runs": results[id(row)]} for row in table], out)


if __name__ == "__main__":
    main()
