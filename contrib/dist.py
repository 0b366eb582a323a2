#!/usr/bin/env python3
"""Makes the packages that users install: an archive of static programs, Debian packages, check sums, an installer.

    python3 contrib/dist.py                         # into target/dist: minutes; needs musl-tools and dpkg-deb
    sudo python3 contrib/dist.py --try              # and installs them on a clean Debian, and downloads there (debootstrap)
    python3 contrib/dist.py --target aarch64-unknown-linux-musl     # for ARM; needs gcc-aarch64-linux-gnu and qemu-user-static
    python3 contrib/dist.py --target host --profile dev --quick     # of the tests' programs, in seconds

* `anabranch-VERSION-x86_64-linux.tar.gz`: programs, manual pages, completions, systemd units, licences.
* `anabranch_VERSION_amd64.deb`: all programs but those that have packages of their own: the laboratory, machines and packet
  functions (`anabranch-lab_VERSION_amd64.deb`, `anabranch-vm…`, `anabranch-op…`). None depends on anything else. Congestion control inside Linux is in none of them: see docs/kernel.md.
* `anabranch-VERSION-amd64-image.tar`: an OCI image from scratch, of the same programs (only if they are static).
* `anabranch-VERSION.cdx.json`: what the programs are built of (CycloneDX).
* `SHA256SUMS`, and `install.sh`, which installs the archive from a URL or a directory after it has checked the sum.

The same source makes the same bytes: times are those of the last commit, and no path of the machine is in the programs.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

import oci_image
import sbom

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: The programs that have a package of their own, and what each is.
APART = {
    "anabranch-lab": "laboratory of anabranch: network experiments, simulated and in the kernel",
    "anabranch-op": "packet functions of anabranch that start at once and move between hosts",
    "anabranch-vm": "running machines that move between hosts over all links, by anabranch",
}
#: The feature of anabranch-cli that builds every program.
FEATURES = "all"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: Of each target that is not this machine's: what cross tools' names begin with, and what runs its programs here.
FOREIGN = {"aarch64-unknown-linux-musl": ("aarch64-linux-gnu-", "qemu-aarch64-static")} if os.uname().machine != "aarch64" else {}
#: The exit status if there is no clean Debian to try packages on.
NOT_TRIED = 77
SUMMARY = "multipath and multisource transport: downloads, proxies, MPTCP"


def said(*argv, **keywords):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, **keywords).stdout.strip()


def version():
    listed = said("cargo", "pkgid", "-p", "anabranch-cli")
    return listed.rsplit("@", 1)[-1].rsplit("#", 1)[-1]


def build(options):
    """Builds the programs, and returns their directory."""
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    directory = "debug" if options.profile == "dev" else options.profile
    argv = ["cargo", "build", "--locked", "--profile", options.profile, "-p", "anabranch-cli", "--features", FEATURES]
    environment = dict(os.environ)
    if options.target != "host":
        argv += ["--target", options.target]
        target = os.path.join(target, options.target)
        cargo = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
        environment["RUSTFLAGS"] = f"--remap-path-prefix={cargo}=/cargo --remap-path-prefix={ROOT}=/src"
        if options.target in FOREIGN:
            cross, name = FOREIGN[options.target][0], options.target.replace("-", "_")
            environment |= {f"CC_{name}": f"{cross}gcc", f"AR_{name}": f"{cross}ar", f"CARGO_TARGET_{name.upper()}_LINKER": f"{cross}gcc"}
    if not options.no_build:
        subprocess.run(argv, check=True, cwd=ROOT, env=environment)
    return pathlib.Path(target) / directory


def programs(built):
    """Returns the programs of a build, by name: `anabranch`, and those that it runs."""
    found = sorted(path for path in built.glob("anabranch*") if path.is_file() and os.access(path, os.X_OK) and "." not in path.name)
    return {path.name: path for path in found if path.name != "anabranch-kernel" or not links_to_elf(path)}


def links_to_elf(path):
    """Whether a program needs libelf: it was built with eBPF then."""
    return b"libelf.so" in path.read_bytes()


def tree(built, scratch, target):
    """Lays out what is installed, below usr/."""
    cross, *runner = FOREIGN.get(target, ("",))
    usr = scratch / "usr"
    for name, path in programs(built).items():
        place = usr / "bin" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
        subprocess.run([f"{cross}strip", place], check=True)
        place.chmod(0o755)
    main = usr / "bin" / "anabranch"
    pages = usr / "share/man/man1"
    pages.mkdir(parents=True)
    subprocess.run([*runner, main, "man", pages], check=True)
    for page in sorted(pages.iterdir()):
        with gzip.GzipFile(f"{page}.gz", "wb", mtime=0) as packed:
            packed.write(page.read_bytes())
        page.unlink()
    for shell, place in {
        "bash": "bash-completion/completions/anabranch",
        "zsh": "zsh/vendor-completions/_anabranch",
        "fish": "fish/vendor_completions.d/anabranch.fish",
    }.items():
        path = usr / "share" / place
        path.parent.mkdir(parents=True)
        path.write_text(said(*runner, main, "completions", shell) + "\n")
    units = usr / "lib/systemd/system"
    units.mkdir(parents=True)
    for unit in sorted((ROOT / "contrib").glob("*.service")):
        if unit.name != "anabranch-kernel.service":
            shutil.copy(unit, units)
    documents = usr / "share/doc/anabranch"
    documents.mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"):
        shutil.copy(ROOT / name, documents)
    return usr


def archive(root, name, out, when, level):
    """Packs a directory: names in order, one owner, one time."""
    path = out / f"{name}.tar.gz"
    with open(path, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=when, compresslevel=level) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for item in [root, *sorted(root.rglob("*"))]:
                info = tar.gettarinfo(item, arcname=str(pathlib.Path(name) / item.relative_to(root)))
                info.uid = info.gid = 0
                info.uname = info.gname = "root"
                info.mtime = when
                if info.isreg():
                    tar.addfile(info, io.BytesIO(item.read_bytes()))
                else:
                    tar.addfile(info)
    return path


def debian(root, package, description, details, out, when):
    """Packs a Debian package of a directory that has usr/."""
    control = root / "DEBIAN"
    control.mkdir()
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    fields = {"Package": package, "Version": details["version"], "Architecture": details["architecture"],
              "Maintainer": details["maintainer"], "Installed-Size": size, "Section": "net", "Priority": "optional",
              "Depends": details["depends"], "Description": description}
    (control / "control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items() if value))
    for path in root.rglob("*"):
        os.utime(path, (when, when))
    made = out / f"{package}_{details['version']}_{details['architecture']}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", *details["compression"], "--build", root, made], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "SOURCE_DATE_EPOCH": str(when)})
    return made


def split(usr, scratch):
    """Parts the programs that have packages of their own from the rest, as trees: the rest, and theirs by name."""
    whole = scratch / "main"
    shutil.copytree(usr, whole / "usr")
    apart = {}
    for program in APART:
        root = apart[program] = scratch / program
        moved = [whole / "usr/bin" / program, *(whole / "usr/share/man/man1").glob(f"{program}[.-]*")]
        if program == "anabranch-lab":
            moved += (whole / "usr/share/man/man1").glob("anabranch-soak*")
        for path in sorted(moved):
            place = root / path.relative_to(whole)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, place)
    return whole, apart


def make(options):
    """Makes everything, and returns the files."""
    out = options.out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or said("git", "log", "-1", "--format=%ct"))
    built = build(options)
    machine = os.uname().machine if options.target == "host" else options.target.split("-")[0]
    details = {"version": version(), "architecture": ARCHITECTURES[machine],
               "maintainer": said("git", "log", "-1", "--format=%an <%ae>"),
               "depends": "libc6" if options.target == "host" else "",
               "compression": ["-Zgzip", "-z1"] if options.quick else ["-Zxz"]}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        usr = tree(built, scratch, options.target)
        whole, apart = split(usr, scratch)
        made = [
            archive(usr, f"anabranch-{details['version']}-{machine}-linux", out, when, 1 if options.quick else 9),
            debian(whole, "anabranch", SUMMARY, details, out, when),
            *(debian(root, program, APART[program], details | {"depends": f"anabranch (= {details['version']})"}, out, when)
              for program, root in apart.items()),
        ]
        if options.target != "host":
            made.append(oci_image.image(sorted((whole / "usr/bin").iterdir()), details, out, when))
    listed = out / f"anabranch-{details['version']}.cdx.json"
    listed.write_text(sbom.bill(ROOT, "anabranch-cli", [FEATURES], options.target, when), encoding="utf-8")
    made.append(listed)
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in made)
    (out / "SHA256SUMS").write_text(sums)
    shutil.copy(ROOT / "contrib/install.sh", out)
    return made


def attempt(options, made):
    """Installs the packages on a clean Debian, and downloads there from a server of this machine."""
    listed = json.loads(next(options.out.glob("*.cdx.json")).read_text(encoding="utf-8"))
    names = {one["name"] for one in listed["components"]}
    assert "rustls" in names and "proptest" not in names, "the list of what the programs are built of is wrong"
    if options.target in FOREIGN:
        return foreign(options)
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch) / "root"
        try:
            subprocess.run(["debootstrap", "--variant=minbase", options.suite, root, *options.mirror], check=True,
                           stdout=subprocess.DEVNULL)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            print(f"no clean Debian can be made: {error}", file=sys.stderr)
            raise SystemExit(NOT_TRIED) from error
        content = os.urandom(5_000_000)
        served = pathlib.Path(scratch) / "served"
        served.mkdir()
        (served / "f").write_bytes(content)
        server = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", served, "26299"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            began = time.monotonic()
            for path in options.out.glob("*.deb"):
                shutil.copy(path, root / "mnt")
            inside = ["chroot", root, "/usr/bin/env", "HOME=/mnt", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
            subprocess.run([*inside, "sh", "-c", "dpkg -i /mnt/*.deb"], check=True, stdout=subprocess.DEVNULL)
            digest = hashlib.sha256(content).hexdigest()
            url = "http://127.0.0.1:26299/f"
            subprocess.run([*inside, "anabranch", "get", "-q", "--checksum", digest, "-o", "/mnt/f", url], check=True)
            taken = time.monotonic() - began
            assert (root / "mnt/f").read_bytes() == content
            subprocess.run([*inside, "anabranch", "lab", "list"], check=True, stdout=subprocess.DEVNULL)
            listed = subprocess.run([*inside, "dpkg", "-L", "anabranch"], check=True, stdout=subprocess.PIPE, text=True).stdout
            for wanted in ("/usr/share/man/man1/anabranch-get.1.gz", "/usr/share/bash-completion/completions/anabranch"):
                assert wanted in listed.splitlines(), wanted
            subprocess.run([*inside, "dpkg", "-r", *APART, "anabranch"], check=True, stdout=subprocess.DEVNULL)
            assert not (root / "usr/bin/anabranch").exists()
            print(f"from packages to a verified download on a clean Debian: {taken:.1f} s")
            installer(options, root, inside, digest, url)
            for path in options.out.glob("*-image.tar"):
                image(path, pathlib.Path(scratch) / "image", digest, url)
        finally:
            server.terminate()
            server.wait()


def foreign(options):
    """Downloads by the archive's program for another processor, as far as its emulator does."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["tar", "-xf", next(options.out.glob("*.tar.gz")), "-C", scratch, "--strip-components=1"], check=True)
        served = pathlib.Path(scratch) / "served"
        served.mkdir()
        (served / "f").write_bytes(content := os.urandom(5_000_000))
        server = subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", served, "26299"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            digest = hashlib.sha256(content).hexdigest()
            subprocess.run([FOREIGN[options.target][1], f"{scratch}/bin/anabranch", "get", "-q", "--checksum", digest, "-o",
                            f"{scratch}/f", "http://127.0.0.1:26299/f"], check=True)
            assert pathlib.Path(scratch, "f").read_bytes() == content
        finally:
            server.terminate()
            server.wait()
        print(f"{options.target}: downloads, in {FOREIGN[options.target][1]}")


def installer(options, root, inside, digest, url):
    """Installs the archive by the shell script, and sees that a damaged one is refused."""
    shutil.copytree(options.out, root / "mnt/dist")
    subprocess.run([*inside, "sh", "/mnt/dist/install.sh", "--from", "/mnt/dist", "--to", "/usr/local"], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([*inside, "/usr/local/bin/anabranch", "get", "-q", "--force", "--checksum", digest, "-o", "/mnt/f", url], check=True)
    damaged = next((root / "mnt/dist").glob("*.tar.gz"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    refused = subprocess.run([*inside, "sh", "/mnt/dist/install.sh", "--from", "/mnt/dist", "--to", "/mnt/other"],
                             check=False, capture_output=True, text=True)
    assert refused.returncode and not (root / "mnt/other").exists(), refused
    print("install.sh: installs, and refuses a damaged archive")


def image(path, place, digest, url):
    """Runs the program of an image in nothing but its files."""
    place.mkdir()
    subprocess.run(["skopeo", "copy", "--quiet", f"oci-archive:{path}", f"dir:{place}/copied"], check=True)
    manifest = json.loads((place / "copied/manifest.json").read_text())
    root = place / "root"
    root.mkdir()
    layer = place / "copied" / manifest["layers"][0]["digest"].removeprefix("sha256:")
    subprocess.run(["tar", "-xf", layer, "-C", root], check=True)
    subprocess.run(["chroot", root, "/usr/bin/anabranch", "get", "-q", "--checksum", digest, "-o", "/tmp/f", url], check=True)
    assert hashlib.sha256((root / "tmp/f").read_bytes()).hexdigest() == digest
    print(f"image: downloads; {path.stat().st_size / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="release", help="cargo's profile")
    parser.add_argument("--target", default="x86_64-unknown-linux-musl", help="cargo's target, or host")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/dist")
    parser.add_argument("--no-build", action="store_true", help="the programs are built already")
    parser.add_argument("--quick", action="store_true", help="compress little")
    parser.add_argument("--try", dest="attempt", action="store_true", help="install them on a clean Debian (root)")
    parser.add_argument("--suite", default="stable", help="of Debian, for --try")
    parser.add_argument("--mirror", action="append", default=[], help="of Debian, for --try")
    options = parser.parse_args()
    options.out = options.out.resolve()
    made = make(options)
    for path in made:
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    if options.attempt:
        attempt(options, made)


if __name__ == "__main__":
    main()
