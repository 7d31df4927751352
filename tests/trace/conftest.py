import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "conformance", "tracing"))


@pytest.fixture(autouse=True)
def fresh():
    import oxyfuel

    yield
    oxyfuel.reset()
