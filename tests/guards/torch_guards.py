"""Guards on tensors, modules and torch's global state."""

import gc
import sys
import weakref

import torch
import torch.nn as nn
from harness import Checker, Sources, anything, passes, stress


def test_fast_paths():
    assert stress.fast_paths() == (True, True)


def tensor_check(tensor):
    s = Sources()
    return Checker([("Tensor", s.local(0), tensor)], [s.local(0)])


def test_tensor_metadata():
    base = torch.empty(4, 3)
    others = {
        "type: expected torch.Tensor, got": nn.Parameter(torch.empty(4, 3)),
        "L[0].dtype: expected float32, got float64": torch.empty(4, 3, dtype=torch.float64),
        "L[0].device: expected cpu, got meta": torch.empty(4, 3, device="meta"),
        "L[0].size(0): expected 4, got 5": torch.empty(5, 3),
        "L[0].size(1): expected 3, got 2": torch.empty(4, 2),
        "L[0].stride(0): expected 3, got 1": torch.empty(3, 4).t(),
        "L[0].dim(): expected 2, got 1": torch.empty(12),
        "L[0].dim(): expected 2, got 3": torch.empty(4, 3, 1),
        "L[0].requires_grad: expected False, got True": torch.empty(4, 3, requires_grad=True),
        "L[0].is_neg(): expected False, got True": torch._neg_view(torch.empty(4, 3)),
        "L[0].layout: expected torch.strided": torch.empty(4, 3).to_sparse(),
    }
    c = tensor_check(base)
    for learned in (False, True):
        for sentence, other in others.items():
            if learned:
                c.ok(base)
                c.ok(torch.zeros(4, 3))
            c.fails(other, says=sentence)
            tensor_check(other.to_dense() if other.is_sparse else other).ok(other.to_dense() if other.is_sparse else other)
    c.ok(torch.empty(8, 3)[4:])
    c.ok(torch.empty(8, 3)[3:7])
    c.fails(3, says="type")
    c.fails(None)


def test_complex_and_conj():
    z = torch.empty(3, dtype=torch.complex64)
    c = tensor_check(z)
    c.ok(z)
    c.fails(z.conj(), says="is_conj(): expected False, got True")
    c.ok(z.clone())
    c = tensor_check(z.conj())
    c.ok(torch.empty(3, dtype=torch.complex64).conj())
    c.fails(z)


def test_many_dims_and_scalars():
    for shape in [(), (0,), (1,), (2, 0, 3), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6), (2,) * 9]:
        c = tensor_check(torch.empty(shape))
        for _ in range(3):
            c.ok(torch.empty(shape))
        if shape:
            c.fails(torch.empty(shape[:-1]))
            c.fails(torch.empty(shape[:-1] + (shape[-1] + 1,)))
        c.fails(torch.empty(shape + (1,)))


def test_learned_words_ignore_what_does_not_matter():
    # Sizes that an earlier, larger shape left behind must not matter, nor storage offsets.
    a = torch.empty(2, 3, 4).view(24)[:6].view(2, 3)
    c = tensor_check(torch.empty(2, 3))
    c.ok(a)
    c.ok(torch.empty(2, 3))
    c.ok(torch.empty(7, 2, 3)[5])


def test_in_place_changes_of_one_tensor():
    t = torch.empty(4, 3)
    c = tensor_check(t)
    for _ in range(3):
        c.ok(t)
        t.requires_grad_()
        c.fails(t, says="requires_grad")
        t.requires_grad_(False)
        c.ok(t)
        t.data = torch.empty(4, 4)
        c.fails(t, says="size(1)")
        t.data = torch.empty(4, 3)
        c.ok(t)
        t.t_()
        c.fails(t)
        t.t_()
        c.ok(t)
        t.resize_(2, 6)
        c.fails(t)
        t.resize_(4, 3)
        t.transpose_(0, 1).transpose_(0, 1)
        c.ok(t)
        other = torch.empty(3)
        torch.utils.swap_tensors(t, other)
        c.fails(t)
        torch.utils.swap_tensors(t, other)
        c.ok(t)


def test_grad_function_counts_as_requires_grad():
    w = torch.empty(3, requires_grad=True)
    y = w * 2
    c = tensor_check(y)
    c.ok(w * 3)
    with torch.no_grad():
        z = w * 2
    c.fails(z, says="requires_grad: expected True, got False")
    c.fails(y.detach())
    y.detach_()
    c.fails(y)


def test_views_require_grad_with_their_base():
    base = torch.empty(4)
    view = base[1:]
    c = tensor_check(torch.empty(3))
    for _ in range(3):
        c.ok(view)
        c.ok(torch.empty(3))
    w = torch.empty(4, requires_grad=True)
    c.fails(w[1:], says="requires_grad")
    c.fails(w.detach()[1:].requires_grad_(), says="requires_grad")
    c.ok(w.detach()[1:])
    # A view made without gradients, of a base that gets some in place.
    base = torch.zeros(4)
    view = base[1:]
    c.ok(view)
    base.mul_(w)
    assert view.requires_grad
    c.fails(view, says="requires_grad: expected False, got True")


def test_inference_tensors():
    c = tensor_check(torch.empty(3))
    with torch.inference_mode():
        t = torch.empty(3)
    assert t.is_inference()
    c.ok(torch.empty(3))
    found = c.program.run([t], anything)
    assert found == [t] or isinstance(found, int)


def test_grad_source():
    s = Sources()
    w = torch.ones(3, requires_grad=True)
    c = Checker([("Tensor", s.local(0), w), ("Equals", s.TensorGrad(s.local(0)), None)])
    c.ok(w)
    (w * 2).sum().backward()
    c.fails(w)
    c = Checker([("Tensor", s.TensorGrad(s.local(0)), w.grad)], [s.TensorGrad(s.local(0))])
    assert c.ok(w)[0] is w.grad
    w.grad = None
    c.fails(w)


def test_no_overlap():
    s = Sources()
    x, y, z = s.local(0), s.local(1), s.local(2)
    make = lambda: torch.empty(4)
    c = Checker([("Tensor", v, make()) for v in (x, y, z)] + [("NoOverlap", x, [x, y, z])])
    a, b = make(), make()
    for _ in range(2):
        c.ok(a, b, make())
        c.fails(a, b, a, says="expected tensors that share no memory, but L[0] and L[2] do")
        big = torch.empty(12)
        c.ok(big[:4], big[4:8], big[8:])
        c.fails(big[:4], big[8:], big[3:7])
        c.fails(a, b, a.view(4))
        c.fails(a, b, a.detach())
    c = Checker([("Tensor", v, torch.empty(0)) for v in (x, y)] + [("NoOverlap", x, [x, y])])
    e = torch.empty(0)
    c.ok(e, e)
    try:
        stress.Program([("NoOverlap", x, [x, y])], [])
        raise AssertionError("an overlap guard on what may be no tensor")
    except ValueError as error:
        assert "no guard says is a tensor" in str(error)


# ---- global state -------------------------------------------------------------------------------------------------------


class Mode(torch.overrides.TorchFunctionMode):
    pass


def test_global_state():
    from torch.utils._python_dispatch import TorchDispatchMode

    s = Sources()
    make = lambda: Checker([("GlobalState", s.local(0))])

    def state(enter, leave):
        return type("State", (), {"__enter__": lambda self: enter(), "__exit__": lambda self, *exc: leave()})

    determinism = lambda **kw: state(
        lambda: torch.use_deterministic_algorithms(True, **kw), lambda: torch.use_deterministic_algorithms(False)
    )
    states = {
        "grad mode: expected True, got False": torch.no_grad,
        "inference mode: expected False, got True": torch.inference_mode,
        "autocast of cpu: expected off, got torch.bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
        "autocast of cpu: expected off, got torch.float16": lambda: torch.autocast("cpu", torch.float16),
        "default dtype: expected torch.float32, got torch.float64": state(
            lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)
        ),
        "torch function modes": state(lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
        "torch function modes (the default device is one)": Mode,
        "torch dispatch modes": TorchDispatchMode,
        "deterministic algorithms: expected False, got True": determinism(),
        "deterministic algorithms only warn: expected False, got True": determinism(warn_only=True),
        "torch function: expected True, got False": torch._C.DisableTorchFunction,
        "dispatch keys": lambda: torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
        ),
    }
    plain = make()
    for sentence, enter in states.items():
        plain.ok()
        with enter():
            plain.fails(says=sentence)
            assert plain.program.run([], anything) == 0
            inside = make()
            inside.ok()
        plain.ok()
        inside.fails()
    # The same settings again are the same state.
    with torch.autocast("cpu", torch.bfloat16):
        inside = make()
    with torch.autocast("cpu", torch.bfloat16):
        inside.ok()
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            inside.fails(says="autocast cache")
        with torch.autocast("cpu", torch.float16):
            inside.fails(says="autocast of cpu: expected torch.bfloat16, got torch.float16")
        with torch.autocast("cpu", enabled=False):
            inside.fails()
    inside.fails()
    # Threads have their own.
    import threading

    found = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: found.append(plain.program.run([], anything)))
        thread.start()
        thread.join()
    assert found == [[]], found


def test_global_state_is_always_guarded():
    s = Sources()
    c = Checker([("TypeIs", s.local(0), int)])
    c.ok(1)
    with torch.no_grad():
        c.fails(1, says="grad mode")


def test_vmap_is_another_state():
    s = Sources()
    x = torch.empty(3, 4)
    c = Checker([("Tensor", s.local(0), x[0])])
    c.ok(torch.empty(4))
    found = []

    def f(row):
        found.append(passes(c.program, [row]))
        return row

    torch.vmap(f)(x)
    assert found == [False]


# ---- modules -------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.lin(x))


class Model(nn.Module):
    def __init__(self, n=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(n))
        self.scale = 2.0

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x * self.scale


HOOKS = ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"]


def module_guards(s, source, module, inputs, light=False):
    """What a trace through a module guards: class, hooks, parameters, buffers, submodules, plain attributes."""
    cls = type(module)
    guards = [("TypeIs", source, cls), ("Equals", s.attr(source, "training"), module.training)]
    if not light:
        guards += [("DictLength", s.attr(source, name), 0) for name in HOOKS]
        guards.append(("InstanceLacks", source, "forward"))
    forward = s.type_attr(s.held(cls), "forward")
    guards.append(("IsObject", s.FunctionCode(forward), cls.forward.__code__) if hasattr(cls.forward, "__code__") else ("TypeIs", source, cls))
    if hasattr(module, "scale"):
        guards.append(("Equals", s.attr(source, "scale"), module.scale))
    for table in ("_parameters", "_buffers"):
        tensors = s.attr(source, table)
        for name, tensor in getattr(module, table).items():
            if tensor is not None:
                item = s.item(tensors, sys.intern(name))
                guards.append(("Tensor", item, tensor))
                inputs.append(item)
            else:
                guards.append(("Equals", s.item(tensors, sys.intern(name)), None))
    children = s.attr(source, "_modules")
    guards.append(("DictKeys", children, list(module._modules)))
    for name, child in module._modules.items():
        guards += module_guards(s, s.item(children, sys.intern(name)), child, inputs, light)
    return guards


def model_program(model, held=False):
    s = Sources()
    source = s.held(model) if held else s.local(0)
    inputs = []
    guards = module_guards(s, source, model, inputs)
    program = stress.Program(guards, inputs)
    for _ in range(4):
        found = program.run([model], anything)
        assert isinstance(found, list), program.explain([model], anything)
    sections, valid, full = program.counts()
    assert sections == valid > 0, program.counts()
    for _ in range(10):
        assert isinstance(program.run([model], anything), list)
    assert program.counts()[2] == full
    return program


def test_model():
    for held in (False, True):
        model = Model()
        program = model_program(model, held)
        tensors = program.run([model], anything)
        expected = [t for m in model.modules() for table in (m._parameters, m._buffers) for t in table.values() if t is not None]
        assert len(tensors) == len(expected) and all(any(t is u for u in expected) for t in tensors)
        lin = model.blocks[1].lin
        norm = model.blocks[1].norm
        hook = []
        weight = lin.weight

        def grow():
            model.blocks.append(Block())

        def shrink():
            del model.blocks[3]

        def forward_on_instance():
            lin.forward = lambda x: x

        def remove_forward():
            del lin.forward

        def quantize():
            model.blocks[1].lin = nn.Linear(4, 4, dtype=torch.float64)

        def back():
            model.blocks[1].lin = lin

        routes = {
            "train/eval": (lambda: model.blocks[1].eval(), lambda: model.blocks[1].train()),
            "attribute": (lambda: setattr(model, "scale", 3.0), lambda: setattr(model, "scale", 2.0)),
            "forward hook": (
                lambda: hook.append(lin.register_forward_hook(lambda *a: None)),
                lambda: hook.pop().remove(),
            ),
            "forward pre hook": (
                lambda: hook.append(lin.register_forward_pre_hook(lambda *a: None)),
                lambda: hook.pop().remove(),
            ),
            "backward hook": (
                lambda: hook.append(lin.register_full_backward_hook(lambda *a: None)),
                lambda: hook.pop().remove(),
            ),
            "append": (grow, shrink),
            "instance forward": (forward_on_instance, remove_forward),
            "other submodule": (quantize, back),
            "parameter replaced by another dtype": (
                lambda: setattr(lin, "weight", nn.Parameter(torch.empty(4, 4, dtype=torch.float64))),
                lambda: setattr(lin, "weight", weight),
            ),
            "requires_grad_": (lambda: lin.weight.requires_grad_(False), lambda: lin.weight.requires_grad_()),
            "p.data": (
                lambda: setattr(lin.weight, "data", torch.empty(5, 4)),
                lambda: setattr(lin.weight, "data", torch.empty(4, 4)),
            ),
            "half()": (lambda: model.half(), lambda: model.float()),
            "to(meta)": (lambda: lin.bias.__class__ and setattr(lin, "bias", None), lambda: setattr(lin, "bias", nn.Parameter(torch.empty(4)))),
            "buffer": (
                lambda: norm.register_buffer("running_mean", None),
                lambda: norm.register_buffer("running_mean", torch.zeros(4)),
            ),
            "_modules replaced": (
                lambda: setattr(model.blocks, "_modules", {"0": model.blocks[0]}),
                None,
            ),
        }
        for name, (change, undo) in routes.items():
            change()
            assert not passes(program, [model]), f"{name} was not noticed"
            assert program.explain([model], anything), name
            if undo is not None:
                undo()
                for _ in range(3):
                    assert passes(program, [model]), (name, program.explain([model], anything))


def test_new_tensors_are_seen():
    model = Model()
    program = model_program(model)
    weight = nn.Parameter(torch.empty(4, 4))
    model.blocks[0].lin.weight = weight
    assert any(t is weight for t in program.run([model], anything))
    model.blocks[0].norm.running_mean = torch.ones(4)
    assert any(t is model.blocks[0].norm.running_mean for t in program.run([model], anything))
    model.load_state_dict(Model().state_dict(), assign=True)
    found = program.run([model], anything)
    assert any(t is model.blocks[0].lin.weight for t in found) and not any(t is weight for t in found)


def test_models_are_freed():
    model = Model()
    program = model_program(model)
    refs = [weakref.ref(model), weakref.ref(model.blocks[0].lin), weakref.ref(model.blocks[0].lin.weight)]
    del model
    gc.collect()
    assert all(ref() is None for ref in refs)
    other = Model()
    assert passes(program, [other])
    other.blocks[2].eval()
    assert not passes(program, [other])


def test_training_loop_keeps_the_section():
    model = Model()
    program = model_program(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    full = program.counts()[2]
    for i in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        model.steps = i
        assert passes(program, [model]), program.explain([model], anything)
    assert program.counts()[2] - full <= 3, (full, program.counts())
