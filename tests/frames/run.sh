#!/bin/sh
# Builds the stress module for one CPython and runs the stress with it, also under the debugging allocator.
#
#   tests/frames/run.sh PYTHON [substring of a case's name]
set -eu
python=$1
wanted=${2:-}
cd "$(dirname "$0")/../.."
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# A target directory per version: PyO3 is configured for one interpreter, and switching rebuilds it.
target=${CARGO_TARGET_DIR:-target}/frames-$version
PYO3_PYTHON=$python PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR=$target \
    cargo build --quiet -p oxy_frames_stress
mkdir -p "$target/stress"
cp "$target/debug/liboxy_frames_stress.so" "$target/stress/oxy_frames_stress.so"
export OXY_FRAMES_STRESS="$target/stress"
case $OXY_FRAMES_STRESS in /*) ;; *) OXY_FRAMES_STRESS=$PWD/$OXY_FRAMES_STRESS ;; esac
"$python" tests/frames/test_stress.py "$wanted"
PYTHONMALLOC=debug "$python" tests/frames/test_stress.py "$wanted"
