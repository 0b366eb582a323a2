"""Captures of Multipath TCP as tables of pandas: what `anabranch trace` knows of them.

    from anabranch import trace
    capture = trace.read("transfer.pcap")
    capture.subflows.groupby("connection")["down_unique_bytes"].sum()
    capture.stalls.sort_values("ms").tail()

The program `anabranch-trace` is needed, which the wheel has.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._commands import objects

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Capture:
    """What a capture tells. The columns are the fields of docs/json.md; those of inner objects are joined with `_`."""

    connections: pandas.DataFrame
    """One row a connection."""
    subflows: pandas.DataFrame
    """One row a subflow, with its `connection`."""
    stalls: pandas.DataFrame
    """One row each time a receiver's stream stood still, with `connection` and `stream` ("up" or "down")."""
    handovers: pandas.DataFrame
    """One row each time a subflow took over from another, with its `connection`."""
    summary: dict[str, Any]
    """The counters of the whole capture."""


def read(path: str | os.PathLike[str]) -> Capture:
    """Reads a pcap or pcapng file. Raises OSError with what is wrong with it."""
    import pandas

    tables: dict[str, list[dict[str, Any]]] = {"connections": [], "subflows": [], "stalls": [], "handovers": []}
    summary: dict[str, Any] = {}
    for item in objects("anabranch-trace", os.fspath(path)):
        if item["event"] == "summary":
            summary = item
        elif item["event"] == "connection":
            _add(tables, item)
    frames = {name: pandas.DataFrame(rows or None, columns=None if rows else _COLUMNS[name]) for name, rows in tables.items()}
    return Capture(summary=summary, **frames)


#: The columns of tables without rows that scripts ask for most.
_COLUMNS = {
    "connections": ["id", "protocol", "begin_ns", "duration_s", "end"],
    "subflows": ["connection", "id", "client", "server", "up_unique_bytes", "down_unique_bytes"],
    "stalls": ["connection", "stream", "at_s", "ms", "outstanding_bytes"],
    "handovers": ["connection", "from", "to", "cause", "at_s", "first_data_after_ms", "stood_still_ms"],
}


def _add(tables: dict[str, list[dict[str, Any]]], item: dict[str, Any]) -> None:
    number = {"connection": item["id"]}
    tables["subflows"] += [number | _flat(subflow) for subflow in item["subflows"]]
    tables["handovers"] += [number | _flat(handover) for handover in item["handovers"]]
    for stream in ("up", "down"):
        stalls = ((item["streams"].get(stream) or {}).get("stalls") or {}).get("list", [])
        tables["stalls"] += [number | {"stream": stream} | stall for stall in stalls]
    left_out = {"version", "event", "subflows", "handovers", "events"}
    tables["connections"].append(_flat({name: value for name, value in item.items() if name not in left_out}))


def _flat(value: dict[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, part in value.items():
        if isinstance(part, dict):
            inner = "" if name in ("halves", "streams") else f"{name}_"
            flat |= _flat(part, before + inner)
        elif not (isinstance(part, list) and part and isinstance(part[0], dict)):
            flat[before + name] = part
    return flat
