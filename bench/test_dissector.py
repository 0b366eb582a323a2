"""The dissector contrib/mmtp.lua reads the examples of docs/wire-mmtp.md in tshark, and survives what is none."""

import pathlib
import random
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def examples():
    """The packets that the page shows, by the word behind "Example"."""
    text = (ROOT / "docs/wire-mmtp.md").read_text(encoding="utf-8")
    found = {}
    for name, block in re.findall(r"^Example (?:of a cache's )?(\w+).*?```text\n(.*?)```", text, re.M | re.S):
        digits = "".join(line.split(";")[0] for line in block.splitlines())
        if name.isupper() and re.fullmatch(r"[0-9a-f\s]+", digits):
            found.setdefault(name, []).append(bytes.fromhex(digits))
    return found


def capture(path, payloads):
    """Writes UDP packets to port 26227 into a pcap of raw IP."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101))
        for payload in payloads:
            udp = struct.pack("!HHHH", 40_000, 26_227, 8 + len(payload), 0) + payload
            ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, b"\x7f\0\0\1", b"\x7f\0\0\2")
            file.write(struct.pack("<IIII", 0, 0, len(ip + udp), len(ip + udp)) + ip + udp)


def dissected(payloads, *fields):
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/c.pcap"
        capture(path, payloads)
        wanted = [word for field in ("_ws.col.Info", "_ws.expert.message", *fields) for word in ("-e", field)]
        argv = ["tshark", "-X", f"lua_script:{ROOT}/contrib/mmtp.lua", "-r", path, "-T", "fields", "-E", "separator=|", *wanted]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        if "Lua" in done.stderr:
            raise AssertionError(done.stderr)
        return [line.split("|") for line in done.stdout.splitlines()]


@unittest.skipUnless(shutil.which("tshark"), "tshark is not installed")
class Dissector(unittest.TestCase):
    def test_the_examples_of_the_page(self):
        found = examples()
        self.assertEqual(sorted(found), ["COOKIE", "DATA", "HASHES", "META", "PADDED", "PROBE", "REFUSE", "REQUEST"])
        packets = [(name, packet) for name in sorted(found) for packet in found[name]]
        rows = dissected([packet for _, packet in packets], "mmtp.tag", "mmtp.chunk", "mmtp.node", "mmtp.name", "mmtp.cookie")
        for (name, _), (info, wrong, tag, *_) in zip(packets, rows, strict=True):
            self.assertEqual((info.split(" ")[0], wrong, tag), (name, "", "0x0102030405060708"))
        by_name = {}
        for (name, _), row in zip(packets, rows, strict=True):
            by_name.setdefault(name, []).append(row)
        self.assertEqual([row[3:5] for row in by_name["DATA"]], [["14", ""], ["14", "7"]])
        self.assertEqual(by_name["META"][0][5], "a.txt")
        self.assertEqual(by_name["REQUEST"][0][0], "REQUEST of 20000 bytes: meta, hashes 0+2, data 0+15")
        self.assertEqual([by_name[name][0][6] for name in ("REQUEST", "COOKIE")], ["c0" * 16] * 2)
        self.assertEqual(by_name["REFUSE"][0][0], "REFUSE busy")

    def test_what_is_cut_or_random(self):
        random.seed(1)
        whole = [packet for packets in examples().values() for packet in packets]
        cut = [packet[:end] for packet in whole for end in range(12, len(packet), 3)]
        noise = [bytes([1, random.randrange(10), 0, random.randrange(9)]) + random.randbytes(random.randrange(8, 90)) for _ in range(300)]
        rows = dissected(cut + noise)
        self.assertEqual(len(rows), len(cut + noise))
        self.assertTrue(any("truncated" in row[1] for row in rows))


if __name__ == "__main__":
    unittest.main()
