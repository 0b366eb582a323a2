#!/usr/bin/env bash
# Random worlds of two stacks (mptcp/tests/virtual_time/random.rs), a thousand seeds at a time, at idle priority, until
# the time is up: bench/mptcp_seeds.sh FROM MINUTES. Prints how many seeds ran, and ends at the first that fails.
set -euo pipefail
cd "$(dirname "$0")/.."
from=${1:?the first seed} minutes=${2:?minutes}
nice -n 19 cargo test --quiet --release -p anabranch-mptcp --test virtual_time --no-run
said=$(mktemp)
trap 'rm -f "$said"' EXIT
first=$from end=$((SECONDS + 60 * minutes))
while ((SECONDS < end)); do
    ANABRANCH_SEEDS="$from..$((from + 1000))" nice -n 19 cargo test --quiet --release -p anabranch-mptcp \
        --test virtual_time random >"$said" 2>&1 || { cat "$said"; exit 1; }
    from=$((from + 1000))
    echo "$((from - first)) seeds from $first on: none failed"
done
