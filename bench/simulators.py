#!/usr/bin/env python3
"""Run the same three pieces of work in other packet simulators (and in this one) and tabulate their speed.

The rows, defined to the packet in simulators.md beside this file:

  torus     5 links, 5 two-path LIA flows, 1000 s simulated        htsim (original), main_torus COUPLED_INC
  dumbbell  100 endless TCP flows through one 10 Gb/s queue, 50 s  csg-htsim, htsim_dumbell_tcp
  fattree   128 hosts, 100 Gb/s, a random permutation, 10 ms       csg-htsim, htsim_tcp -nodes 128 -sub 1
  (ns-3 runs a smaller piece of each, single-path TCP only: ns3_peer.cc)

"Link packets" are packets that finished transmission on a link, feeders and host interfaces included; ACKs
only where the simulator really queues them (ns-3). "Link packets per CPU second" is the best of --repeat
runs, because other work on the machine can only slow a run down; the median and the load average are printed
so that one can see how quiet it was. CPU time is user + system time of the process (getrusage); for ns-3 it
is Simulator::Run alone, without building the network.

Building the peers (outside this repository; nothing of their code belongs here) takes two small changes to
each htsim: a counter in EventList::doNextEvent and in every completeService() of the queues in use, printed
on standard error at exit as one line

  COUNT {"link_packets":N,"events":N,"cpu_s":S,"rss_kib":N}

and end time, seed and flow length read from the environment: ENDTIME_MS, SEED, UNLIMITED (see simulators.md,
"Patches"; that of the original htsim is htsim.patch).

Use:
  simulators.py [--orig DIR] [--csg DIR] [--ns3 PROGRAM] [--ours COMMAND] [--repeat N] [--rows a,b] [--json FILE]

  --orig DIR      sim/ directory of the original htsim, holding main_torus
  --csg DIR       sim/ directory of csg-htsim, holding tests/htsim_dumbell_tcp and datacenter/htsim_tcp
  --ns3 PROGRAM   the ns3_peer program
  --ours COMMAND  a command (shell words) that prints one JSON object a line for each row it runs:
                  {"row":"torus","link_packets":N,"cpu_s":S,"rss_kib":N}; "events" is optional, and so is
                  "sim", a name to list it under. Where the words contain {row}, the command is run once
                  for each row.

Python 3 standard library only.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import markup  # noqa: E402

ROWS = ("torus", "dumbbell", "fattree")
SEED = "7"
TIMEOUT_S = 600


def run(command, env=None):
    """Runs one command in a directory of its own (htsim writes logout.dat and ../data/logout.dat)."""
    # A process starts with the greatest resident set of the one that forked it: Python's is large, sh's small.
    small = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command]
    with tempfile.TemporaryDirectory() as top:
        here = os.path.join(top, "run")
        os.mkdir(here)
        os.mkdir(os.path.join(top, "data"))
        done = subprocess.run(
            small,
            cwd=here,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done


def htsim(command, env):
    """One htsim run: the object behind COUNT on standard error."""
    for line in run(command, {"SEED": SEED, **env}).stderr.splitlines():
        if line.startswith("COUNT "):
            return json.loads(line[len("COUNT "):])
    sys.exit(f"{shlex.join(command)}: no COUNT line; is the counter patched in? (see the head of this file)")


def objects(text):
    """The JSON objects, one a line, in a program's output; other lines are ignored."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def jobs(args):
    """Yields (simulator, row, thunk returning a list of result objects)."""
    if args.orig:
        torus = os.path.join(os.path.abspath(args.orig), "main_torus")
        yield "htsim (original)", "torus", lambda: [htsim([torus, "COUPLED_INC"], {})]
    if args.csg:
        csg = os.path.abspath(args.csg)
        bell = os.path.join(csg, "tests", "htsim_dumbell_tcp")
        tree = os.path.join(csg, "datacenter", "htsim_tcp")
        bell = [bell, "-conns", "100", "-seed", SEED]
        tree = [tree, "-nodes", "128", "-conns", "128", "-sub", "1", "UNCOUPLED"]
        yield "csg-htsim", "dumbbell", lambda: [htsim(bell, {"UNLIMITED": "1", "ENDTIME_MS": "50000"})]
        yield "csg-htsim", "fattree", lambda: [htsim(tree, {"ENDTIME_MS": "10"})]
    if args.ns3:
        ns3 = os.path.abspath(args.ns3)
        # Seconds of simulated time: ns-3 is some 35 to 115 times slower, so it gets a slice of the work.
        for row, sim_s in (("torus", "20"), ("dumbbell", "5"), ("fattree", "0.0002")):
            yield "ns-3 (TCP)", row, lambda row=row, sim_s=sim_s: objects(run([ns3, row, sim_s]).stdout)
    if args.ours:
        words = shlex.split(args.ours)
        if os.path.exists(words[0]):
            words[0] = os.path.abspath(words[0])  # runs happen in a directory of their own
        if any("{row}" in word for word in words):
            for row in ROWS:
                command = [word.replace("{row}", row) for word in words]
                yield "ours", row, lambda command=command: objects(run(command).stdout)
        else:
            yield "ours", None, lambda: objects(run(words).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orig", metavar="DIR")
    parser.add_argument("--csg", metavar="DIR")
    parser.add_argument("--ns3", metavar="PROGRAM")
    parser.add_argument("--ours", metavar="COMMAND")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--json", metavar="FILE", help="also write the results here, with every run")
    args = parser.parse_args()
    rows = args.rows.split(",")
    if unknown := set(rows) - set(ROWS):
        parser.error(f"unknown row {sorted(unknown)}; rows are {', '.join(ROWS)}")
    work = [job for job in jobs(args) if job[1] is None or job[1] in rows]
    if not work:
        parser.error("nothing to run: give at least one of --orig, --csg, --ns3, --ours")

    runs = {}
    load_before = os.getloadavg()[0]
    # Rounds, not blocks: a disturbance of the machine then hits all simulators alike.
    for _ in range(args.repeat):
        for name, job_row, thunk in work:
            for result in thunk():
                row = result.get("row", job_row)
                if row in rows:
                    runs.setdefault((row, result.get("sim", name)), []).append(result)

    table = []
    for (row, name), results in sorted(runs.items(), key=lambda item: (ROWS.index(item[0][0]), item[0][1])):
        speeds = [r["link_packets"] / r["cpu_s"] for r in results]
        best = max(range(len(speeds)), key=speeds.__getitem__)
        table.append(
            {
                "row": row,
                "simulator": name,
                "runs": len(results),
                "link_packets": results[best]["link_packets"],
                "events": results[best].get("events"),
                "cpu_s": results[best]["cpu_s"],
                "link_packets_per_cpu_s": speeds[best],
                "median": statistics.median(speeds),
                "rss_kib": min(r["rss_kib"] for r in results),
            }
        )
    load_after = os.getloadavg()[0]
    load = f"load average {load_before:.1f} before, {load_after:.1f} after, {os.cpu_count()} processors"
    heads = ("row", "simulator", "runs", "link packets", "CPU s", "best M/CPU-s", "median", "RSS MiB")
    print(markup.table(heads, [
        [t["row"], t["simulator"], t["runs"], f"{t['link_packets']:,}", f"{t['cpu_s']:.3f}",
         f"{t['link_packets_per_cpu_s'] / 1e6:.3f}", f"{t['median'] / 1e6:.3f}", f"{t['rss_kib'] / 1024:.1f}"]
        for t in table]))
    print(f"\n{load}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            every = [{"row": row, "simulator": name, "runs": got} for (row, name), got in runs.items()]
            json.dump({"load": load, "table": table, "runs": every}, out, indent=1)


if __name__ == "__main__":
    main()
