"""What ARCHITECTURE.md and CONTRIBUTING.md promise about the tree, as far as a program can check it."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_PYTHON = ("Vocabulary", "Tensor side", "Execution")
LINES_MAX = 800


def tracked(*patterns):
    listing = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("the tree is not a git checkout")
    return [ROOT / line for line in listing.stdout.splitlines() if (ROOT / line).exists()]


def groups():
    """``{crate: group}`` in the order of ARCHITECTURE.md's table."""
    group, found = "", {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        if heading := re.match(r"\| \*\*(.+?)\*\* \|", line):
            group = heading[1]
        elif crate := re.match(r"\| `(oxy_\w+)` \|", line):
            found[crate[1]] = group
    return found


def manifest(crate):
    with open(ROOT / "crates" / crate / "Cargo.toml", "rb") as file:
        return tomllib.load(file)


def test_the_map_has_every_crate():
    assert set(groups()) == {path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml")}


def test_dependencies_point_up_the_map():
    order = list(groups())
    for crate in order:
        needed = [name for name in manifest(crate).get("dependencies", {}) if name.startswith("oxy_")]
        below = [name for name in needed if order.index(name) >= order.index(crate)]
        assert below == [], f"{crate} depends on {below}"


def test_no_python_in_vocabulary_tensor_side_and_execution():
    for crate, group in groups().items():
        if group in WITHOUT_PYTHON:
            assert "pyo3" not in manifest(crate).get("dependencies", {}), crate


def test_crates_said_to_have_no_unsafe_forbid_it():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    said = {crate for crate, line in re.findall(r"\| `(oxy_\w+)` (\|.*)", text) if "no unsafe" in line}
    said |= {crate for crate, group in groups().items() if group == "Vocabulary"}
    for crate in said:
        assert "#![forbid(unsafe_code)]" in (ROOT / "crates" / crate / "src/lib.rs").read_text(), crate


def test_files_are_short_and_say_what_they_are():
    for path in tracked("crates/*.rs", "python/*.py", "demo/*.py", "scripts/*"):
        lines = path.read_text().splitlines()
        assert len(lines) <= LINES_MAX, f"{path}: {len(lines)} lines"
        if path.suffix == ".rs":
            assert lines and lines[0].startswith("//!"), f"{path} does not say what it is"


def test_no_unfinished_work():
    for path in tracked("crates/*.rs", "python/*.py"):
        found = re.search(r"\b(todo|unimplemented)!\(|NotImplementedError\(|\bTODO\b", path.read_text())
        assert found is None, f"{path}: {found and found[0]}"
