"""``dynamic_shapes=``: what may be written for an input, and what follows from it.

A specification is shaped like the inputs: by parameter name or in order, containers
like the containers, and for each tensor ``{dim: Dim}`` or a list with an item a dim;
None where nothing changes.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from framejit.errors import ConstraintViolationError
from framejit.export._dims import Dim, DimHint, as_dim, dims, parse_dim

__all__ = [
    "AdditionalInputs",
    "Dim",
    "ShapesCollection",
    "dims",
    "leaf_dims",
    "refine_dynamic_shapes_from_suggested_fixes",
]

# By number of the leaf: {dim: what it is}; of an int the one dim is -1.
LeafDims = dict[int, dict[int, Dim | DimHint]]


def _parts(value: Any) -> tuple[list[Any], list[Any]]:
    """The children of a container and their keys: of a dict its keys, of a dataclass
    the names of its fields, else numbers."""
    node = pytree.SUPPORTED_NODES[pytree._get_node_type(value)]
    children, context = node.flatten_fn(value)
    if isinstance(value, Mapping):
        return list(children), list(context) if isinstance(context, list) else list(
            value
        )
    if dataclasses.is_dataclass(value):
        names = [
            field.name
            for field in dataclasses.fields(value)
            if getattr(value, field.name) is not None
        ]
        if len(names) == len(children):
            return list(children), list(names)
    return list(children), list(range(len(children)))


class _Walk:
    def __init__(self, names: list[str]) -> None:
        self.names = names  # of the leaves, for messages
        self.found: LeafDims = {}
        self.torch_roots: dict[str, Dim] = {}
        self.next = 0

    def leaf(self, value: Any, spec: Any, where: str) -> None:
        number = self.next
        self.next += 1
        if spec is None:
            return
        if isinstance(value, torch.Tensor):
            if isinstance(spec, Mapping):
                items = dict(spec)
            elif isinstance(spec, (list, tuple)):
                if len(spec) != value.dim():
                    raise ConstraintViolationError(
                        f"dynamic_shapes{where}: {len(spec)} dims are given for "
                        f"{self.names[number]}, which has {value.dim()}"
                    )
                items = dict(enumerate(spec))
            else:
                raise ConstraintViolationError(
                    f"dynamic_shapes{where}: {self.names[number]} is a tensor: "
                    f"expected a dict from dims, a list with an item a dim, or None, "
                    f"got {spec!r}"
                )
            made = self.found.setdefault(number, {})
            for dim, item in items.items():
                if not isinstance(dim, int) or not -value.dim() <= dim < value.dim():
                    raise ConstraintViolationError(
                        f"dynamic_shapes{where}: {self.names[number]} has no dim "
                        f"{dim!r}"
                    )
                at = dim % value.dim()
                self.put(made, at, item, value.size(at), f"{where}[{dim}]", number)
            return
        if type(value) is int:
            made = self.found.setdefault(number, {})
            self.put(made, -1, spec, value, where, number)
            return
        raise ConstraintViolationError(
            f"dynamic_shapes{where}: {self.names[number]} is a "
            f"{type(value).__name__}, which has no size: expected None"
        )

    def put(
        self,
        into: dict[int, Dim | DimHint],
        dim: int,
        item: Any,
        size: int,
        where: str,
        number: int,
    ) -> None:
        what = as_dim(item, self.torch_roots, where)
        of = self.names[number] + (f".shape[{dim}]" if dim >= 0 else "")
        if isinstance(what, int):
            if what != size:
                raise ConstraintViolationError(
                    f"dynamic_shapes{where}: {of} is said to be {what}, and is {size}"
                )
            return
        if (
            what is Dim.STATIC
            or isinstance(what, DimHint)
            and what.kind.name == "STATIC"
        ):
            return
        low, high = what.min or 0, what.max
        if size < low or high is not None and size > high:
            raise ConstraintViolationError(
                f"dynamic_shapes{where}: {of} is {size} in the example, which is not "
                f"in the range of {what!r}"
            )
        if isinstance(what, Dim) and (size - what.offset) % what.scale:
            raise ConstraintViolationError(
                f"dynamic_shapes{where}: {of} is {size}, which is no value of {what!r}"
            )
        into[dim] = what

    def value(self, value: Any, spec: Any, where: str) -> None:
        if pytree.tree_is_leaf(value):
            self.leaf(value, spec, where)
            return
        children, keys = _parts(value)
        if spec is None:
            specs: list[Any] = [None] * len(children)
        elif isinstance(spec, Mapping):
            unknown = [key for key in spec if key not in keys]
            if unknown:
                raise ConstraintViolationError(
                    f"dynamic_shapes{where}: {unknown[0]!r} is no key of the input, "
                    f"which has {keys}"
                )
            specs = [spec.get(key) for key in keys]
        elif isinstance(spec, (list, tuple)) and len(spec) == len(children):
            specs = list(spec)
        else:
            raise ConstraintViolationError(
                f"dynamic_shapes{where}: expected a specification for each of the "
                f"{len(children)} parts of a {type(value).__name__}, got {spec!r}"
            )
        for child, key, part in zip(children, keys, specs, strict=True):
            self.value(child, part, f"{where}[{key!r}]")


def _by_parameter(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, int | None, Any]]:
    """(parameter, its item of a variable one, value) in the order of leaves."""
    rows: list[tuple[str, int | None, Any]] = []
    positional: list[str] = []
    variable = None
    for name, parameter in signature.parameters.items():
        if parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ):
            positional.append(name)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            variable = name
    for i, value in enumerate(args):
        if i < len(positional):
            rows.append((positional[i], None, value))
        else:
            rows.append((variable or f"args_{i}", i - len(positional), value))
    return rows + [(name, None, value) for name, value in kwargs.items()]


def _with_one_for_args(
    signature: inspect.Signature, rows: list[Any], shapes: Any
) -> Any:
    """The specification with an item an input, where it has one for all of *args."""
    at = next((i for i, row in enumerate(rows) if row[1] is not None), None)
    many = sum(item is not None for _, item, _ in rows)
    if at is None or len(shapes) != len(rows) - many + 1:
        return shapes
    inner = shapes[at]
    if inner is None:
        inner = [None] * many
    if not isinstance(inner, (list, tuple)) or len(inner) != many:
        return shapes
    if many == 1 and not isinstance(inner[0], (Mapping, list, tuple, type(None))):
        return shapes  # of the one input itself
    return [*shapes[:at], *inner, *shapes[at + 1 :]]


def leaf_dims(
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    names: list[str],
) -> LeafDims:
    """What each leaf of the inputs is said to be.

    names: of the leaves.
    Raises ConstraintViolationError: the specification does not fit the inputs.
    """
    if dynamic_shapes is None:
        return {}
    if isinstance(dynamic_shapes, AdditionalInputs):
        raise ConstraintViolationError(
            "dynamic_shapes: of AdditionalInputs, pass what its dynamic_shapes() gives"
        )
    rows = _by_parameter(signature, args, kwargs)
    walk = _Walk(names)
    if isinstance(dynamic_shapes, (list, tuple)):
        dynamic_shapes = _with_one_for_args(signature, rows, dynamic_shapes)
    if isinstance(dynamic_shapes, (list, tuple)):
        if len(dynamic_shapes) != len(rows):
            raise ConstraintViolationError(
                f"dynamic_shapes: {len(dynamic_shapes)} specifications for "
                f"{len(rows)} inputs"
            )
        for (name, _, value), spec in zip(rows, dynamic_shapes, strict=True):
            walk.value(value, spec, f"[{name!r}]")
        return walk.found
    if not isinstance(dynamic_shapes, Mapping):
        raise ConstraintViolationError(
            "dynamic_shapes: expected a dict from names of inputs, or a list or tuple, "
            f"got {type(dynamic_shapes).__name__}"
        )
    given = dict(dynamic_shapes)
    for name, parameter in signature.parameters.items():
        # {"kwargs": {"x": ...}} is {"x": ...}
        if parameter.kind is parameter.VAR_KEYWORD and name not in kwargs:
            given.update(given.pop(name, None) or {})
    known = {name for name, _, _ in rows} | set(signature.parameters)
    if unknown := [name for name in given if name not in known]:
        raise ConstraintViolationError(
            f"dynamic_shapes: {unknown[0]!r} is no input of the module, which has "
            f"{sorted(known)}"
        )
    for name, item, value in rows:
        spec = given.get(name)
        if item is not None and spec is not None:
            spec = spec[item]
        at = f"[{name!r}]" + (f"[{item}]" if item is not None else "")
        walk.value(value, spec, at)
    return walk.found


def _signature(mod: Any) -> inspect.Signature:
    return inspect.signature(mod.forward if isinstance(mod, torch.nn.Module) else mod)


def _shaped(value: Any, leaf: Any) -> Any:
    """A specification like the value: leaf(tensor or number) at its leaves."""
    if pytree.tree_is_leaf(value):
        return leaf(value)
    children, keys = _parts(value)
    made = [_shaped(child, leaf) for child in children]
    if isinstance(value, Mapping) or any(isinstance(key, str) for key in keys):
        return dict(zip(keys, made, strict=True))
    return made


class ShapesCollection:
    """Specifications by tensor, for inputs in which tensors lie deep.

    >>> shapes = ShapesCollection()
    >>> shapes[x] = {0: Dim("batch")}
    >>> export(mod, args, dynamic_shapes=shapes)
    """

    def __init__(self) -> None:
        self._shapes: dict[int, Any] = {}
        self._tensors: list[torch.Tensor] = []  # kept, so that ids stay theirs

    def __setitem__(self, tensor: torch.Tensor, shape: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"ShapesCollection: expected a tensor, got {type(tensor).__name__}"
            )
        known = self._shapes.get(id(tensor))
        if known is not None and known != shape:
            raise ValueError(
                "ShapesCollection: the tensor has another specification already: "
                f"{known}"
            )
        self._shapes[id(tensor)] = shape
        self._tensors.append(tensor)

    def __getitem__(self, tensor: torch.Tensor) -> Any:
        if id(tensor) not in self._shapes:
            self[tensor] = {}
        return self._shapes[id(tensor)]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(
        self, mod: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """The specification for these inputs, in their order.

        Raises ValueError: a tensor of the collection is none of them.
        """
        seen: set[int] = set()

        def leaf(value: Any) -> Any:
            seen.add(id(value))
            return self._shapes.get(id(value))

        made = [_shaped(value, leaf) for value in (*args, *(kwargs or {}).values())]
        if missing := [t for t in self._tensors if id(t) not in seen]:
            raise ValueError(
                "ShapesCollection: a tensor with a specification is no input: one of "
                f"shape {list(missing[0].shape)}"
            )
        return made


class AdditionalInputs:
    """Further inputs, from which it follows what may change: sizes and ints that
    differ among them are `Dim.DYNAMIC`.

    >>> more = AdditionalInputs()
    >>> more.add((torch.rand(5, 4),))
    >>> export(mod, args, dynamic_shapes=more.dynamic_shapes(mod, args))
    """

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> None:
        if not isinstance(args, tuple):
            raise TypeError(f"AdditionalInputs: expected a tuple, got {args!r}")
        self._examples.append((args, dict(kwargs or {})))

    def dynamic_shapes(
        self, mod: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """What differs between these inputs and those that were added.

        Raises ValueError: they differ in more than sizes and ints.
        """
        base = (args, dict(kwargs or {}))
        leaves, spec = pytree.tree_flatten(base)
        shapes: list[Any] = [
            {} if isinstance(leaf, torch.Tensor) else None for leaf in leaves
        ]
        for example in self._examples:
            others, other_spec = pytree.tree_flatten(example)
            if other_spec != spec:
                raise ValueError(
                    "AdditionalInputs: an example has another structure: "
                    f"{other_spec}, expected {spec}"
                )
            for i, (one, other) in enumerate(zip(leaves, others, strict=True)):
                if isinstance(one, torch.Tensor):
                    if not isinstance(other, torch.Tensor) or one.dim() != other.dim():
                        raise ValueError(
                            "AdditionalInputs: a tensor of other rank, or none"
                        )
                    for dim in range(one.dim()):
                        if one.size(dim) != other.size(dim):
                            shapes[i][dim] = Dim.DYNAMIC
                elif one != other:
                    if type(one) is not int or type(other) is not int:
                        raise ValueError(
                            f"AdditionalInputs: {one!r} and {other!r} are of two "
                            "programs"
                        )
                    shapes[i] = Dim.DYNAMIC
        order = iter(shapes)
        return [
            _shaped(value, lambda _: next(order))
            for value in (*args, *(kwargs or {}).values())
        ]

    def verify(self, ep: Any) -> None:
        """Run the program on all of them. Raises what a call of it raises."""
        module = ep.module()
        for args, kwargs in self._examples:
            torch.manual_seed(0)
            module(*args, **kwargs)


_FIX = re.compile(r"^\s{2,}(\w+) = (.+?)\s*$", re.MULTILINE)
_MADE = re.compile(r"Dim\('(\w+)'(?:, min=(\d+))?(?:, max=(\d+))?\)\Z")


def refine_dynamic_shapes_from_suggested_fixes(msg: str, dynamic_shapes: Any) -> Any:
    """The specification with what an error suggests put in.

    msg: the text of a `ConstraintViolationError` with "Suggested fixes:".
    Raises ValueError: the text suggests nothing.
    """
    _, found, suggested = msg.partition("Suggested fixes:")
    lines = _FIX.findall(suggested)
    if not found or not lines:
        raise ValueError("the message has no suggested fixes")
    roots: dict[str, Dim] = {}
    for name, text in lines:
        if made := _MADE.match(text):
            low, high = made.group(2), made.group(3)
            roots[name] = Dim(
                made.group(1),
                min=int(low) if low else None,
                max=int(high) if high else None,
            )
    fixes: dict[str, Dim | int] = dict(roots)

    def collect(spec: Any) -> None:
        if isinstance(spec, Dim):
            roots.setdefault(spec.root.__name__, spec.root)
        elif isinstance(spec, Mapping):
            for part in spec.values():
                collect(part)
        elif isinstance(spec, (list, tuple)):
            for part in spec:
                collect(part)

    collect(dynamic_shapes)
    for name, text in lines:
        if name not in fixes:
            fixes[name] = parse_dim(text, roots)

    def refined(spec: Any) -> Any:
        if isinstance(spec, Dim):
            fix = fixes.get(spec.root.__name__)
            if fix is None:
                return spec
            if isinstance(fix, int):
                return spec.at(fix)
            return fix * spec.scale + spec.offset
        if isinstance(spec, Mapping):
            return {key: refined(part) for key, part in spec.items()}
        if isinstance(spec, (list, tuple)):
            return type(spec)(refined(part) for part in spec)
        return spec

    return refined(dynamic_shapes)
