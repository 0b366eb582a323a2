"""Makes an OCI image of static programs from scratch: an archive that podman, docker and skopeo load. For contrib/dist.py.

Its layer has the programs, the certificates of authorities that this machine believes, and /tmp. It runs as nobody.
"""

import gzip
import hashlib
import io
import json
import pathlib
import shutil
import subprocess
import tarfile
import time

CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
NOBODY = "65534:65534"


def entry(name, when, mode, kind=tarfile.REGTYPE, size=0):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime, info.size = kind, mode, when, size
    return info


def layer(programs, when):
    """Packs the only layer. Names are in order, and times are one."""
    files = {f"usr/bin/{path.name}": (path.read_bytes(), 0o755) for path in programs}
    if CERTIFICATES.exists():
        files[str(CERTIFICATES.relative_to("/"))] = (CERTIFICATES.read_bytes(), 0o644)
    folders = {str(parent) for name in files for parent in pathlib.PurePosixPath(name).parents if str(parent) != "."}
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in sorted(folders):
            tar.addfile(entry(folder, when, 0o755, tarfile.DIRTYPE))
        tar.addfile(entry("tmp", when, 0o1777, tarfile.DIRTYPE))
        for name, (body, mode) in sorted(files.items()):
            tar.addfile(entry(name, when, mode, size=len(body)), io.BytesIO(body))
    return whole.getvalue()


def packed(raw, when):
    """Packs a layer and returns its bytes and the end of its type: by zstd, which is a quarter smaller, or by gzip where there is no zstd."""
    if shutil.which("zstd"):
        return subprocess.run(["zstd", "-19", "--quiet", "--no-check", "-T1"], input=raw, stdout=subprocess.PIPE, check=True).stdout, "zstd"
    whole = io.BytesIO()
    with gzip.GzipFile(fileobj=whole, mode="wb", mtime=when, compresslevel=9) as file:
        file.write(raw)
    return whole.getvalue(), "gzip"


def image(programs, details, out, when):
    """Writes the archive and returns its path. `details` has the version and the architecture, in Debian's words."""
    raw = layer(programs, when)
    blobs = {}

    def blob(body, kind):
        digest = hashlib.sha256(body).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = body
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(body)}

    def document(value):
        return json.dumps(value, sort_keys=True).encode()

    body, way = packed(raw, when)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    config = blob(document({
        "architecture": details["architecture"], "os": "linux", "created": created,
        "config": {"Entrypoint": ["/usr/bin/anabranch"], "User": NOBODY, "WorkingDir": "/tmp", "Env": ["PATH=/usr/bin", "HOME=/tmp"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(raw).hexdigest()}"]},
    }), "config.v1+json")
    manifest = blob(document({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
        "layers": [blob(body, f"layer.v1.tar+{way}")],
    }), "manifest.v1+json")
    manifest["annotations"] = {"org.opencontainers.image.ref.name": f"anabranch:{details['version']}"}
    blobs["index.json"] = document({"schemaVersion": 2, "manifests": [manifest]})
    blobs["oci-layout"] = document({"imageLayoutVersion": "1.0.0"})
    path = out / f"anabranch-{details['version']}-{details['architecture']}-image.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, body in sorted(blobs.items()):
            tar.addfile(entry(name, when, 0o644, size=len(body)), io.BytesIO(body))
    return path
