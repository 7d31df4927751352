#!/usr/bin/env bash
# Runs the given scripts once for every supported CPython on this machine, without torch.
# Each is called with the interpreter as its argument and in $PYTHON and $PYO3_PYTHON.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t pythons < <(scripts/find_pythons.sh)
found=$(for python in "${pythons[@]}"; do "$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; done)
for version in 3.11 3.12 3.13; do
  grep -qx "$version" <<<"$found" || echo "test-frames: CPython $version is not on this machine: nothing ran for it"
done
for python in "${pythons[@]}"; do
  for script in "$@"; do
    echo "test-frames: $script on $("$python" --version)"
    PYTHON=$python PYO3_PYTHON=$python bash "$script" "$python"
  done
done
