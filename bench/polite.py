"""Table j of compare.py: what a call and a curl keep beside a big download, and that limits hold.

One link with a drop-tail queue, emulated (`anabranch lab up`). A call of 50 kbit/s crosses it, whose answers wait in its
queue; in half of the cases a curl too, which began before. Beside them is one program, or nobody. Then `--limit` and
`--via ADDRESS,limit=`: how long a file takes.
"""

import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial

from delay import Part, lasting
from links import CC, Bed, Run, attempt
from report import BACKGROUND, NOBODY, OURS
from stack import Failed

RATE_MBIT, RTT_MS = 20, 30
#: Seconds until whoever comes has its share, and seconds that are measured: several cycles of CUBIC.
WARM_S, SECONDS = 12, 30
#: UDP payload of a packet of the call: 40 of them a second are 50 kbit/s with their headers.
CALL_BYTES, CALL_PORT = 128, 5060
ECHO = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", {CALL_PORT}))
while True: s.sendto(*s.recvfrom(2048))
"""
#: The caller receives over the link. Arguments: whom, for how many seconds. Prints round trips in ms, `inf` for those lost; those
#: of the first second, in which programs start, do not count.
CALL = f"""
import socket, sys, threading, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((sys.argv[1], {CALL_PORT})); s.settimeout(0.5)
seconds, sent, got = float(sys.argv[2]), [], {{}}
last = time.monotonic() + seconds + 2
def listen():
    while time.monotonic() < last:
        try: number = int.from_bytes(s.recv(2048)[:4], "big")
        except OSError: continue
        got.setdefault(number, time.monotonic())
thread = threading.Thread(target=listen); thread.start()
begin = time.monotonic()
for number in range(int(seconds * 40) + 40):
    time.sleep(max(0, begin + number / 40 - time.monotonic()))
    sent.append(time.monotonic())
    s.send(number.to_bytes(4, "big") + bytes({CALL_BYTES} - 4))
thread.join()
print(*(1e3 * (got[n] - at) if n in got else "inf" for n, at in enumerate(sent) if n >= 40))
"""
#: A client with 64 connections: aria2 has 16 to a server at most.
MANY = ["aria2 -x16 -s16 -k1M", "axel -n64"]


@dataclass
class CallBed(Bed):
    """One link and one path of the program's; a call, and perhaps a curl."""

    curl: bool = False

    def text(self):
        path = f'{{ via = ["x0"], rtt = "{self.rtts[0]} ms" }}'
        return f"{super().text()}[flow.voice]\npaths = [{path}]\n"

    def name(self):
        return f"{self.rates[0]} Mbit/s, RTT {self.rtts[0]} ms, queue {self.queue} ms, a call{' and a curl' * self.curl}"


BEDS = [CallBed([RATE_MBIT], [RTT_MS], RTT_MS * products, paths=1, curl=curl) for products in (1, 4) for curl in (False, True)]


class Call(Run):
    """A run with a call in it; its hosts are voice.tx, whom the caller at voice.rx calls."""

    def beside(self, row, warm_s, seconds):
        """The call's round trips, what the curl and the program got, in Mbit/s of packets."""
        lab = self.lab
        lab.start("voice.tx", sys.executable, "-ISc", ECHO)
        clients = [self.curl()] if self.bed.curl else []
        time.sleep(2)
        if row != NOBODY:
            host, argv = self.command(row)
            clients.append(lab.start(host, *argv, env=self.env))
        time.sleep(warm_s)
        if self.bed.curl:
            lab.has_controller("sp.tx", "sport", 8000, self.cc)
        if row != NOBODY:
            self.look(row)
        before = self.meter()
        call = lab.start("voice.rx", sys.executable, "-ISc", CALL, "10.3.0.1", seconds, stdout=subprocess.PIPE, text=True)
        mm, sp = lab.rates(seconds, "mm", "sp")
        if any(client.poll() is not None for client in clients):
            raise Failed("a download ended before the measurement did")
        found = self.since(before)
        lab.running.remove(call)
        trips = sorted(map(float, call.communicate(timeout=30)[0].split()))
        answered = [trip for trip in trips if trip < float("inf")]
        if not answered or len(trips) < 40 * seconds:
            raise Failed(f"the call has {len(answered)} answers to {len(trips)} packets")
        rank = lambda part: answered[min(len(answered) - 1, int(part * len(answered)))]
        return {"p50_ms": rank(0.5), "p99_ms": rank(0.99), "lost_percent": 100 * (1 - len(answered) / len(trips)),
                "curl_mbit": sp * 8e-6, "tool_mbit": mm * 8e-6} | found


class Limited(Run):
    """A run whose last link has a limit of its own, or shares one."""

    def rate(self, row, warm_s, seconds):
        """Bytes of payload a second that came over the last link, by the laboratory's clock."""
        host, argv = self.command(row)
        client = self.lab.start(host, *argv, env=self.env)
        time.sleep(warm_s)
        self.look(row)
        before, states = self.meter(), [self.lab.state()]
        time.sleep(seconds)
        states.append(self.lab.state())
        if client.poll() is not None:
            raise Failed("it ended before the measurement did")
        links = [state["links"][-1] for state in states]
        packets, size = (links[1][key] - links[0][key] for key in ("delivered", "delivered_bytes"))
        payload = size - packets * HEADERS["mmTP" in row]
        return {"bytes_s": payload / (states[1]["up_s"] - states[0]["up_s"])} | self.since(before)


#: Of a packet, in bytes, by whether it is UDP: IP and UDP, or IP and TCP with timestamps.
HEADERS = {True: 28, False: 52}
#: Limits: links, and to how many bytes a second the whole, or what comes over the last link, is limited by these options.
LIMITS = [
    (Bed([RATE_MBIT], [RTT_MS], RTT_MS), 1_000_000, ["--limit 1M", "--via p0,limit=1M"]),
    (Bed([50], [RTT_MS], RTT_MS), 5_000_000, ["--limit 5M"]),
    (Bed([RATE_MBIT] * 2, [RTT_MS] * 2, RTT_MS), 500_000, ["--via p0 --via p1,limit=500k"]),
]


def parts(options):
    """Table j, for delay.measure."""
    beside, limited = ((2, 4), (2, 3)) if options.quick else ((WARM_S, SECONDS), (4, 15))

    def call(bed, path, row, seed):
        return attempt(Call, options.binary, bed, path, CC, lambda run: run.beside(row, *beside), seed)

    def limit(bed, path, row, seed):
        return attempt(Limited, options.binary, bed, path, CC, lambda run: run.rate(row, *limited), seed)

    found = [Part(bed.name(), [NOBODY, *MANY, *OURS, *BACKGROUND], lasting(beside, bed), partial(call, bed),
                  {"curl": bed.curl, "mbit": bed.rates[0]}) for bed in BEDS]
    return found + [Part(f"{bed.name()}, limited", [f"{ours} {how}" for ours in OURS for how in ways], lasting(limited, bed),
                         partial(limit, bed), {"limit": most}) for bed, most, ways in LIMITS]
