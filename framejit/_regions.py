"""What some functions of torch mean, for the interpreter.

A capture does not run torch's own body of the functions in REPLACEMENTS: it
interprets the function given here in its place. These are written in plain
Python over operations that can be recorded; `_C._regions` has the steps that
only the recorder can do. Nothing here runs outside a capture.

Whatever is not exactly right for a program calls `give_up`, which is a graph
break at the program's own call.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.eager_transforms as eager_transforms
import torch._functorch.vmap as functorch
import torch.autograd.profiler as profiler
import torch.utils._pytree as pytree
from torch.autograd.function import FunctionCtx, _SingleLevelFunction
from torch.utils.checkpoint import noop_context_fn

from framejit import _C, _transforms

_steps: Any = getattr(_C, "_regions")  # noqa: B009


def _without_effects(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


_without_effects._framejit_without_effects = True  # type: ignore[attr-defined]


def _later(function: Callable[..., Any], *args: Any) -> Any:
    """What the backward will call: what may change until then is not read."""
    return function(*args)


_later._framejit_without_effects = "until the backward"  # type: ignore[attr-defined]


# ---- torch.autograd.Function


class FunctionContext(FunctionCtx):
    """The `ctx` of a captured function."""

    needs_input_grad: tuple[bool, ...]
    framejit_handle: Any
    framejit_reads: list[str]

    def __setattr__(self, name: str, value: Any) -> None:
        if "framejit_settled" in self.__dict__:
            _steps.give_up("a ctx that is written to after its forward")
        object.__setattr__(self, name, value)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        reads = self.__dict__.get("framejit_reads")
        if reads is not None:
            reads.append("saved_tensors")
        return tuple(self.__dict__.get("to_save", ()))

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        return self.saved_tensors


def _content(value: Any) -> Any:
    if type(value) in (list, tuple, set):
        return list(value)
    if type(value) is dict:
        return [*value.keys(), *value.values()]
    return [value]


def _run_gradient(cls: Any, ctx: Any, gradients: tuple[Any, ...]) -> Any:
    """The backward of the function; it must leave what it was given alone."""
    ctx.framejit_reads = []
    names = [name for name in ctx.__dict__ if name != "framejit_reads"]
    before = [_content(ctx.__dict__[name]) for name in names]
    overridden = cls.backward is not torch.autograd.Function.backward
    backward = cls.backward if overridden else cls.vjp
    try:
        found = _later(backward, ctx, *gradients)
    except Exception:
        _steps.give_up("a gradient function that raises")
    if [name for name in ctx.__dict__ if name != "framejit_reads"] != names:
        _steps.give_up("a backward that writes to its ctx")
    for i in range(len(names)):
        if not _steps.same(before[i], _content(ctx.__dict__[names[i]])):
            _steps.give_up("a backward that writes to its ctx")
    return found


def _input_gradients(found: Any, args: tuple[Any, ...]) -> list[Any]:
    """One gradient, or None, per tensor among the arguments."""
    if not isinstance(found, tuple):
        found = (found,)
    gradients = []
    for i in range(len(found)):
        gradient = found[i]
        if i < len(args) and isinstance(args[i], torch.Tensor):
            if gradient is not None and not isinstance(gradient, torch.Tensor):
                _steps.give_up("a gradient that is no tensor")
            gradients.append(gradient if args[i].requires_grad else None)
        elif gradient is not None:
            _steps.give_up("a gradient for an argument that is no tensor")
    if len(found) < len(args):
        _steps.give_up("a backward that returns too few gradients")
    return gradients


def function_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.Function.apply`."""
    _steps.outside_transforms("an autograd.Function in a torch.func transform")
    with_setup = cls.setup_context is not _SingleLevelFunction.setup_context
    if with_setup:
        missing = _steps.argument_count(cls.forward) - len(args)
        if missing > 0 and not kwargs:
            args = args + (cls.forward.__defaults__ or ())[-missing:]
    if kwargs:
        _steps.give_up("keyword arguments of Function.apply")
    needs = tuple(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
    ctx = FunctionContext()
    ctx.needs_input_grad = needs
    ctx.framejit_handle = _steps.handle()  # must not outlive the capture
    with torch.no_grad():
        if with_setup:
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
        else:
            output = cls.forward(ctx, *args)
    marks = ctx.__dict__
    if "dirty_tensors" in marks:
        _steps.give_up("ctx.mark_dirty")
    if not marks.get("materialize_grads", True):
        _steps.give_up("ctx.set_materialize_grads(False)")
    single = not isinstance(output, tuple)
    outputs = (output,) if single else output
    results = [item for item in outputs if isinstance(item, torch.Tensor)]
    if not (torch.is_grad_enabled() and any(needs)):
        final = []
        for item in outputs:
            if isinstance(item, torch.Tensor) and any(item is a for a in args):
                item = item.detach()
            final.append(item)
        return final[0] if single else tuple(final)
    for i in range(len(results)):
        for other in results[:i]:
            if other is results[i]:
                _steps.give_up("a forward that returns a tensor twice")
    constant = marks.get("non_differentiable", ())
    differentiable = [all(r is not c for c in constant) for r in results]
    fresh = _steps.begin_gradient(tuple(results))
    remaining = iter(fresh)
    gradients = tuple(
        next(remaining) if isinstance(item, torch.Tensor) else None for item in outputs
    )
    found = _run_gradient(cls, ctx, gradients)
    ctx.framejit_settled = True
    wrapped = getattr(cls.backward, "__wrapped__", None)
    once = wrapped is not None and cls.backward.__code__ is _ONCE
    # Who reads them has all of them looked at.
    saved = ctx.saved_tensors if ctx.framejit_reads else ()
    linked = _steps.function_gradient(
        tuple(_input_gradients(found, args)),
        tuple(a for a in args if isinstance(a, torch.Tensor)),
        tuple(results),
        tuple(differentiable),
        once,
        tuple(a for a in saved if a is not None),
        cls._backward_cls.__name__,
    )
    remaining = iter(linked)
    final = [
        next(remaining) if isinstance(item, torch.Tensor) else item for item in outputs
    ]
    return final[0] if single else tuple(final)


@torch.autograd.function.once_differentiable
def _once(ctx: Any) -> None:
    return None


_ONCE = _once.__code__


# ---- gradients computed inside the function


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, torch.Tensor) else tuple(value)


def autograd_grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Any:
    """`torch.autograd.grad`."""
    if not only_inputs or is_grads_batched or materialize_grads:
        _steps.give_up("an option of torch.autograd.grad")
    if allow_unused is None:
        allow_unused = False
    if grad_outputs is not None:
        grad_outputs = _tuple(grad_outputs)
    return _steps.gradient(
        _tuple(outputs),
        _tuple(inputs),
        grad_outputs,
        retain_graph,
        create_graph,
        allow_unused,
    )


def _new_gradient(leaf: Any, gradient: Any) -> Any:
    """Memory of its own, laid out like the leaf."""
    if gradient.stride() == leaf.stride() or not _is_dense(leaf):
        return gradient.clone()
    return torch.empty_like(leaf).copy_(gradient)


def _is_dense(tensor: Any) -> bool:
    expected = 1
    strides = tensor.stride()
    dims = [(strides[i], n) for i, n in enumerate(tensor.shape) if n > 1]
    for stride, size in sorted(dims):
        if stride != expected:
            return False
        expected *= size
    return True


def autograd_backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """`torch.autograd.backward`: accumulates into `.grad` of the leaves."""
    if create_graph or grad_variables is not None or inputs is not None:
        _steps.give_up("an option of backward()")
    tensors = _tuple(tensors)
    if grad_tensors is not None:
        grad_tensors = _tuple(grad_tensors)
    leaves = _steps.leaves(tensors)
    if not leaves:
        _steps.give_up("a backward that reaches no leaf")
    gradients = _steps.gradient(
        tensors, leaves, grad_tensors, retain_graph, False, True
    )
    with torch.no_grad():
        for leaf, gradient in zip(leaves, gradients, strict=True):
            if gradient is None:
                continue
            before = leaf.grad
            if before is None:
                _steps.accumulates(leaf)
                leaf.grad = _new_gradient(leaf, gradient)
            else:
                before.add_(gradient)


def tensor_backward(
    self: Any,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """`torch.Tensor.backward`, which calls what the name stands for then."""
    torch.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def tensor_register_hook(self: Any, hook: Any) -> Any:
    """`torch.Tensor.register_hook` on a tensor the function computed."""
    if not self.requires_grad:
        _steps.give_up("a hook on a tensor that requires no gradient")
    for leaf in _steps.leaves((self,)):
        if leaf is self:
            _steps.give_up("a hook on a leaf")
    (fresh,) = _steps.begin_gradient((self,))
    try:
        found = _later(hook, fresh)
    except Exception:
        _steps.give_up("a hook that raises")
    if found is None:
        found = fresh
    elif not isinstance(found, torch.Tensor):
        _steps.give_up("a hook that returns no tensor")
    _steps.tensor_hook((found,), self)
    return HookHandle()


class HookHandle:
    """Stands for torch's RemovableHandle while the capture lasts."""

    def __init__(self) -> None:
        self.handle = _steps.handle()

    def remove(self) -> None:
        _steps.give_up("removes a hook")


# ---- torch.utils.checkpoint


def checkpoint(
    function: Any,
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Any = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Without gradients it is its function. With them the backward runs that
    again, on what parameters and state of the program are by then.
    """
    kwargs.pop("preserve_rng_state", True)
    if torch.is_grad_enabled() or use_reentrant is not False:
        _steps.give_up("a checkpoint: the backward runs its function again")
    if context_fn is not noop_context_fn or debug:
        _steps.give_up("an option of checkpoint")
    return function(*args, **kwargs)


# ---- torch.func
#
# The function of a transform is captured as a block, on stand-ins of what it
# sees: one sample of a batch, an input that requires a gradient. The transform
# of the block is one node of the graph (framejit/_transforms.py). How trees of
# tensors are taken apart and put together again is interpreted here.


def _call_apart(function: Any, args: Any, kwargs: Any) -> Any:
    """Calls the function of a transform, within a block."""
    try:
        return function(*args, **kwargs)
    except Exception:
        _steps.give_up("a transformed function that raises")


def _require_tensors(values: Any) -> None:
    for value in values:
        if not isinstance(value, torch.Tensor):
            _steps.give_up("a transform of something that is no tensor")


class _Apart:
    """The arguments of a transformed function, in trees: those to
    differentiate, in order, then other tensors among them."""

    def __init__(self, args: Any, kwargs: Any, argnums: Any) -> None:
        places: Any = list(range(len(args)))
        if argnums is None:
            chosen = tuple(args)
            numbers = places
        else:
            chosen = eager_transforms._slice_argnums(args, argnums)
            picked: Any = eager_transforms._slice_argnums(tuple(places), argnums)
            numbers = list(picked)
        self.wanted, self.wanted_tree = pytree.tree_flatten(chosen)
        _require_tensors(self.wanted)
        others = tuple(None if i in numbers else args[i] for i in range(len(args)))
        flat, self.others_tree = pytree.tree_flatten((others, kwargs))
        self.others = flat
        self.numbers = numbers
        self.tensors = tuple(t for t in flat if isinstance(t, torch.Tensor))

    def begin(self, requires_grad: bool) -> Any:
        """The arguments as the function sees them."""
        tensors = (*self.wanted, *self.tensors)
        flags = (requires_grad,) * len(self.wanted) + (False,) * len(self.tensors)
        nothing_gone = (None,) * len(tensors)
        kind = "grad" if requires_grad else "jvp"
        inner = _steps.begin_transform(tensors, nothing_gone, flags, kind)
        count = len(self.wanted)
        chosen = pytree.tree_unflatten(list(inner[:count]), self.wanted_tree)
        rest = iter(inner[count:])
        flat = [
            next(rest) if isinstance(item, torch.Tensor) else item
            for item in self.others
        ]
        others, kwargs = pytree.tree_unflatten(flat, self.others_tree)
        args = list(others)
        for i in range(len(self.numbers)):
            args[self.numbers[i]] = chosen[i]
        return tuple(args), kwargs

    def inputs(self) -> tuple[Any, ...]:
        return (*self.wanted, *self.tensors)


class _Results:
    """What a transformed function returned: tensors for the block, and how the
    program gets it back."""

    def __init__(self, value: Any, has_aux: bool) -> None:
        aux: Any = ()
        if has_aux:
            if not (isinstance(value, tuple) and len(value) == 2):
                _steps.give_up("a transformed function without an aux")
            value, aux = value
        self.flat, self.tree = pytree.tree_flatten(value)
        _require_tensors(self.flat)
        if not self.flat:
            _steps.give_up("a transformed function that returns nothing")
        others, self.aux_tree = pytree.tree_flatten(aux)
        _require_tensors(others)
        self.tensors = (*self.flat, *others)

    def values(self, tensors: Any) -> Any:
        return pytree.tree_unflatten(list(tensors), self.tree)

    def others(self, tensors: Any) -> Any:
        return pytree.tree_unflatten(list(tensors), self.aux_tree)


def vmap_impl(
    func: Any,
    in_dims: Any,
    out_dims: Any,
    randomness: str,
    chunk_size: int | None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """`torch.vmap(func, ...)(*args)`."""
    if chunk_size is not None and torch._C._is_torch_function_mode_enabled():
        _steps.give_up("chunks under a torch function mode")
    functorch._check_out_dims_is_int_or_int_pytree(out_dims, func)
    _, dims, flat, tree = functorch._process_batched_inputs(in_dims, args, func)
    batched = []
    for i in range(len(flat)):
        if dims[i] is not None:
            batched.append(i)
    tensors = tuple(flat[i] for i in batched)
    gone = tuple(dims[i] for i in batched)
    flags = (False,) * len(tensors)
    samples = _steps.begin_transform(tensors, gone, flags, "vmap")
    for i in range(len(batched)):
        flat[batched[i]] = samples[i]
    if chunk_size is None:
        output = _call_apart(func, pytree.tree_unflatten(flat, tree), kwargs)
    else:  # it is called for every chunk
        output = _without_effects(
            _call_apart, func, pytree.tree_unflatten(flat, tree), kwargs
        )
    values, output_tree = pytree.tree_flatten(output)
    _require_tensors(values)
    if isinstance(output, torch.Tensor):
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            out_dims = out_dims[0]
        flat_out_dims: Any = [out_dims]
        if out_dims is not None and not isinstance(out_dims, int):
            _steps.give_up("out_dims that do not fit")
    else:
        flat_out_dims = pytree._broadcast_to_and_flatten(out_dims, output_tree)
        if flat_out_dims is None:
            _steps.give_up("out_dims that do not fit")
    if not values:
        _steps.give_up("a transformed function that returns nothing")
    block = _steps.end_transform(tuple(values), False)
    found = _steps.call_transform(
        _transforms.vmap,
        (block[0], gone, tuple(flat_out_dims), randomness, chunk_size),
        (*tensors, *block[1:]),
    )
    return pytree.tree_unflatten(list(found), output_tree)


vmap_impl._framejit_shows_its_calls = True  # type: ignore[attr-defined]


def grad_and_value_impl(
    func: Any, argnums: Any, has_aux: bool, args: Any, kwargs: Any
) -> Any:
    """`torch.func.grad_and_value(func, ...)(*args, **kwargs)`."""
    apart = _Apart(args, kwargs, argnums)
    results = _Results(_call_apart(func, *apart.begin(True)), has_aux)
    if len(results.flat) != 1 or results.flat[0].dim() != 0:
        _steps.give_up("a gradient of something that is no scalar")
    block = _steps.end_transform(results.tensors, False)
    count = len(apart.wanted)
    found = _steps.call_transform(
        _transforms.gradient, (block[0], count), (*apart.inputs(), *block[1:])
    )
    gradients = pytree.tree_unflatten(list(found[:count]), apart.wanted_tree)
    if isinstance(argnums, int):
        gradients = gradients[0]
    value = results.values(found[count : count + 1])
    if has_aux:
        return gradients, (value, results.others(found[count + 1 :]))
    return gradients, value


def vjp_with_argnums(
    func: Any, *primals: Any, argnums: Any = None, has_aux: bool = False
) -> Any:
    """`torch.func.vjp(func, *primals)`. The pullback computes the function
    again; what both compute is one in the graph of the AOT backends."""
    apart = _Apart(primals, {}, argnums)
    results = _Results(_call_apart(func, *apart.begin(True)), has_aux)
    for value in results.flat:
        if not (value.is_floating_point() or value.is_complex()):
            _steps.give_up("a gradient of integers")
    block = _steps.end_transform(results.tensors, True)
    count, outputs = len(apart.wanted), len(results.flat)
    inputs, extra = apart.inputs(), block[1:]
    found = _steps.call_transform(_transforms.call, (block[0],), (*inputs, *extra))
    handle = _steps.handle()  # the pullback must not outlive the capture

    def pullback(
        cotangents: Any, retain_graph: bool = True, create_graph: Any = None
    ) -> Any:
        flat, tree = pytree.tree_flatten(cotangents)
        if handle is None or not retain_graph or create_graph is not None:
            _steps.give_up("an option of the function that vjp gives")
        if tree != results.tree:
            _steps.give_up("cotangents unlike the outputs")
        _require_tensors(flat)
        gradients = _steps.call_transform(
            _transforms.pullback,
            (block[0], count, outputs),
            (*inputs[:count], *flat, *inputs[count:], *extra),
        )
        tree = apart.wanted_tree
        made = pytree.tree_unflatten(list(gradients), tree)
        return made[0] if isinstance(argnums, int) else made

    values = results.values(found[:outputs])
    if has_aux:
        return values, pullback, results.others(found[outputs:])
    return values, pullback


def jvp_with_argnums(
    func: Any,
    primals: Any,
    tangents: Any,
    argnums: Any,
    *,
    strict: bool = False,
    has_aux: bool,
) -> Any:
    """`torch.func.jvp(func, primals, tangents)`."""
    if strict or not isinstance(primals, tuple):
        _steps.give_up("an option of torch.func.jvp")
    apart = _Apart(primals, {}, argnums)
    flat, tree = pytree.tree_flatten(tangents)
    _require_tensors(flat)
    if tree != apart.wanted_tree:
        _steps.give_up("tangents unlike the inputs")
    results = _Results(_call_apart(func, *apart.begin(False)), has_aux)
    block = _steps.end_transform(results.tensors, False)
    count, outputs = len(apart.wanted), len(results.flat)
    found = _steps.call_transform(
        _transforms.pushforward,
        (block[0], count, outputs),
        (*apart.wanted, *flat, *apart.tensors, *block[1:]),
    )
    values = results.values(found[:outputs])
    pushed = results.values(found[outputs : 2 * outputs])
    if has_aux:
        return values, pushed, results.others(found[2 * outputs :])
    return values, pushed


# ---- control flow


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """`torch.cond`: both branches are captured, one runs."""
    if not isinstance(pred, torch.Tensor):
        return true_fn(*operands) if pred else false_fn(*operands)
    flat, tree = pytree.tree_flatten(operands)
    tensors = tuple(t for t in flat if isinstance(t, torch.Tensor))
    blocks = []
    results = []
    for branch in (true_fn, false_fn):
        flags = tuple(t.requires_grad for t in tensors)
        same = (None,) * len(tensors)
        inner = iter(_steps.begin_transform(tensors, same, flags, "cond"))
        given = [next(inner) if isinstance(t, torch.Tensor) else t for t in flat]
        args = pytree.tree_unflatten(given, tree)
        found = _without_effects(_call_apart, branch, args, {})
        values, found_tree = pytree.tree_flatten(found)
        _require_tensors(values)
        if not _steps.owns(tuple(values)):
            _steps.give_up("a branch of cond that returns a tensor it did not make")
        looks = [
            (v.shape, v.stride(), v.dtype, v.device, v.requires_grad) for v in values
        ]
        results.append((looks, found_tree))
        blocks.append(_steps.end_transform(tuple(values), False))
    (looks, result_tree), (others, other_tree) = results
    if result_tree != other_tree or looks != others or not looks:
        _steps.give_up("branches of cond with other results")
    (first, *first_extra), (second, *second_extra) = blocks
    made = _steps.call_branch(
        _transforms.branch,
        (first, second, len(tensors), len(first_extra)),
        (pred, *tensors, *first_extra, *second_extra),
    )
    return pytree.tree_unflatten(list(made), result_tree)


def _scan(combine: Callable[..., Any], leaves: list[Any]) -> list[Any]:
    """All prefixes along the first dim: those of the pairs, and between two of them
    one more element each. (torch's own `generic_associative_scan`.)"""
    count = leaves[0].shape[0]
    if count < 2:
        return leaves
    pairs = combine([x[:-1:2] for x in leaves], [x[1::2] for x in leaves])
    odd = _scan(combine, pairs)
    if count == 2:
        even = [x[:1] for x in leaves]
    else:
        before = odd if count % 2 else [x[:-1] for x in odd]
        between = combine(before, [x[2::2] for x in leaves])
        even = [torch.cat([x[:1], y]) for x, y in zip(leaves, between, strict=True)]
    return [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]


def _interleaved(a: Any, b: Any) -> Any:
    if a.shape[0] == b.shape[0]:
        return torch.stack([a, b], 1).flatten(0, 1)
    padding = [0] * (2 * b.dim() - 1) + [1]
    b = torch.nn.functional.pad(b, padding)
    return torch.stack([a, b], 1).flatten(0, 1)[:-1]


def associative_scan(
    combine_fn: Any,
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """`torch._higher_order_ops.associative_scan`: what torch's own does for a
    function of any kind. A pointwise one, which is for GPUs, is one of them."""
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves or not all(isinstance(x, torch.Tensor) for x in leaves):
        _steps.give_up("associative_scan of what are no tensors")
    on_gpu = all(x.device.type in ("cuda", "xpu") for x in leaves)
    if combine_mode != "generic" and not (combine_mode == "pointwise" and on_gpu):
        _steps.give_up("a combine_mode of associative_scan that these tensors lack")
    rank = leaves[0].dim()
    if type(dim) is not int or not -rank <= dim < rank or type(reverse) is not bool:
        _steps.give_up("arguments of associative_scan that torch refuses")
    dim %= rank
    if not all(dim < x.dim() and x.numel() for x in leaves):
        _steps.give_up("sizes of associative_scan that torch refuses")
    leaves = [torch.movedim(x, dim, 0) for x in leaves]
    if reverse:
        leaves = [x.flip(0) for x in leaves]
    dims = pytree.tree_unflatten([0] * len(leaves), spec)
    batched = torch.vmap(combine_fn, in_dims=(dims, dims), out_dims=0)

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        return pytree.tree_leaves(
            batched(
                pytree.tree_unflatten(left, spec), pytree.tree_unflatten(right, spec)
            )
        )

    found = _scan(combine, leaves)
    if len(found) != len(leaves):
        _steps.give_up("a function of associative_scan with more or fewer results")
    if reverse:
        found = [x.flip(0) for x in found]
    return pytree.tree_unflatten([torch.movedim(x, 0, dim) for x in found], spec)


def detect_is_causal_mask(mask: Any, is_causal: Any = None, size: Any = None) -> bool:
    """Whether a mask is causal is for the choice of a kernel only; it is not
    worth a look at its elements."""
    return is_causal is True


# ---- exported programs


def check_exported_inputs(self: Any, args: Any, kwargs: Any) -> None:
    """The check of the arguments that an exported program's module makes first:
    torch's own leaves part of it out while something compiles."""
    if not getattr(self, "validate_inputs", True):
        return
    if not hasattr(self, "_guards_fn"):
        _steps.give_up("an exported program that does not check its arguments itself")
    torch.export._unlift._check_inputs_match(args, kwargs, self._in_spec)


# ---- indexing with tensors


def mod_index_apply(cls: Any, x: Any, indices: Any) -> Any:
    """What `TransformGetItemToIndex` makes of ``x[i]``. Torch's own, beneath
    `vmap`, has a formula for the gradient that says what this one's does."""
    home = "torch._dynamo._trace_wrapped_higher_order_op"  # not imported for this
    if cls.__module__ != home or cls.__qualname__ != "ModIndex":
        _steps.give_up("a class derived from ModIndex")
    return torch.ops.aten.index(x, indices)


# ---- thread state


def _handle_without_with(manager: Any) -> Any:
    """None, where it was a `with` that called this function's caller, to enter
    `manager`; else an object that must not outlive the capture."""
    raise RuntimeError("only for captured code")


_handle_without_with._framejit_handle_without_with = True  # type: ignore[attr-defined]


class InferenceContext:
    """Stands for the guard that `torch.inference_mode` keeps while it is entered:
    torch's cannot be made anew behind a break.

    Args:
        before: the state to put back: grad mode, that of forward mode, inference mode;
            None once it was.
        handle: torch's guard puts the state back when it goes, too. Within a `with` it
            is always left first, and this is None; what was entered otherwise must be
            left in the capture, and this does not outlive it.
    """

    def __init__(self, before: tuple[bool, bool, bool], handle: Any) -> None:
        self.before: tuple[bool, bool, bool] | None = before
        self.handle = handle

    def __exit__(self, *exception: Any) -> None:
        """Where torch's own ``__exit__`` runs, behind a break."""
        before, self.before = self.before, None
        if before is not None:
            _steps.set_autograd_state(*before)


def inference_enter(self: Any) -> None:
    """`torch.inference_mode.__enter__`."""
    mode = bool(self.mode)
    handle = _handle_without_with(self)
    if handle is not None:
        _steps.mode_entered()
    before = _steps.switch_autograd(not mode, not mode, mode)
    self._inference_mode_context = InferenceContext(before, handle)


def inference_exit(self: Any, *exception: Any) -> None:
    """`torch.inference_mode.__exit__`."""
    context = self._inference_mode_context
    if type(context) is not InferenceContext:
        _steps.give_up("inference mode that was entered before the call")
    before = context.before
    if before is None:  # left before: nothing is put back twice
        return
    context.before = None
    _steps.switch_autograd(before[0], before[1], before[2])
    if context.handle is not None:
        context.handle = None
        _steps.mode_left()


# ---- functions that look at memory


def max_pool1d(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """`torch.nn.functional.max_pool1d`. Without gradients torch has a kernel of its
    own, which is no operator; this is what it does with them, but for a check that
    takes sizes for numbers. That kernel knows floats alone, the operator integers,
    too."""
    if not input.is_floating_point():
        _steps.give_up("max_pool1d of numbers that are no floats")
    if not isinstance(torch.max_pool1d, types.BuiltinFunctionType):
        _steps.give_up("torch.max_pool1d, which was replaced")
    if stride is None:
        stride = []
    return torch.max_pool1d_with_indices(
        input, kernel_size, stride, padding, dilation, ceil_mode
    )[0]


# ---- what leaves no trace in a graph


_HAS_MONITOR = (
    "_cupti_monitor_external_id" in profiler.record_function.__init__.__code__.co_names
)


def record_function_init(self: Any, name: str, args: str | None = None) -> None:
    """`torch.profiler.record_function`: a range for a profiler that runs, and
    nothing where none does. A graph has no such ranges."""
    if profiler._is_profiler_enabled:
        _steps.give_up("record_function while a profiler runs")
    self.name = name
    self.args = args
    # torch's own __exit__ then does nothing, should it run behind a break.
    self.run_callbacks_on_exit = False
    self.record = None
    if _HAS_MONITOR:
        self._cupti_monitor_external_id = None


def record_function_enter(self: Any) -> Any:
    if profiler._is_profiler_enabled:
        _steps.give_up("record_function while a profiler runs")
    return self


def record_function_exit(self: Any, *exception: Any) -> None:
    # One that torch's own __enter__ has begun.
    if self.record is not None:
        _steps.give_up("record_function while a profiler runs")


# ---- optimizers


def optimizer_number(x: Any) -> Any:
    """The count of steps, which eager's formulas take as a Python number: a double
    here, too, though not a known one. (For torch.compile's sake they would be in the
    count's own type, float32.)"""
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return x.double()
    return x


REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "torch.autograd.function.Function.apply": function_apply,
    "torch.autograd.grad": autograd_grad,
    "torch.autograd.backward": autograd_backward,
    "torch._tensor.Tensor.backward": tensor_backward,
    "torch._tensor.Tensor.register_hook": tensor_register_hook,
    "torch.utils.checkpoint.checkpoint": checkpoint,
    "torch.cond": cond,
    "torch._higher_order_ops.associative_scan.associative_scan": associative_scan,
    "torch.nn.modules.transformer._detect_is_causal_mask": detect_is_causal_mask,
    "torch._functorch.vmap.vmap_impl": vmap_impl,
    "torch._functorch.eager_transforms.grad_and_value_impl": grad_and_value_impl,
    "torch._functorch.eager_transforms._vjp_with_argnums": vjp_with_argnums,
    "torch._functorch.eager_transforms._jvp_with_argnums": jvp_with_argnums,
    "torch._dynamo._trace_wrapped_higher_order_op.ModIndex.apply": mod_index_apply,
    "torch.export._unlift._check_input_constraints_pre_hook": check_exported_inputs,
    "torch.autograd.grad_mode.inference_mode.__enter__": inference_enter,
    "torch.autograd.grad_mode.inference_mode.__exit__": inference_exit,
    "torch.nn.functional._max_pool1d": max_pool1d,
    "torch.optim.optimizer._get_value": optimizer_number,
    "torch.autograd.profiler.record_function.__init__": record_function_init,
    "torch.autograd.profiler.record_function.__enter__": record_function_enter,
    "torch.autograd.profiler.record_function.__exit__": record_function_exit,
}
