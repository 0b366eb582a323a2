"""Lists what the programs are built of, as CycloneDX 1.5 (JSON): each crate with its version, licence, source and check sum. For contrib/dist.py.

It is read from cargo's metadata and Cargo.lock, so it lists what may be in a program; dependencies that only tests use are left out.
"""

import json
import pathlib
import subprocess
import time
import tomllib

REGISTRY = "registry+"


def reached(metadata, roots):
    """Returns the packages that programs are built of, by their ids, and what each of them uses."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    uses, open_ids = {}, list(roots)
    while open_ids:
        package = open_ids.pop()
        if package in uses:
            continue
        normal = [dep["pkg"] for dep in nodes[package]["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        uses[package] = sorted(normal)
        open_ids += normal
    return uses


def bill(root, package, features, target, when):
    """Returns the list for a package with these features, as text."""
    argv = ["cargo", "metadata", "--locked", "--format-version", "1", "--features", ",".join(f"{package}/{feature}" for feature in features)]
    argv += ["--filter-platform", target] if target != "host" else []
    metadata = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, cwd=root).stdout)
    lock = tomllib.loads((pathlib.Path(root) / "Cargo.lock").read_text(encoding="utf-8"))
    sums = {(one["name"], one["version"]): one["checksum"] for one in lock["package"] if "checksum" in one}
    packages = {one["id"]: one for one in metadata["packages"]}
    main = next(one["id"] for one in metadata["packages"] if one["name"] == package)
    uses = reached(metadata, [main])

    def reference(identity):
        return f"pkg:cargo/{packages[identity]['name']}@{packages[identity]['version']}"

    def component(identity):
        of = packages[identity]
        shown = {"type": "library", "bom-ref": reference(identity), "name": of["name"], "version": of["version"]}
        if of.get("license"):
            shown["licenses"] = [{"expression": of["license"].replace("/", " OR ")}]
        if (of.get("source") or "").startswith(REGISTRY):
            shown["purl"] = reference(identity)
        if (of["name"], of["version"]) in sums:
            shown["hashes"] = [{"alg": "SHA-256", "content": sums[of["name"], of["version"]]}]
        return shown

    others = sorted((identity for identity in uses if identity != main), key=reference)
    return json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
                     "component": component(main) | {"type": "application", "name": "anabranch"}},
        "components": [component(identity) for identity in others],
        "dependencies": [{"ref": reference(one), "dependsOn": sorted({reference(dep) for dep in uses[one]})} for one in [main, *others]],
    }, indent=1) + "\n"
