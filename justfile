# The verbs of this repository. `just` alone lists them.

_list:
    @just --list --unsorted

# The live demonstration: three sources, one dies and comes back. No network, no root.
demo *args:
    cargo run --release -p anabranch-cli -- demo {{ args }}

# All tests.
test *args:
    cargo test --workspace {{ args }}

# All tests in their long form, as root: more seeds and kills, and minutes of the real kernel. About half an hour.
long *args:
    ANABRANCH_LONG=1 cargo test --workspace --features anabranch-cli/all --features anabranch-cli/kernel {{ args }}

# What the controllers inside Linux do there, in its long form, as root: coupling, and shares beside a TCP flow.
kernel:
    ANABRANCH_LONG=1 cargo test -p anabranch-kernel --features ebpf
    ANABRANCH_LONG=1 cargo test -p anabranch-cli --features all --features kernel --test lab kernel

# Every program into ~/.cargo/bin. With congestion control inside Linux: `just install kernel`, see docs/kernel.md.
install *features:
    cargo install --path crates/cli --locked --features "all {{ features }}"

# What a change must pass: format, lints, documentation, tests.
check:
    cargo fmt --all --check
    rustfmt --edition 2024 --check crates/core/algo/src/control/*.rs crates/core/algo/src/control/*/*.rs
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --features anabranch-cli/all
    cargo test --workspace
    cargo test -p anabranch --features tokio
    python3 -m unittest discover -s bench

# Run every scenario and write its table beside it, so that any diff is a real change.
tables *args:
    cargo run --release -p anabranch-cli --features lab --bin anabranch-lab -- run --all --save {{ args }}

# Fig. 4.16 and 4.17 again, into docs/domain-scale.md: minutes.
domain *args:
    cargo run --release -p anabranch-cli --features lab --bin anabranch-lab -- domain --report docs/domain-scale.md {{ args }}

# Licences, advisories, sources of dependencies (needs cargo-deny).
deny:
    cargo deny check

# Measure, beside the peers, into docs/measurements and docs/performance.md (root for the namespace rows). See bench/README.md.
bench *args:
    python3 bench/compare.py {{ args }}

# Every fuzz target for so many seconds each (needs a nightly toolchain and cargo-fuzz). Begins with what is in
# fuzz/corpus; what it finds goes to fuzz/found.
fuzz seconds="600":
    #!/usr/bin/env bash
    set -euo pipefail
    for target in $(cargo +nightly fuzz list); do
        echo "== $target"
        mkdir -p "fuzz/found/$target" "fuzz/corpus/$target"
        cargo +nightly fuzz run "$target" "fuzz/found/$target" "fuzz/corpus/$target" -- -max_total_time={{ seconds }} -timeout=10
    done

# Random worlds by the thousand, with arithmetic and assertions checked: `just soak --seeds 1..100000`.
soak *args:
    CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true \
        cargo run --release -p anabranch-cli --features lab --bin anabranch-lab --target-dir target/soak \
        -- soak {{ args }}

# The wheel of the Python module, with `anabranch` and `anabranch trace` in it, into target/wheels: minutes. Needs maturin (`pip install maturin`).
wheel *args:
    cargo build --release -p anabranch-cli --features trace
    mkdir -p python/anabranch.data/scripts
    cp "${CARGO_TARGET_DIR:-target}"/release/anabranch{,-trace} python/anabranch.data/scripts/
    maturin build --release --manifest-path python/Cargo.toml {{ args }}

# Packages for users, into target/dist: docs/install.md. Minutes; needs the target x86_64-unknown-linux-musl and musl-tools.
dist *args:
    python3 contrib/dist.py {{ args }}
