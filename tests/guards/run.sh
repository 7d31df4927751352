#!/bin/sh
# Builds the guards' test module for one CPython and runs the tests with it, also under the debugging allocator.
#
#   tests/guards/run.sh PYTHON [--bench]
set -eu
python=$1
shift
cd "$(dirname "$0")/../.."
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
profile=debug
release=
if [ "${1:-}" = --bench ]; then
    profile=release
    release=--release
fi
# A target directory per version: PyO3 is configured for one interpreter, and switching rebuilds it.
target=${CARGO_TARGET_DIR:-target}/guards-$version
PYO3_PYTHON=$python PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR=$target \
    cargo build --quiet $release -p oxy_guards_stress
mkdir -p "$target/stress"
cp "$target/$profile/liboxy_guards_stress.so" "$target/stress/oxy_guards_stress.so"
OXY_GUARDS_STRESS=$(cd "$target/stress" && pwd)
export OXY_GUARDS_STRESS
if [ "$profile" = release ]; then
    exec "$python" tests/guards/bench_guards.py
fi
"$python" tests/guards/test_guards.py "$@"
PYTHONMALLOC=debug "$python" tests/guards/test_guards.py "$@"
