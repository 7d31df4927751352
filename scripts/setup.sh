#!/usr/bin/env bash
# Brings a machine to the state that `make build` and `make test` need, and says what it does.
# Running it again is cheap: every step first looks whether it is already done.
#
#   scripts/setup.sh [PYTHON...]     default: python3
#
# One virtual environment for each interpreter, outside the checkout: $OXYFUEL_VENV (for the first
# only), else $OXYFUEL_HOME/venv-<version>; OXYFUEL_HOME defaults to ~/.cache/oxyfuel. Wheels are
# unpacked once into $OXYFUEL_HOME/uv and hard-linked into the environments, so that three of them
# share one copy of torch's CUDA libraries: one takes 5.5 GB, three take 9 GB.
set -euo pipefail
cd "$(dirname "$0")/.."

OXYFUEL_HOME=${OXYFUEL_HOME:-$HOME/.cache/oxyfuel}
APT_PACKAGES=(g++ libffi-dev libpolly-19-dev libxml2-dev libzstd-dev llvm-19-dev make python3-dev python3-venv zlib1g-dev)
GROUPS_WANTED=(test models lint) # dependency groups of pyproject.toml
RUST_MINIMUM=1.95

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

install_system_packages() {
  local missing=() package sudo=()
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: needs LLVM 19 with headers and static libraries (LLVM_SYS_191_PREFIX), g++, make"
    return
  fi
  for package in "${APT_PACKAGES[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "system packages: all there"
    return
  fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "install these as root first: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "system packages: installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

check_rust() {
  command -v cargo >/dev/null ||
    die "cargo is not on the PATH. Install Rust $RUST_MINIMUM or newer (rustup, or your distribution) and run this again."
  local have
  have=$(rustc --version | cut -d' ' -f2)
  [ "$(printf '%s\n%s\n' "$RUST_MINIMUM" "$have" | sort -V | head -1)" = "$RUST_MINIMUM" ] ||
    die "rustc is $have; oxyfuel needs $RUST_MINIMUM or newer (rustup update)"
  say "rust: $have"
}

# $1 interpreter, $2 folder
make_environment() {
  local python=$1 venv=$2 group stamp arguments=()
  "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
    die "$python is $("$python" --version 2>&1); oxyfuel supports CPython 3.11, 3.12 and 3.13"
  for group in "${GROUPS_WANTED[@]}"; do arguments+=(--group "pyproject.toml:$group"); done
  stamp="$venv/.oxyfuel-$(sed -n '/^\[dependency-groups\]/,/^\[tool/p' pyproject.toml | sha256sum | cut -c1-16)"
  if [ -f "$stamp" ]; then
    say "environment $venv: up to date"
    return
  fi
  if [ ! -x "$venv/bin/python" ]; then
    say "environment $venv: creating for $("$python" --version)"
    "$python" -m venv "$venv"
  fi
  # uv, from PyPI like everything else: it shares unpacked wheels between environments
  [ -x "$venv/bin/uv" ] || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
  say "environment $venv: installing ${GROUPS_WANTED[*]}"
  UV_CACHE_DIR="$OXYFUEL_HOME/uv" UV_LINK_MODE=hardlink "$venv/bin/uv" pip install --quiet \
    --python "$venv/bin/python" "${arguments[@]}"
  rm -f "$venv"/.oxyfuel-*
  touch "$stamp"
}

venv_for() { printf '%s/venv-%s' "$OXYFUEL_HOME" "$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; }

[ $# -gt 0 ] || set -- python3
mkdir -p "$OXYFUEL_HOME"
install_system_packages
check_rust
main=${OXYFUEL_VENV:-$(venv_for "$1")}
make_environment "$1" "$main"
shift
for python in "$@"; do
  venv=$(venv_for "$python")
  [ "$venv" = "$main" ] || make_environment "$python" "$venv"
done
say "done"
