"""bench/proxy_units.py starts the proxy's server as a process and as a container, and measures a little of each."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def skipped(why):
    """Counts a skip as the Rust tests do."""
    if path := os.environ.get("ANABRANCH_SKIPPED"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"skipped: {why}\n")
    return unittest.SkipTest(why)


class Units(unittest.TestCase):
    def test_a_container_answers_as_a_process_does(self):
        program, load = TARGET / "debug/anabranch-proxy", TARGET / "debug/examples/load"
        if os.geteuid() or not (shutil.which("crun") or shutil.which("runc")):
            raise skipped("the proxy in a container: not root, or neither crun nor runc")
        if not program.exists() or not load.exists():
            raise skipped(f"the proxy in a container: {program} or {load} is not built")
        words = ["--quick", "--json", "--units", "process,container", "--bin", program, "--load", load, "--lab", "none"]
        done = subprocess.run([sys.executable, ROOT / "bench/proxy_units.py", *words], check=False, capture_output=True, text=True,
                              timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        units = json.loads(done.stdout.splitlines()[-1])["units"]
        for name in ("process", "container"):
            rows = units[name]["rows"]
            for title in ("sequential 0", "at once 1000", "1 KB", "900 KB"):
                self.assertFalse(rows[title].get("failed"), (name, title))
                self.assertGreater(rows[title]["answered"], 0, (name, title))
                self.assertGreater(rows[title]["cpu_s"], 0, (name, title))


if __name__ == "__main__":
    unittest.main()
