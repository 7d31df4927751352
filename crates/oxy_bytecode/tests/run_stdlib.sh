#!/bin/sh
# Decodes and checks every code object of the standard library of the given interpreters.
#   tests/run_stdlib.sh python3.11 python3.12 python3.13
set -eu
here=$(dirname "$0")
[ $# -gt 0 ] || { echo "usage: $0 PYTHON..." >&2; exit 2; }
dump=$(mktemp)
trap 'rm -f "$dump"' EXIT
for python; do
    "$python" "$here/dump_code.py" stdlib >"$dump"
    cargo run --quiet --package oxy_bytecode --bin decode_stdlib <"$dump"
done
