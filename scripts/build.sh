#!/usr/bin/env bash
# Builds the extension module for one interpreter and puts it where `import oxyfuel` finds it.
#
#   scripts/build.sh PYTHON          PYTHON: the interpreter of a virtual environment
#
# The module goes to python/oxyfuel/ under a name that carries the interpreter's version, so builds for
# several versions lie side by side. The environment's path gets this checkout's python/ folder.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$1
export LLVM_SYS_191_PREFIX=${LLVM_SYS_191_PREFIX:-/usr/lib/llvm-19}
export PYO3_PYTHON=$python PYO3_BUILD_EXTENSION_MODULE=1
target=${CARGO_TARGET_DIR:-target}

# Checkouts may share a target folder. The library there has one name for all of them, so one that
# another checkout built is removed first, or cargo could take it for ours.
if [ "$(cat "$target/.checkout" 2>/dev/null)" != "$PWD" ]; then
  rm -f "$target"/release/lib_engine.so "$target"/release/deps/lib_engine.so
  mkdir -p "$target"
  printf '%s\n' "$PWD" >"$target/.checkout"
fi

echo "build: engine for $("$python" --version), in $target"
cargo build --release --package oxy_py

read -r suffix site version < <("$python" - <<'PY'
import sysconfig, tomllib
with open("Cargo.toml", "rb") as file:
    version = tomllib.load(file)["workspace"]["package"]["version"]
print(sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_path("purelib"), version)
PY
)
module=python/oxyfuel/_engine$suffix
# a new file, moved into place: processes that have the old one mapped keep it
cp "$target/release/lib_engine.so" "$module.new"
mv "$module.new" "$module"

# What an installed package would have: its place on the path, and its entry points.
printf '%s\n' "$PWD/python" >"$site/oxyfuel-checkout.pth"
info=python/oxyfuel-$version.dist-info
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: oxyfuel\nVersion: %s\n' "$version" >"$info/METADATA"
"$python" - >"$info/entry_points.txt" <<'PY'
import tomllib
with open("pyproject.toml", "rb") as file:
    groups = tomllib.load(file)["project"]["entry-points"]
for group, points in groups.items():
    print(f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), sep="\n")
PY
echo "build: $module"
