"""Other programs download by `anabranch`, as docs/recipes.md says: pacman, apt, yt-dlp, git-lfs. Each is the real program."""

import base64
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
CONTENT = os.urandom(1_000_003)
OID = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files without ranges, and the batch API of git-lfs to those who have the password."""

    def log_message(self, *_):
        pass

    def do_GET(self):  # noqa: N802: the name is that of http.server
        self.server.agents.append((self.path, self.headers.get("User-Agent", "")))
        self.server.signed |= self.headers.get("X-Signed") == "secret"
        super().do_GET()

    def do_POST(self):  # noqa: N802
        if self.headers.get("Authorization") != "Basic " + base64.b64encode(b"u:p").decode():
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        href = f"http://127.0.0.1:{self.server.server_port}/{{}}"
        answer = json.dumps({
            "transfer": "basic",
            "objects": [{**one, "authenticated": True, "actions": {"download": {"href": href.format(one["oid"]),
                                                                            "header": {"X-Signed": "secret"}}}} for one in request["objects"]],
        }).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.git-lfs+json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@unittest.skipUnless((BUILT / "anabranch").exists(), "the programs are not built")
class Recipes(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        (self.dir / "served").mkdir()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: Handler(*args, directory=self.dir / "served"))
        self.server.agents, self.server.signed = [], False
        # Who has seen enough closes the connection.
        self.server.handle_error = lambda *_: None
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.env = {**os.environ, "HOME": str(self.dir), "PATH": f"{self.dir}/bin:{BUILT}:{os.environ['PATH']}", "GIT_CONFIG_NOSYSTEM": "1",
                    "ANABRANCH": str(BUILT / "anabranch")}
        (self.dir / "bin").mkdir()

    def run_in(self, *argv, **keywords):
        done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, env=self.env, check=False, timeout=60,
                              **{"cwd": self.dir, **keywords})
        self.assertEqual(done.returncode, 0, f"{argv}: {done.stdout}{done.stderr}")
        return done.stdout

    def asked_by_us(self, part):
        return [agent for path, agent in self.server.agents if part in path and agent.startswith("anabranch")]

    @unittest.skipUnless(shutil.which("pacman") and shutil.which("repo-add") and shutil.which("bsdtar") and os.geteuid() == 0, "pacman is not installed, or not root")
    def test_pacman(self):
        root, served = self.dir / "root", self.dir / "served"
        for name in ("db", "cache", "gpg"):
            (root / name).mkdir(parents=True)
        files = self.dir / "package"
        files.mkdir()
        (files / "content").write_bytes(CONTENT)
        (files / ".PKGINFO").write_text("pkgname = thing\npkgver = 1-1\npkgdesc = a thing\narch = any\nsize = 1000003\n")
        self.run_in("tar", "-C", files, "-cf", served / "thing-1-1-any.pkg.tar", ".PKGINFO", "content")
        self.run_in("repo-add", served / "things.db.tar.gz", served / "thing-1-1-any.pkg.tar")
        config = self.dir / "pacman.conf"
        config.write_text(f"[options]\nArchitecture = any\nSigLevel = Never\nXferCommand = {BUILT}/anabranch get -q --force -o %o %u\n"
                          f"[things]\nServer = {self.url}\n")
        paths = ["--config", config, "--root", root, "--dbpath", root / "db", "--cachedir", root / "cache", "--logfile", root / "log"]
        self.run_in("pacman", *paths, "--noconfirm", "-Sy", "thing")
        self.assertEqual((root / "content").read_bytes(), CONTENT)
        self.assertTrue(self.asked_by_us("thing-1-1"), self.server.agents)

    @unittest.skipUnless(shutil.which("apt-get") and shutil.which("dpkg-deb"), "apt is not installed")
    def test_apt(self):
        (self.dir / "package/DEBIAN").mkdir(parents=True)
        (self.dir / "package/content").write_bytes(CONTENT)
        control = "Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: a thing\n"
        (self.dir / "package/DEBIAN/control").write_text(control)
        served, mirror = self.dir / "served/debian", self.dir / "served/mirror"
        served.mkdir()
        self.run_in("dpkg-deb", "-Znone", "--root-owner-group", "--build", "package", served / "thing_1_all.deb")
        packed = (served / "thing_1_all.deb").read_bytes()
        packages = f"{control}Filename: ./thing_1_all.deb\nSize: {len(packed)}\nSHA256: {hashlib.sha256(packed).hexdigest()}\n\n".encode()
        (served / "Packages").write_bytes(packages)
        (served / "Release").write_text(f"Suite: x\nSHA256:\n {hashlib.sha256(packages).hexdigest()} {len(packages)} Packages\n")
        shutil.copytree(served, mirror)
        for name in ("state/lists/partial", "cache/archives/partial", "etc", "methods"):
            (self.dir / name).mkdir(parents=True)
        for method in pathlib.Path("/usr/lib/apt/methods").iterdir():
            (self.dir / "methods" / method.name).symlink_to(method)
        (self.dir / "methods/anabranch+http").symlink_to(ROOT / "contrib/apt-anabranch")
        (self.dir / "state/status").touch()
        (self.dir / "etc/sources.list").write_text(f"deb [trusted=yes] anabranch+{self.url}/debian ./\n")
        (self.dir / "apt.conf").write_text(
            f'Dir::State "{self.dir}/state"; Dir::State::status "{self.dir}/state/status"; Dir::Cache "{self.dir}/cache"; Dir::Etc "{self.dir}/etc";'
            f'Dir::Bin::methods "{self.dir}/methods"; APT::Sandbox::User ""; Acquire::Languages "none";'
            f'Acquire::anabranch::Mirrors:: "{self.url}/debian/ {self.url}/mirror/"; Acquire::anabranch::Args "--timeout 20";')
        self.env["APT_CONFIG"] = str(self.dir / "apt.conf")
        self.run_in("apt-get", "update")
        self.run_in("apt-get", "download", "thing")
        self.assertEqual((self.dir / "thing_1_all.deb").read_bytes(), packed)
        self.assertTrue(self.asked_by_us("/mirror/thing_1"), self.server.agents)
        self.assertFalse(self.asked_by_us("/mirror/Release"), "only what has a hash comes from mirrors")
        (served / "Packages").write_bytes(packages + b"\n")
        (mirror / "Packages").write_bytes(packages + b"\n")
        shutil.rmtree(self.dir / "state/lists")
        (self.dir / "state/lists/partial").mkdir(parents=True)
        with self.assertRaisesRegex(AssertionError, "wrong|hash|not the file"):
            self.run_in("apt-get", "-o", "Acquire::Retries=0", "-o", "APT::Update::Error-Mode=any", "update")

    @unittest.skipUnless(shutil.which("yt-dlp") and (BUILT / "anabranch-daemon").exists(), "yt-dlp is not installed")
    def test_yt_dlp(self):
        (self.dir / "served/film.mp4").write_bytes(CONTENT)
        shim = self.dir / "bin/aria2c"
        shim.write_text(f'#!/bin/sh\necho called >"{self.dir}/called"\nexec {BUILT}/anabranch daemon aria2c "$@"\n')
        shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
        self.run_in("yt-dlp", "--no-check-formats", "--downloader", "aria2c", "-o", "out.mp4", f"{self.url}/film.mp4")
        self.assertEqual((self.dir / "out.mp4").read_bytes(), CONTENT)
        self.assertTrue((self.dir / "called").exists())

    @unittest.skipUnless(shutil.which("git-lfs"), "git-lfs is not installed")
    def test_git_lfs(self):
        (self.dir / "served" / OID).write_bytes(CONTENT)
        tree = self.dir / "tree"
        git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main", "-C", tree)
        self.run_in("git", "init", "-q", tree)
        self.run_in(*git, "lfs", "install", "--local")
        (tree / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
        (tree / "f.bin").write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize {len(CONTENT)}\n")
        (self.dir / ".git-credentials").write_text(self.url.replace("//", "//u:p@") + "\n")
        for name, value in {"credential.helper": "store", "lfs.url": self.url, "lfs.customtransfer.anabranch.path": ROOT / "contrib/git-lfs-anabranch",
                            "lfs.customtransfer.anabranch.args": "--timeout 20", "lfs.standalonetransferagent": "anabranch"}.items():
            self.run_in(*git, "config", name, value)
        self.run_in(*git, "add", ".")
        self.run_in(*git, "commit", "-qm", "a pointer")
        self.run_in(*git, "lfs", "pull")
        self.assertEqual((tree / "f.bin").read_bytes(), CONTENT)
        self.assertTrue(self.asked_by_us(OID) and self.server.signed, self.server.agents)


if __name__ == "__main__":
    unittest.main()
