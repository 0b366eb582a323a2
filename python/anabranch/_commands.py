"""The commands of anabranch: those of the wheel, or others of PATH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from typing import Any


def path(name: str) -> str:
    """Returns the path of a program: beside this Python, else the one of PATH."""
    places = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    found = shutil.which(name, path=os.pathsep.join(places)) or shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"the program {name} is not installed: the wheel has anabranch and anabranch-trace; docs/install.md has the rest")
    return found


def objects(program: str, *arguments: str, ends: tuple[int, ...] = (0,)) -> Iterator[dict[str, Any]]:
    """Runs a program with `--json`, and yields what it prints, each when it comes. An exit status that is not one of
    `ends` is an OSError with what the program said."""
    command = [path(program), *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stderr is not None
        try:
            for line in running.stdout:
                yield json.loads(line)
            said = running.stderr.read()
        except BaseException:
            running.terminate()
            raise
    if running.returncode not in ends:
        raise OSError(said.strip() or f"{' '.join(command)} ended with {running.returncode}")
