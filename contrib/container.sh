#!/bin/sh
# Makes a container image from scratch: one static program of anabranch and nothing else.
#   rustup target add x86_64-unknown-linux-musl        (and the package musl-tools)
#   cargo build --release --target x86_64-unknown-linux-musl -p anabranch-cli --features minicache --bin anabranch-minicache
#   contrib/container.sh PROGRAM ARCHIVE WORDS…
# WORDS are those that the program gets if `podman run` names none. Such as
#   contrib/container.sh target/x86_64-unknown-linux-musl/release/anabranch-minicache minicache.tar serve /data/cache.img --listen 0.0.0.0:8480
#   podman load -i minicache.tar
#   podman run -p 8480:8480 -v ./data:/data:Z localhost/anabranch-minicache
# Needs buildah. What the program keeps is in /data; the cache file of minicache is /data/cache.img, which `anabranch minicache make` and
# `add` make outside.
set -eu
program=$1 archive=$2
shift 2
name=$(basename "$program")
if [ -e "$archive" ]; then
    echo "$archive is there already" >&2
    exit 1
fi
container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
buildah copy -q --chmod 755 "$container" "$program" "/$name" >/dev/null
buildah config --entrypoint "[\"/$name\"]" --cmd "$*" --volume /data --stop-signal SIGTERM "$container"
buildah commit -q "$container" "oci-archive:$archive:localhost/$name" >/dev/null
ls -l "$archive"
