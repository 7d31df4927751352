"""install(), ``python -m oxyfuel run`` and torch's own entry to our backend."""

import subprocess
import sys
import textwrap

import pytest
import torch

import oxyfuel


@pytest.fixture
def installed():
    oxyfuel.install()
    yield
    oxyfuel.uninstall()


def f(x):
    return x * 2 + 1


def test_takes_over_and_gives_back():
    before = torch.compile, torch.nn.Module.compile, torch.compiler.reset, torch.compiler.set_stance
    oxyfuel.install()
    oxyfuel.install()
    try:
        compiled = torch.compile(f, mode="max-autotune", dynamic=False)
        assert isinstance(compiled, oxyfuel._engine.CompiledFunction) and compiled.__wrapped__ is f
    finally:
        oxyfuel.uninstall()
    assert (torch.compile, torch.nn.Module.compile, torch.compiler.reset, torch.compiler.set_stance) == before


def test_torchs_default_backend_means_ours(installed):
    before = oxyfuel.stats()["graphs"]
    x = torch.ones(3)
    torch.testing.assert_close(torch.compile(f, backend="inductor", options={"epilogue_fusion": True})(x), f(x))
    assert oxyfuel.stats()["graphs"] == before + 1


def test_modules_in_place_and_decorators(installed):
    before = oxyfuel.stats()["graphs"]
    model = torch.nn.Linear(3, 3)
    want = model(torch.ones(3))
    model.compile(fullgraph=True)
    torch.testing.assert_close(model(torch.ones(3)), want)

    @torch.compile(fullgraph=True)
    def g(x):
        return x - 1

    torch.testing.assert_close(g(torch.ones(3)), torch.zeros(3))
    assert oxyfuel.stats()["graphs"] == before + 2


def run(*arguments, cwd, status=0):
    result = subprocess.run(
        [sys.executable, "-m", "oxyfuel", *arguments], cwd=cwd, capture_output=True, text=True, timeout=100
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result


PROGRAM = textwrap.dedent(
    """
    import sys, torch
    import neighbour

    @torch.compile
    def f(x):
        return x * neighbour.K

    if __name__ == "__main__":
        print(f(torch.ones(2)).tolist(), sys.argv[1:], type(f).__name__)
        sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    """
)


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "neighbour.py").write_text("K = 3\n")
    return tmp_path


def test_run_a_script_from_another_folder(program):
    result = run("run", str(program / "program.py"), "0", "--flag", "-x", cwd="/")
    assert result.stdout.strip() == "[3.0, 3.0] ['0', '--flag', '-x'] CompiledFunction"


def test_run_a_module_and_its_exit_status(program):
    result = run("run", "-m", "program", "7", cwd=program, status=7)
    assert "CompiledFunction" in result.stdout


def test_run_what_is_not_there(program):
    assert "nothing.py" in run("run", "nothing.py", cwd=program, status=2).stderr


def test_version(program):
    assert run("--version", cwd=program).stdout.strip() == oxyfuel.__version__


def test_backend_of_torch_compile():
    code = textwrap.dedent(
        """
        import torch
        f = torch.compile(lambda x: (x * 2).relu() + 1, backend="oxyfuel", fullgraph=True)
        x = torch.linspace(-1, 1, 8)
        torch.testing.assert_close(f(x), (x * 2).relu() + 1)
        print("ok", "oxyfuel" in torch.compiler.list_backends())
        """
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert result.stdout.split() == ["ok", "True"], result.stderr[-3000:]
