"""What compile(module) returns follows the module, whatever is done to either.

Every change below is made to the module or to what was compiled of it, before
the first call or after it, and is compared with the same change made to a plain
module: results, gradients, state, and what Python says of the object.
"""

from __future__ import annotations

import copy
import functools
import gc
import io
import pickle
import weakref
from typing import Any

import pytest
import torch
import torch.nn.utils.parametrizations
import torch.nn.utils.parametrize
import torch.nn.utils.prune
from torch import nn

import framejit


class Net(nn.Module):
    word = "net"

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.times = 1

    def forward(self, x):
        return self.second(self.first(x).relu()) * self.scale * self.times

    def double(self):
        self.times *= 2
        return self

    @property
    def width(self):
        return self.first.in_features

    @width.setter
    def width(self, value):
        self.scale = torch.full((4,), float(value))


class Other(Net):
    word = "other"

    def forward(self, x):
        return super().forward(x) - self.times


class Halving(nn.Module):
    def forward(self, weight):
        return weight / 2


class Weighted(nn.Module):
    """Has a parameter itself, so that its own class changes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return x @ self.weight.t()


def set_class(m):
    m.__class__ = Other


def set_class_twice(m):
    m.__class__ = Other
    m.__class__ = Net


def set_attributes(m):
    m.times = 3
    m.width = 5
    m.extra = torch.ones(1)


def delete_attributes(m):
    m.extra = 1
    del m.extra
    m.forward = functools.partial(Other.forward, m)
    del m.forward


def replace_child(m):
    m.first = nn.Linear(4, 4)


def wrap_child(m):
    m.first = nn.Sequential(m.first, nn.Tanh())


def replace_forward(m):
    m.forward = lambda x: m.first(x) * 2


def replace_dict(m):
    m.__dict__ = {**m.__dict__, "times": 7}


def update_dict(m):
    m.__dict__["times"] = 5


def hooks(m):
    m.register_forward_hook(lambda module, args, out: out * 2 + module.times)
    m.first.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def hook_gone(m):
    m.register_forward_hook(lambda module, args, out: out * 2).remove()


def cast(m):
    m.to(torch.bfloat16)
    m.float()


def zeros(m):
    for p in m.parameters():
        p.data.zero_()


def freeze(m):
    m.requires_grad_(False)
    m.second.requires_grad_(True)


def load(m):
    torch.manual_seed(5)
    m.load_state_dict({k: torch.randn_like(v) for k, v in m.state_dict().items()})


def load_assigning(m):
    torch.manual_seed(5)
    state = {k: torch.randn_like(v) for k, v in m.state_dict().items()}
    m.load_state_dict(state, assign=True)


def swap_parameters(m):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        m.double() if not isinstance(m, Net) else nn.Module.double(m)
        m.float()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def swap_tensors(m):
    torch.manual_seed(7)
    torch.utils.swap_tensors(m.first.weight, nn.Parameter(torch.randn(4, 4)))


def init(m):
    torch.manual_seed(3)
    m.apply(
        lambda module: (
            module.reset_parameters() if hasattr(module, "reset_parameters") else None
        )
    )


def prune(m):
    torch.nn.utils.prune.l1_unstructured(m.first, "weight", amount=0.5)


def prune_and_remove(m):
    prune(m)
    torch.nn.utils.prune.remove(m.first, "weight")


def parametrize_child(m):
    torch.nn.utils.parametrize.register_parametrization(m.first, "weight", Halving())


def weight_norm(m):
    torch.nn.utils.parametrizations.weight_norm(m.second)


def spectral_norm(m):
    torch.manual_seed(1)
    torch.nn.utils.parametrizations.spectral_norm(m.second)


def old_weight_norm(m):
    torch.nn.utils.weight_norm(m.second)


def fully_shard_like(m):
    """FSDP2 gives the module a class derived from its own."""
    cls = m.__class__
    m.__class__ = type(f"Sharded{cls.__name__}", (Mixed, cls), {})


class Mixed:
    def forward(self, x):
        return super().forward(x) + 1


def unregister(m):
    m.register_parameter("bias", nn.Parameter(torch.ones(4)))
    m.register_module("third", nn.ReLU())
    m.register_buffer("shift", None, persistent=False)
    del m.bias


CHANGES = [
    set_class,
    set_class_twice,
    set_attributes,
    delete_attributes,
    replace_child,
    wrap_child,
    replace_forward,
    replace_dict,
    update_dict,
    hooks,
    hook_gone,
    cast,
    zeros,
    freeze,
    load,
    load_assigning,
    swap_parameters,
    swap_tensors,
    init,
    prune,
    prune_and_remove,
    parametrize_child,
    weight_norm,
    spectral_norm,
    old_weight_norm,
    fully_shard_like,
    unregister,
    Net.double,
    nn.Module.eval,
    nn.Module.share_memory,
    nn.Module.zero_grad,
]


def parametrize(m):
    torch.nn.utils.parametrize.register_parametrization(m, "weight", Halving())


def parametrize_and_remove(m):
    parametrize(m)
    torch.nn.utils.parametrize.remove_parametrizations(m, "weight")


def normalise(m):
    torch.nn.utils.parametrizations.weight_norm(m)


def prune_itself(m):
    torch.nn.utils.prune.l1_unstructured(m, "weight", amount=0.5)


OWN_CHANGES = [
    parametrize,
    parametrize_and_remove,
    normalise,
    prune_itself,
    fully_shard_like,
    zeros,
]


def make(cls):
    torch.manual_seed(0)
    return cls()


def outcome(module, x):
    x = x.clone().requires_grad_()
    module.zero_grad()
    result = module(x)
    result.sum().backward()
    grads = {name: p.grad for name, p in module.named_parameters()}
    return result.detach(), x.grad, grads


def seen(module):
    """What Python says of the object."""
    return {
        "class": module.__class__,
        "dict": sorted(module.__dict__),
        "attributes": {
            name: getattr(module, name, "none")
            for name in ("word", "times", "training", "width", "extra")
        },
        "state": list(module.state_dict()),
        "modules": [type(m).__name__ for m in module.modules()],
        "repr": repr(module),
        "text": str(module.extra_repr()),
        "forward": module.forward.__name__
        if hasattr(module.forward, "__name__")
        else None,
    }


def compare(found, expected):
    torch.testing.assert_close(outcome(found, X), outcome(expected, X))
    mine, theirs = seen(found), seen(expected)
    for name in mine:
        if name == "class":
            assert mine[name].__name__ == theirs[name].__name__
            assert isinstance(found, mine[name]) and type(found).__mro__[2:]
        else:
            assert mine[name] == theirs[name], name


def apply(change, module):
    torch.manual_seed(11)
    change(module)


X = torch.linspace(-1, 1, 8).reshape(2, 4)


def compile_it(module):
    return framejit.compile(module, backend="aot_eager")


def compile_in_place(module):
    framejit.compile_inplace(module, backend="aot_eager")
    return module


@pytest.mark.parametrize("on", ["original", "compiled"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_changes_are_followed(change, when, on):
    expected, original = make(Net), make(Net)
    compiled = compile_it(original)
    if when == "after":
        compare(compiled, expected)
        compare(compiled, expected)
    apply(change, expected)
    apply(change, original if on == "original" else compiled)
    for _ in range(2):
        compare(compiled, expected)
        compare(original, expected)
    assert isinstance(compiled, type(original))
    assert compiled.__class__ is original.__class__ is type(original)
    assert framejit.counters()["failures"] == 0


@pytest.mark.parametrize("on", ["original", "compiled"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", OWN_CHANGES, ids=lambda c: c.__name__)
def test_changes_of_its_own_parameters_are_followed(change, when, on):
    expected, original = make(Weighted), make(Weighted)
    compiled = compile_it(original)
    if when == "after":
        compare(compiled, expected)
    apply(change, expected)
    apply(change, original if on == "original" else compiled)
    for _ in range(2):
        compare(compiled, expected)
        compare(original, expected)
    assert any(
        entry.operations for top in framejit.inspect(compiled) for entry in top.walk()
    )


@pytest.mark.parametrize("change", [*CHANGES, *OWN_CHANGES], ids=lambda c: c.__name__)
def test_changes_of_a_module_compiled_in_place(change):
    cls = Weighted if change in OWN_CHANGES else Net
    expected, module = make(cls), compile_in_place(make(cls))
    for _ in range(2):
        torch.testing.assert_close(outcome(module, X), outcome(expected, X))
    apply(change, expected)
    apply(change, module)
    for _ in range(2):
        torch.testing.assert_close(outcome(module, X), outcome(expected, X))


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_changes_of_a_compiled_child(change):
    class Parent(nn.Module):
        def __init__(self, child):
            super().__init__()
            self.child = child

        def forward(self, x):
            return self.child(x) * 2

    expected, child = make(Net), make(Net)
    compiled_child = compile_it(child)
    parents = [
        Parent(compiled_child),
        compile_it(Parent(compiled_child)),
        compile_it(Parent(child)),
    ]
    for made in (False, True):
        if made:
            apply(change, expected)
            apply(change, compiled_child)
        for parent in parents:
            plain = Parent(expected)
            found, want = outcome(parent, X), outcome(plain, X)
            torch.testing.assert_close(found, want)
    assert compiled_child in list(parents[0].modules())
    assert parents[0].child is compiled_child


def test_a_class_change_reaches_every_compiled_object():
    """Two compilations of one module, with and without a call between."""
    original = make(Net)
    first = compile_it(original)
    second = framejit.compile(original, backend="eager")
    first(X)
    original.__class__ = Other
    torch.testing.assert_close(first(X), original(X))
    torch.testing.assert_close(second(X), original(X))
    second.__class__ = Net
    assert type(original) is Net and isinstance(first, Net)
    torch.testing.assert_close(first(X), original(X))


def test_methods_see_the_compiled_object():
    class Generating(Net):
        def generate(self, x):
            for _ in range(3):
                x = self(x)
            return x

        def me(self):
            return self

    plain = make(Generating)
    compiled = compile_it(plain)
    assert compiled.me() is compiled and plain.me() is plain
    for method in ("eval", "train", "float", "requires_grad_", "half", "cpu"):
        assert getattr(compiled, method)() is compiled
    plain.float()
    assert compiled.to(torch.float32) is compiled
    assert compiled.apply(lambda m: None) is compiled
    assert compiled.get_submodule("") is compiled
    assert next(compiled.modules()) is compiled
    assert dict(compiled.named_modules())[""] is compiled
    torch.testing.assert_close(compiled.generate(X), plain.generate(X))
    assert framejit.counters()["compiles"] >= 1


def test_what_the_program_sees_inside_is_the_module():
    inside = []

    class Looking(Net):
        def forward(self, x):
            inside.append(type(self) is Looking and self.__class__ is Looking)
            return super().forward(x)

    compiled = compile_it(make(Looking))
    compiled.register_forward_hook(
        lambda module, args, out: inside.append(type(module) is Looking)
    )
    compiled(X)
    compiled(X)
    assert inside == [True] * 4


@pytest.mark.parametrize("when", ["before", "after"])
def test_copies_and_files_are_the_plain_module(when):
    original = make(Net)
    compiled = compile_it(original)
    if when == "after":
        compiled(X)
    buffer = io.BytesIO()
    torch.save(compiled, buffer)
    buffer.seek(0)
    for other in (
        copy.copy(compiled),
        copy.deepcopy(compiled),
        pickle.loads(pickle.dumps(compiled)),
        pickle.loads(pickle.dumps(compiled, protocol=0)),
        torch.load(buffer, weights_only=False),
        copy.deepcopy(nn.Sequential(compiled))[0],
    ):
        assert type(other) is Net
        torch.testing.assert_close(outcome(other, X), outcome(original, X))


def test_quantized_modules_are_swapped():
    torch.manual_seed(0)
    expected, original = make(Net).eval(), make(Net).eval()
    compiled = compile_it(original)
    compiled(X)
    for module in (expected, compiled):
        torch.ao.quantization.quantize_dynamic(
            module, {nn.Linear}, dtype=torch.qint8, inplace=True
        )
    assert "Quantized" in str(type(original.first)) or "quantized" in str(
        type(original.first)
    )
    for _ in range(2):
        torch.testing.assert_close(compiled(X), expected(X))
    swapped = torch.ao.quantization.quantize_dynamic(
        compile_it(make(Net)), {nn.Linear}, dtype=torch.qint8
    )
    assert type(swapped) is Net


# ---- kinds of modules


class Slotted(nn.Module):
    __slots__ = ("extra",)

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.extra = 2

    def forward(self, x):
        return self.layer(x) * self.extra


class Registering(nn.Module):
    classes: list[type] = []

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Registering.classes.append(cls)


class Registered(Registering, Net):
    pass


class Meta(type):
    made: list[str] = []

    def __new__(mcs, name, bases, namespace):
        Meta.made.append(name)
        return super().__new__(mcs, name, bases, namespace)


class WithMeta(Net, metaclass=Meta):
    pass


class WithDict(nn.Module, dict):
    def __init__(self):
        nn.Module.__init__(self)
        dict.__init__(self, a=2.0)
        self.layer = nn.Linear(4, 4)

    __hash__ = nn.Module.__hash__

    def forward(self, x):
        return self.layer(x) * self["a"]


class Calling(Net):
    def __call__(self, x, *, twice=False):
        result = super().__call__(x)
        return result + result if twice else result


class Finalized(Net):
    gone: list[str] = []

    def __del__(self):
        Finalized.gone.append("gone")


def scripted():
    return torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


def traced():
    return torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), X)


def parallel():
    return nn.DataParallel(Net())


def graph_module():
    return torch.fx.symbolic_trace(Net())


KINDS = [
    Slotted,
    Registered,
    WithMeta,
    Calling,
    Finalized,
    scripted,
    traced,
    parallel,
    graph_module,
    functools.partial(nn.LazyLinear, 4),
    functools.partial(nn.Sequential, nn.Linear(4, 4), nn.ReLU()),
]


def kind_name(kind: Any) -> str:
    return getattr(kind, "func", kind).__name__


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_every_kind_keeps_its_promises(kind):
    plain, original = make(kind), make(kind)
    compiled = compile_it(original)
    for _ in range(3):
        torch.manual_seed(0)
        expected = outcome(plain, X)
        torch.manual_seed(0)
        torch.testing.assert_close(outcome(compiled, X), expected)
    assert isinstance(compiled, type(original)) and isinstance(compiled, nn.Module)
    assert type(compiled).__name__ == type(original).__name__
    for method in ("eval", "train", "float", "requires_grad_", "cpu"):
        try:
            getattr(plain, method)()
        except RuntimeError:
            continue  # of ScriptModules
        assert getattr(compiled, method)() is compiled, method
    assert list(compiled.state_dict()) == list(original.state_dict())
    assert str(compiled) == str(original)
    again = compile_it(compiled)
    torch.testing.assert_close(outcome(again, X), outcome(plain, X))


def test_registries_and_metaclasses_see_no_class_of_ours():
    before = len(Registering.classes), len(Meta.made)
    compile_it(Registered())
    compile_it(WithMeta())
    assert (len(Registering.classes), len(Meta.made)) == before


def test_the_state_of_a_base_in_c_is_the_modules():
    plain, original = make(WithDict), make(WithDict)
    compiled = compile_it(original)
    assert isinstance(compiled, WithDict) and isinstance(compiled, dict)
    torch.testing.assert_close(compiled(X), plain(X))
    original["a"] = 3.0
    torch.testing.assert_close(compiled(X), plain(X) * 1.5)
    assert compiled.get("a") == 3.0


def test_slots_are_the_modules():
    original = Slotted()
    compiled = compile_it(original)
    compiled.extra = 5
    assert original.extra == 5
    torch.testing.assert_close(compiled(X), original(X))
    del original.extra
    assert not hasattr(compiled, "extra")


def test_the_finalizer_runs_once():
    Finalized.gone.clear()
    original = Finalized()
    compiled = compile_it(original)
    compiled(X)
    del compiled
    framejit.reset()
    gc.collect()
    assert Finalized.gone == []
    del original
    gc.collect()
    assert Finalized.gone == ["gone"]


def test_a_compiled_object_keeps_its_module_and_both_go():
    original = make(Net)
    compiled = compile_it(original)
    compiled(X)
    seen_original, seen_compiled = weakref.ref(original), weakref.ref(compiled)
    del original
    compiled(X)
    del compiled
    gc.collect()
    assert seen_original() is None and seen_compiled() is None


def test_classes_made_for_one_object_go_with_it():
    original = make(Weighted)
    compiled = compile_it(original)
    compiled(X)
    parametrize(original)
    compiled(X)
    cls = weakref.ref(type(original))
    del original, compiled
    gc.collect()
    framejit.reset()
    gc.collect()
    assert cls() is None


def test_type_of_self_makes_plain_objects():
    """Methods that make another of their kind, in the usual ways."""

    class Twin(Net):
        def twin(self):
            return type(self)()

        def bare(self):
            other = self.__new__(type(self))
            other.__dict__ = dict(self.__dict__)
            return other

        def by_class(self):
            return self.__class__()

    compiled = compile_it(make(Twin))
    for other in (compiled.twin(), compiled.bare(), compiled.by_class()):
        assert isinstance(other, Twin) and other is not compiled
        other.times = 4
        assert compiled.times == 1
        torch.manual_seed(0)
        assert other(X).shape == (2, 4)
        assert isinstance(other.eval(), Twin)


def test_a_compiled_object_in_other_functions():
    """As a global, an argument, across a break, returned, in containers."""
    original = make(Net)
    compiled = compile_it(original)
    held = {"module": compiled}

    @functools.partial(framejit.compile, backend="eager")
    def step(module, x):
        y = module(x)
        framejit.graph_break()
        y = held["module"](y) + compiled(y)
        return y, module, [held["module"]], module is compiled

    for change in (None, set_class, set_attributes):
        if change:
            apply(change, compiled)
        for _ in range(2):
            result, *others = step(compiled, X)
            y = original(X)
            torch.testing.assert_close(result, original(y) + original(y))
            assert others[0] is compiled and others[1][0] is compiled and others[2]


def test_a_module_and_what_was_compiled_of_it_in_one_function():
    original = make(Net)
    compiled = compile_it(original)

    @functools.partial(framejit.compile, backend="eager")
    def both(a, b, x):
        a.times = 3
        return a(x) + b(x), a is b, a, b

    for a, b in ((original, compiled), (compiled, original), (compiled, compiled)):
        original.times = 1
        result, same, first, second = both(a, b, X)
        torch.testing.assert_close(result, original(X) * 2)
        assert original.times == 3
        assert same == (a is b) and first is a and second is b
