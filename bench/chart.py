"""The README's chart, from bench/results.json: times of table h on three pairs of idle links, and what a curl keeps in table i.

compare.py draws it anew with each run of these tables. Programs have their default settings, but for the options in their
names. The control is three curls beside the curl: they must leave it 20 to 30 %, or the shares do not count.
"""

import os
import statistics

import chart_svg
import report
from stack import PAYLOAD

PICTURE = "docs/comparison.svg"
#: What is shown of table h, and how it is called there; of table i.
IDLE = {"curl": "curl, one mirror", "aria2 -s2": "aria2 -s2", "aria2 -s2 -k1M": "aria2 -s2 -k1M",
        "MPTCP, CUBIC senders": "MPTCP, uncoupled", "anabranch, mirrors": "anabranch, mirrors",
        "anabranch, mmTP": "anabranch, mmTP"}
CONTROL = "three curls"
SHARED = {CONTROL: "three curls (control)", **{row: row for row in [*report.OTHERS, *reversed(report.OURS)]}}


def save(root):
    """Draws it, if the tables that it needs are there."""
    if made := picture(report.load(root)):
        report.replace(os.path.join(root, PICTURE), made)


def is_current(root):
    """Whether the picture is what the raw data say."""
    made = picture(report.load(root))
    with open(os.path.join(root, PICTURE), encoding="utf-8") as text:
        return not made or text.read() == made


def picture(results):
    """The SVG; nothing while a bed of it has not been measured."""
    beds = {bed["name"]: bed for key in "hi" for bed in results.get(key, {}).get("beds", [])}
    if not {*report.CHART_IDLE, report.CHART_SHARED} <= beds.keys():
        return None
    groups = {}
    for key, (name, mbit) in zip(chart_svg.IDLE, report.CHART_IDLE.items()):
        bed = beds[name]
        groups[key] = (name, rows(bed, IDLE, lambda run: run["wall_s"]), bed["bytes"] * 8 / (mbit * 1e6 * PAYLOAD))
    bed = beds[report.CHART_SHARED]
    groups["shared"] = (bed["name"], rows(bed, SHARED, lambda run: 100 * run["kept"]), 50)
    control = [100 * run["kept"] for run in report.in_time(bed["runs"].get(CONTROL, []))]
    holds = bool(control) and 20 <= statistics.median(control) <= 30
    size = beds[next(iter(report.CHART_IDLE))]["bytes"]
    return chart_svg.draw(groups, size, conditions(results, [beds[name] for name, *_ in groups.values()]), holds)


def rows(bed, shown, value):
    """(name, (median, least, most) or nothing, whether it is ours) of each program that was run."""
    found = {row: [value(run) for run in report.in_time(bed["runs"][row])] for row in shown if row in bed["runs"]}
    return [(name, (statistics.median(found[row]), min(found[row]), max(found[row])) if found[row] else (), row in report.OURS)
            for row, name in shown.items() if row in found]


def conditions(results, beds):
    """What was measured on what, and how often."""
    machine = results["h"]["machine"]
    runs = [runs for bed in beds for runs in bed["runs"].values()]
    commits = ", ".join(sorted({run["commit"] for row in runs for run in row}))
    versions = ", ".join(f"{name.removesuffix('c') if name == 'aria2c' else name} {v}" for name, v in machine["versions"].items() if v)
    return [f"Median (and range) of up to {max(map(len, runs))} runs; TCP is CUBIC unless named; {versions}",
            f"{machine['date']}, commit {commits}, Linux {machine['kernel']}, {machine['cores']} cores"]
