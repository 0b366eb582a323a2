"""Experiments from Python: the scenarios of `anabranch lab`, as tables of pandas.

    from anabranch import lab
    lab.run("bench-a", cc=["nmcc", "reno"], seeds="1..5")[["case", "controller", "metric", "value", "verdict"]]
    lab.sweep("bench-grid", seeds="1..30", map=dask_client.map)        # one process a seed, wherever `map` runs them

The program `anabranch-lab` is needed, in PATH: the wheel does not have it, as it would be half of its size.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ._commands import objects

if TYPE_CHECKING:
    import pandas

_UNMET = 7


def run(
    scenario: str | os.PathLike[str],
    *,
    cc: str | Iterable[str] = (),
    cases: str | Iterable[str] = (),
    seeds: str | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002
    world: str | None = None,
) -> pandas.DataFrame:
    """Runs a scenario and returns its rows: one measure of one case and controller over the seeds, with the columns of
    docs/json.md. A scenario is a name of `anabranch lab list` or the path of a TOML file.

    cc, cases: the controllers and cases to run, instead of the scenario's; seeds: such as "1..10"; set: keys to change,
    such as {"link.bottleneck.rate": "50 Mbit/s"}; world: "sim" or "kernel".

    An expectation that does not hold is the row's `verdict`, and no error. Raises OSError with what the program said.
    """
    import pandas

    rows = objects("anabranch-lab", "run", *_arguments(scenario, cc, cases, seeds, set, world), ends=(0, _UNMET))
    frame = pandas.DataFrame([row for row in rows if row["event"] == "row"])
    return frame.drop(columns=["version", "event"], errors="ignore")


def sweep(
    scenario: str | os.PathLike[str],
    *,
    seeds: str,
    shards: int = 1,
    map: Callable[..., Iterable[Any]] = map,  # noqa: A002
    **choices: Any,
) -> pandas.DataFrame:
    """Runs a scenario once for each seed and returns all runs: a line each, with a column for each measure.

    With `shards` the runs are that many processes, which `map` spreads: `concurrent.futures`' `Executor.map`, Ray's
    `ActorPool.map`, or `lambda f, x: dask_client.gather(dask_client.map(f, x))`. Where they run, anabranch is installed
    and a scenario that is a file is at the same path. Further arguments are those of `run`.
    """
    import pandas

    if shards < 1:
        raise ValueError("shards must be 1 or more")
    choices = {"cc": (), "cases": (), "set": None, "world": None} | choices
    arguments = _arguments(scenario, seeds=seeds, **choices)
    parts = map(_Shard(arguments, shards), range(1, shards + 1))
    runs = sorted((run for part in parts for run in part), key=lambda run: (str(run.get("case")), run["controller"], run["seed"]))
    return pandas.DataFrame(runs)


class _Shard:
    """One process of a sweep: an object, so that it can be sent to another machine."""

    def __init__(self, arguments: list[str], shards: int) -> None:
        self._arguments = arguments
        self._shards = shards

    def __call__(self, number: int) -> list[dict[str, Any]]:
        import json

        with tempfile.TemporaryDirectory() as directory:
            out = os.path.join(directory, "runs.jsonl")
            shard = ["--shard", f"{number}/{self._shards}"] if self._shards > 1 else []
            for _ in objects("anabranch-lab", "sweep", *self._arguments, "--out", out, *shard, ends=(0, _UNMET)):
                pass
            with open(out, encoding="utf-8") as lines:
                return [_run(json.loads(line)) for line in lines]


def _run(line: dict[str, Any]) -> dict[str, Any]:
    values = dict(zip(line["metrics"], line["outcome"]["values"]))
    own = {name: line[name] for name in ("scenario", "world", "case", "controller", "seed") if name in line}
    return own | line.get("set", {}) | values | {"faults": line["outcome"].get("faults", [])}


def _arguments(
    scenario: str | os.PathLike[str],
    cc: str | Iterable[str],
    cases: str | Iterable[str],
    seeds: str | None,
    set: Mapping[str, Any] | None,  # noqa: A002
    world: str | None,
) -> list[str]:
    def listed(names: str | Iterable[str]) -> list[str]:
        return [names] if isinstance(names, str) else list(names)

    arguments = [os.fspath(scenario)]
    if controllers := listed(cc):
        arguments += ["--cc", ",".join(controllers)]
    for case in listed(cases):
        arguments += ["--case", case]
    if seeds is not None:
        arguments += ["--seeds", seeds]
    for key, value in (set or {}).items():
        arguments += ["--set", f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}"]
    if world is not None:
        arguments += ["--world", world]
    return arguments
