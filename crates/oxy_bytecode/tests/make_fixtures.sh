#!/bin/sh
# Dumps the code objects of tests/fixtures/*.py with each of the given interpreters, into one folder per version.
#   tests/make_fixtures.sh python3.11 python3.12 python3.13 && BLESS=1 cargo test -p oxy_bytecode
# A source that an interpreter is too old for has no dump in its folder.
set -eu
cd "$(dirname "$0")/fixtures"
for python; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    mkdir -p "$version"
    for source in *.py; do
        dump=$version/${source%.py}.code
        "$python" ../dump_code.py file "$source" >"$dump" 2>/dev/null || rm "$dump"
    done
done
