#!/bin/sh
# Installs anabranch's programs, manual pages and completions: the archive that contrib/dist.py makes, after its
# check sum has been compared.
#
#   sh install.sh --from https://HOST/DIRECTORY            into ~/.local
#   sudo sh install.sh --from DIRECTORY --to /usr/local    for everybody
#
# The sum protects from damage, not from an attacker who can change both files: over https it is as trustworthy as the host.
set -eu

from='' to="$HOME/.local"
usage() {
    echo "usage: sh install.sh --from URL|DIRECTORY [--to DIRECTORY]" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
    --from) from=$2 ;;
    --to) to=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ -n "$from" ] || usage

machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch NAME: brings a file into the work directory.
fetch() {
    case $from in
    http://* | https://*)
        if command -v curl >/dev/null; then
            curl -fsSL -o "$work/$1" "$from/$1"
        else
            wget -q -O "$work/$1" "$from/$1"
        fi
        ;;
    *) cp "$from/$1" "$work/$1" ;;
    esac
}

fetch SHA256SUMS
line=$(grep -- "-$machine-linux.tar.gz\$" "$work/SHA256SUMS") || {
    echo "install.sh: there is no archive for $machine in $from" >&2
    exit 1
}
name=${line##* }
fetch "$name"
(cd "$work" && echo "$line" | sha256sum -c --quiet -) || {
    echo "install.sh: $name is damaged: nothing was installed; run it again" >&2
    exit 1
}
mkdir -p "$to"
tar -xzf "$work/$name" -C "$to" --strip-components=1 --no-same-owner
echo "installed in $to: try $to/bin/anabranch --help"
case ":$PATH:" in
*":$to/bin:"*) ;;
*) echo "$to/bin is not in PATH: add it to use \`anabranch\` by its name" ;;
esac
