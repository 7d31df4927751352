"""Each ``case_*.py`` as one test: the script must exit 0.

A process that has imported torch and oxyfuel forks a child for each script, so that importing is paid
once. Scripts know nothing of it; ``python case_NNN_*.py`` is the same run.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SECONDS = 60


class Forker:
    def __init__(self):
        self.process = None

    def run(self, script):
        if self.process is None or self.process.poll() is not None:
            env = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "forker.py"), str(SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=env,
                cwd=HERE,
            )
        self.process.stdin.write(f"{script}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(SECONDS)


@pytest.fixture(scope="module")
def forker():
    forker = Forker()
    yield forker
    forker.close()


@pytest.mark.parametrize("script", sorted(HERE.glob("case_*.py")), ids=lambda path: path.stem)
def test_case(script, forker):
    result = forker.run(script)
    assert result["status"] == 0, f"exit {result['status']}: {result['output'][-2000:]}"
