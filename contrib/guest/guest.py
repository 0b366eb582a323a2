#!/usr/bin/env python3
"""Makes the small Linux guest with which moves of machines are tested: vmlinuz and initrd in a directory.

    python3 contrib/guest/guest.py DIR

The kernel is Debian's for clouds, downloaded by apt-get and unpacked, not installed; the only program is init.c beside
this file. Does nothing if the directory has them already. Needs Debian, a C compiler and libc's static library.
"""

import os
import pathlib
import stat
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
#: In the order in which they are loaded; those that the kernel has built in are skipped.
MODULES = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_console",
           "failover", "net_failover", "virtio_net", "virtio_blk"]


def run(*argv, **keywords):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, **keywords).stdout


def entry(name, mode, data=b""):
    """Returns a file in the form of cpio(5), "new ASCII"."""
    encoded = name.encode() + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0]
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def unpack_kernel(scratch):
    """Downloads and unpacks the kernel's package, and returns its directory."""
    listed = run("apt-cache", "depends", "linux-image-cloud-amd64")
    names = [line.split()[-1] for line in listed.splitlines() if "Depends: linux-image-" in line]
    if not names:
        sys.exit("apt-cache knows no linux-image-cloud-amd64: is this Debian, and are its lists there (apt-get update)?")
    run("apt-get", "download", "-q", names[0], cwd=scratch)
    package = next(scratch.glob("linux-image-*.deb"))
    run("dpkg-deb", "-x", package, scratch / "kernel")
    return scratch / "kernel"


def initrd(kernel, scratch):
    """Returns the initial file system."""
    run("cc", "-static", "-O2", "-pthread", "-w", "-o", scratch / "init", HERE / "init.c")
    files = [entry("modules", stat.S_IFDIR | 0o755), entry("dev", stat.S_IFDIR | 0o755)]
    for n, name in enumerate(MODULES):
        for path in list(kernel.glob(f"**/{name}.ko"))[:1]:
            files.append(entry(f"modules/{n:02}-{name}.ko", stat.S_IFREG | 0o644, path.read_bytes()))
        for path in list(kernel.glob(f"**/{name}.ko.xz"))[:1]:
            data = subprocess.run(["xz", "-dc", path], check=True, stdout=subprocess.PIPE).stdout
            files.append(entry(f"modules/{n:02}-{name}.ko", stat.S_IFREG | 0o644, data))
    files.append(entry("init", stat.S_IFREG | 0o755, (scratch / "init").read_bytes()))
    files.append(entry("TRAILER!!!", 0))
    return b"".join(files)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    place = pathlib.Path(sys.argv[1])
    newest = max(path.stat().st_mtime for path in (HERE / "init.c", HERE / "guest.py"))
    if all((place / name).exists() and (place / name).stat().st_mtime > newest for name in ("vmlinuz", "initrd")):
        return
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        kernel = unpack_kernel(scratch)
        for name, data in (("initrd", initrd(kernel, scratch)), ("vmlinuz", next(kernel.glob("boot/vmlinuz-*")).read_bytes())):
            draft = place / f"{name}.{os.getpid()}"
            draft.write_bytes(data)
            draft.rename(place / name)


if __name__ == "__main__":
    try:
        main()
    except (OSError, subprocess.CalledProcessError, StopIteration) as error:
        sys.exit(f"no guest can be made: {error}")
