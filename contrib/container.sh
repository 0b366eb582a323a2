#!/bin/sh
# Makes a container image of `anabranch minicache` from scratch: one static program and nothing else.
#   rustup target add x86_64-unknown-linux-musl        (and the package musl-tools)
#   cargo build --release --target x86_64-unknown-linux-musl -p anabranch-cli --features minicache --bin anabranch-minicache
#   contrib/minicache-container.sh target/x86_64-unknown-linux-musl/release/anabranch-minicache minicache.tar
#   podman load -i minicache.tar
#   podman run -p 8480:8480 -v ./data:/data:Z localhost/anabranch-minicache
# Needs buildah. The cache file is /data/cache.img, which `anabranch minicache make` and `add` make outside.
set -eu
program=$1 archive=$2
if [ -e "$archive" ]; then
    echo "$archive is there already" >&2
    exit 1
fi
container=$(buildah from scratch)
trap 'buildah rm "$container" >/dev/null' EXIT
buildah copy -q --chmod 755 "$container" "$program" /anabranch-minicache >/dev/null
buildah config --entrypoint '["/anabranch-minicache"]' --cmd 'serve /data/cache.img --listen 0.0.0.0:8480' \
    --port 8480 --volume /data --stop-signal SIGTERM "$container"
buildah commit -q "$container" "oci-archive:$archive:localhost/anabranch-minicache" >/dev/null
ls -l "$archive"
