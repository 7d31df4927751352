#!/bin/sh
# Runs the standard library's tests of the language with every frame stepped through. Minutes; not part of CI.
#
#   tests/frames/run_stdlib.sh PYTHON [test module ...]
set -eu
python=$1
shift
here=$(dirname "$0")
"$here/run.sh" "$python" every_instruction_of_no_case >/dev/null 2>&1 || true
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
target=$(cd "$here/../.." && mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)
OXY_FRAMES_STRESS=$target/frames-$version/stress exec "$python" -X faulthandler "$here/test_stdlib.py" "$@"
