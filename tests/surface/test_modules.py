"""compile(module) gives a twin: the module's class, the module's state, compiled calls."""

import copy
import gc
import inspect
import pickle
import weakref

import pytest
import torch
from torch import nn

import oxyfuel

X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Net(nn.Module):
    """A net."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.label = "net"

    def forward(self, x, scale=1.0):
        return self.norm(self.inner(x)) * scale

    def helper(self, x):
        return self.inner(x)


def test_is_the_modules_class():
    net = Net()
    twin = oxyfuel.compile(net)
    assert isinstance(twin, Net) and twin is not net and twin._orig_mod is net
    assert type(twin).__name__ == "Net" and type(twin).__qualname__ == "Net" and type(twin).__module__ == __name__
    assert repr(twin) == repr(net) and type(twin).__doc__ == "A net."
    assert inspect.signature(twin.forward) == inspect.signature(net.forward)


def test_shares_all_state():
    net = Net()
    twin = oxyfuel.compile(net)
    assert list(twin.state_dict()) == list(net.state_dict())
    assert all(a is b for a, b in zip(twin.parameters(), net.parameters(), strict=True))
    twin.label = "renamed"
    twin.extra = nn.Linear(2, 2)
    assert net.label == "renamed" and net.extra is twin.extra and "extra.weight" in net.state_dict()
    del net.extra
    assert not hasattr(twin, "extra")
    twin.eval()
    assert not net.training and not net.inner.training
    net.train()
    assert twin.training


def test_calls_run_compiled_and_agree(backend):
    net = Net().eval()
    twin = oxyfuel.compile(net, backend=backend)
    torch.testing.assert_close(twin(X), net(X))
    torch.testing.assert_close(twin(X), net(X))
    assert len(backend.graphs) == 1
    twin.helper(X)
    assert len(backend.graphs) == 1
    torch.testing.assert_close(twin.forward(X), net.forward(X))


def test_hooks_of_the_module_run(backend):
    net = Net().eval()
    twin = oxyfuel.compile(net, backend=backend)
    net.register_forward_hook(lambda module, args, result: result + 1)
    torch.testing.assert_close(twin(X), net(X))


def test_a_twin_inside_another_module():
    outer = nn.Sequential(oxyfuel.compile(nn.Linear(4, 4)), nn.ReLU())
    assert list(outer.state_dict()) == ["0.weight", "0.bias"]
    torch.testing.assert_close(outer(X), outer[0]._orig_mod(X).relu())


def test_containers_keep_their_protocols():
    twin = oxyfuel.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert len(twin) == 2 and isinstance(twin[1], nn.ReLU) and [type(m).__name__ for m in twin] == ["Linear", "ReLU"]


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_duplicates(duplicate):
    twin = oxyfuel.compile(Net().eval(), backend="eager")
    other = duplicate(twin)
    assert isinstance(other, Net) and other._orig_mod is not twin._orig_mod
    assert other.inner.weight is not twin.inner.weight
    torch.testing.assert_close(other(X), twin(X))
    with torch.no_grad():
        other.inner.weight.zero_()
    assert not torch.equal(other(X), twin(X))


def test_compiling_a_twin_compiles_the_module():
    net = Net()
    assert oxyfuel.compile(oxyfuel.compile(net))._orig_mod is net


def test_no_subclass_hook_is_told():
    told = []

    class Registering(nn.Module):
        def __init_subclass__(cls, **keywords):
            told.append(cls)

        def forward(self, x):
            return x + 1

    twin = oxyfuel.compile(Registering())
    assert told == []
    torch.testing.assert_close(twin(X), X + 1)


def test_slots():
    class Slotted(nn.Module):
        __slots__ = ("factor",)

        def __init__(self):
            super().__init__()
            self.factor = 3

        def forward(self, x):
            return x * self.factor

    module = Slotted()
    twin = oxyfuel.compile(module)
    twin.factor = 4
    assert module.factor == 4
    torch.testing.assert_close(twin(X), X * 4)


def test_own_call_method():
    class Calls(nn.Module):
        def __call__(self, x):
            return super().__call__(x) + 1

        def forward(self, x):
            return x * 2

    torch.testing.assert_close(oxyfuel.compile(Calls())(X), X * 2 + 1)


def test_dropping_twin_and_module_frees_both():
    def make():
        net = Net()
        oxyfuel.compile(net)(X)
        return [weakref.ref(net), *map(weakref.ref, net.parameters())]

    references = make()
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)


def test_in_place(backend):
    net = Net().eval()
    want = net(X)
    assert oxyfuel.module_compile(net, backend=backend, fullgraph=True) is None
    assert type(net) is Net
    torch.testing.assert_close(net(X), want)
    assert len(backend.graphs) == 1
    copied = copy.deepcopy(net)
    torch.testing.assert_close(copied(X), want)
    assert len(backend.graphs) == 1


def test_in_place_wants_a_module():
    with pytest.raises(TypeError, match="function"):
        oxyfuel.module_compile(lambda x: x)


def test_disabled_module_is_a_twin_too():
    net = Net().eval()
    twin = oxyfuel.disable(net, reason="sparse")
    assert isinstance(twin, Net) and list(twin.state_dict()) == list(net.state_dict())
    torch.testing.assert_close(twin(X), net(X))
