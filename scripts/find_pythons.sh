#!/usr/bin/env bash
# Prints one working interpreter for each supported version of CPython on this machine, oldest first.
# A version counts by what the interpreter says, since a pyenv shim may exist for one that is not active.
set -euo pipefail

for version in 3.11 3.12 3.13; do
  for candidate in "python$version" python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python3; do
    path=$(command -v "$candidate" 2>/dev/null) || continue
    found=$("$path" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)' 2>/dev/null) || continue
    if [ "${found%% *}" = "$version" ]; then
      printf '%s\n' "${found#* }"
      break
    fi
  done
done
