"""Tables h and i of compare.py: links that have a delay, idle and shared, with the programs of today beside us; and how
a table of programs over links is measured.

h  a file over idle links, a source behind each. Every program against the best of those that couple nothing
i  several sources behind one link, beside a curl that downloads all the time: what we take, where half is wanted

`--bed` and `--row` are regular expressions over the names of links and programs: what they leave out keeps its last runs.
"""

import os
import re
import tempfile
import time
from dataclasses import dataclass
from functools import partial

import testbed
from links import CC, Bed, once, shown
from mirrors import SHM
from report import CHART_SHARED, OTHERS, OURS, UNCOUPLED
from stack import ROOT, all_of, write

MEGA = 1_000_000
#: A mobile link whose rate rises from 1 to 5 Mbit/s in 8 s and falls back at once.
SAW = os.path.join(ROOT, "scenarios", "traces", "saw-1-5.trace")
#: Idle links: the file's length, MB. RTT in ms; a queue as long as the RTT is one product of rate and delay.
IDLE = [
    (100, Bed([50, 50], [50, 50], 50)),
    (100, Bed([50, 50], [20, 20], 20)),
    (100, Bed([100, 20], [20, 80], 60)),
    (100, Bed([30, 30], [120, 120], 60)),
    (100, Bed([50, 50], [200, 200], 200)),
    (100, Bed([50, 50], [50, 50], 25)),
    (100, Bed([50, 50], [50, 50], 100)),
    (40, Bed([50, 50], [50, 50], 50, loss=0.1)),
    (40, Bed([50, 50], [50, 50], 50, loss=0.3)),
    (40, Bed([50, 50], [50, 50], 50, loss=0.1, servers="bbr")),
    (40, Bed([50, 50], [50, 50], 50, loss=0.3, servers="bbr")),
    (150, Bed([50, 50, 50], [50, 50, 50], 50)),
    (12, Bed([4, SAW], [30, 60], "60 pkt")),
    (40, Bed([20], [20], 20)),
    (40, Bed([50], [50], 50)),
    (40, Bed([30], [120], 60)),
    (40, Bed([100], [200], 100)),
    # Several sources behind one uplink are never slower than one curl.
    (40, Bed([50], [50], 50, loss=0.1, paths=2)),
    (40, Bed([50], [50], 50, loss=0.1, paths=3)),
]
#: One shared link, and how many sources behind it.
SHARED = [Bed([20], [rtt], rtt, paths=paths) for rtt in (20, 50, 100) for paths in (1, 2, 3)]
#: Repetitions over links that lose packets by chance, each with other losses; every program meets the same ones.
LOSSY_SEEDS = 5
#: A run whose links were late is repeated, but not for ever.
ATTEMPTS = 3


def idle_rows(bed):
    count = bed.sources()
    if count == 1:
        return ["curl", UNCOUPLED, *OURS]
    if bed.paths or bed.servers != CC:
        # The rows of MPTCP name the TCP of their senders, and take a link for each path.
        return ["curl", f"aria2 -s{count} -k1M", UNCOUPLED, *OURS]
    return ["curl", f"aria2 -s{count}", f"aria2 -s{count} -k1M", "MPTCP, CUBIC senders", "MPTCP, BBR senders",
            UNCOUPLED, *OURS]


def beside_s(bed):
    """Seconds until a newcomer has its share, and seconds that are measured: CUBIC's cycles are longer with the RTT."""
    return (15, 40) if bed.rtts[0] < 100 else (40, 60)


def control(bed):
    """As many TCP flows as we have paths: they take N of N + 1 parts, or the testbed is wrong."""
    return ["one curl", "two curls", "three curls"][bed.paths - 1]


def shared_rows(bed):
    others = OTHERS if bed.name() == CHART_SHARED else []
    return [control(bed), UNCOUPLED, *OURS, *others]


@dataclass
class Part:
    """Links of a table: their name, the programs over them, the file's length, one run of a program: `once(path, row, seed)`.

    `facts` are kept with its runs. `seeds` is the least number of repetitions: where links lose packets by chance, one
    pattern of losses says little.
    """

    name: str
    rows: list
    bytes: int
    once: callable
    facts: dict
    seeds: int = 1


def idle(options):
    """Table h."""
    size = lambda megabytes: (5 if options.quick else megabytes) * MEGA
    beds = list(IDLE)
    if options.traces:
        beds.append((20, Bed(options.traces, [30, 60][:len(options.traces)], "100 pkt", loss=0.1)))
    return [Part(bed.name(), idle_rows(bed), size(megabytes), partial(once, options.binary, bed),
                 {"sources": len(bed.rates), "seconds": None, "captured": bed.rates == options.traces}, LOSSY_SEEDS if bed.loss else 1) for megabytes, bed in beds]


def shared(options):
    """Table i."""
    parts = []
    for bed in SHARED:
        beside = (2, 4) if options.quick else beside_s(bed)
        parts.append(Part(bed.name(), shared_rows(bed), lasting(beside, bed), partial(once, options.binary, bed, beside=beside),
                          {"sources": bed.sources(), "seconds": beside[1]}))
    return parts


def lasting(beside, bed):
    """Bytes of a file that nobody has whole before the measurement ends."""
    return int((sum(beside) + 12) * sum(bed.rates) * MEGA / 8)


def one(options, part, path, row, seed, runs):
    """A run, again if its links were late; with what it belongs to."""
    for attempt in range(ATTEMPTS):
        began = time.strftime("%H:%M:%S")
        run = part.once(path, row, seed)
        if "failed" not in run and not run["faults"]:
            break
    run |= {"at": began, "seed": seed, "attempts": attempt + 1, "load": os.getloadavg()[0], "commit": options.commit}
    runs[row].append(run)
    print(f"  {part.name}: {row}: {shown(run)}", flush=True)


def measure(options, parts, before, save):
    """Runs what is asked for of a table; `before` is what there was of it, `save` keeps what there is, link by link."""
    kept = {bed["name"]: bed for bed in (before or {}).get("beds", [])}
    for part in parts:
        rows = [row for row in part.rows if re.search(options.row, row)]
        if not rows or not re.search(options.bed, part.name):
            continue
        runs = {row: [] for row in rows}
        with tempfile.TemporaryDirectory(prefix="anabranch-delay-", dir=SHM) as scratch:
            path = os.path.join(scratch, "f")
            write(path, part.bytes)
            seeds = range(1, 1 + (options.reps if options.quick else max(options.reps, part.seeds)))
            jobs = [partial(one, options, part, path, row, seed, runs) for seed in seeds for row in rows]
            all_of(options.jobs, jobs)
        # Rows that were not asked for stay, if they were of the same file.
        old = kept.get(part.name, {})
        runs = (old["runs"] if old.get("bytes") == part.bytes else {}) | {row: got for row, got in runs.items() if got}
        kept[part.name] = {"name": part.name, "bytes": part.bytes, **part.facts,
                           "runs": {row: runs[row] for row in part.rows if row in runs}}
        # Links that the user captured are not in every run.
        names = list(dict.fromkeys([part.name for part in parts] + [name for name in kept if kept[name].get("captured")]))
        save({"beds": [kept[name] for name in names if name in kept]})


def programs():
    return ["nginx", "curl", "aria2c", "axel", "ip"] if testbed.IS_ROOT else []
