"""``Graph``: a program as a list of nodes, and how it is edited."""

from __future__ import annotations

import builtins
import copy
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from framejit._C import _fx
from framejit.fx._codegen import CodeGen, PythonCode, TransformCode
from framejit.fx._names import Namespace
from framejit.fx.immutable_collections import immutable_dict, immutable_list
from framejit.fx.node import Argument, Node, Target, map_arg

if TYPE_CHECKING:
    from framejit.fx.graph_module import GraphModule

__all__ = ["CodeGen", "Graph", "PythonCode"]


class _InsertPoint:
    """Where nodes go until the ``with`` block ends."""

    def __init__(self, graph: Graph, node: Any, after: bool) -> None:
        self._graph = graph
        self._before = graph._insert_point()
        graph._set_insert_point(node, after)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._graph._set_insert_point(*self._before)


class NodeList:
    """The nodes of a graph, in order. What is edited meanwhile is seen."""

    __slots__ = ("_backwards", "_graph")

    def __init__(self, graph: Graph, backwards: bool = False) -> None:
        self._graph = graph
        self._backwards = backwards

    def __len__(self) -> int:
        return self._graph._num_nodes()

    def __iter__(self) -> Iterator[Any]:
        return self._graph._iterate(self._backwards)

    def __reversed__(self) -> Iterator[Any]:
        return self._graph._iterate(not self._backwards)


class _GraphNames:
    """``graph._graph_namespace`` of programs that make names for nodes."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def create_name(self, candidate: str, obj: Any = None) -> str:
        return self._graph._create_name(candidate)


class Graph(_fx.GraphBase):
    """A program: a list of :class:`Node`, each a call, an input or the output.

    >>> from framejit import fx
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> graph.output(graph.call_function(torch.relu, (x,)))
    output
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %relu : [num_users=1] = call_function[target=torch.relu](args = (%x,), \
kwargs = {})
        return relu

    New nodes go to the insertion point (:meth:`inserting_before`,
    :meth:`inserting_after`), which is the end.
    """

    def __init__(
        self,
        owning_module: GraphModule | None = None,
        tracer_cls: builtins.type[Any] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        #: The GraphModule whose ``graph`` this is, or None.
        self.owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        # Of the traced function's code: name, file and line.
        self._co_fields: dict[str, Any] = {}

    # -- nodes

    @property
    def nodes(self) -> NodeList:
        """The nodes in order; ``len``, ``iter`` and ``reversed`` work.

        Nodes may be erased, moved and inserted while they are iterated.
        """
        return NodeList(self)

    @property
    def _graph_namespace(self) -> _GraphNames:
        return _GraphNames(self)

    def output_node(self) -> Node:
        """The last node, which must be the output."""
        last: Node = next(iter(reversed(self.nodes)))
        if last.op != "output":
            raise AssertionError(f"Expected output node, got op={last.op}")
        return last

    def placeholder(
        self,
        name: str,
        type_expr: Any = None,
        default_value: Any = inspect.Signature.empty,
    ) -> Node:
        """Insert an input; ``default_value`` is the default of the parameter."""
        no_default = default_value is inspect.Signature.empty
        args = () if no_default else (default_value,)
        return self._made("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Insert a read of what the module has at a path, such as ``a.weight``."""
        if self.owning_module is not None and not _has_state(
            self.owning_module, qualified_name
        ):
            warnings.warn(
                f"the module of this graph has no parameter, buffer or module "
                f"at {qualified_name!r}: add it (add_submodule, "
                "register_parameter, register_buffer) before the graph runs",
                stacklevel=2,
            )
        return self._made("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Insert a call of the submodule at a path."""
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)  # raises without one
        return self._made("call_module", module_name, args, kwargs, None, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Insert the output: what the graph returns."""
        return self._made("output", "output", (result,), type_expr=type_expr)

    def _made(self, *args: Any, **kwargs: Any) -> Node:
        made: Node = self.create_node(*args, **kwargs)
        return made

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Insert new nodes before `n` (None: at the front).

        In a ``with`` statement, until it ends; else from now on.
        """
        if n is None:
            return _InsertPoint(self, self._root, True)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n, False)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Insert each new node right behind `n` (None: at the end).

        In a ``with`` statement, until it ends; else from now on.
        """
        if n is None:
            return _InsertPoint(self, None, False)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n, True)

    # -- copies

    def node_copy(
        self, node: Node, arg_transform: Callable[[Node], Argument] = lambda n: n
    ) -> Node:
        """Insert a copy of a node of some graph.

        ``arg_transform`` gives what nodes in its arguments become here.
        """
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        made = self._made(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Any, Any], return_output_node: bool = False
    ) -> Any:
        """Insert copies of the nodes of another graph, but for its output.

        ``val_map`` is filled with (node of `g`, its copy); nodes that are in it
        already stand for what it says. Returns what the output of `g` is here.
        """
        overridden = (
            type(self).create_node is not _fx.GraphBase.create_node
            or type(self).node_copy is not Graph.node_copy
        )
        if overridden or not isinstance(g, _fx.GraphBase):
            output = self._copy_one_by_one(g, val_map)
        else:
            output = self._copy_nodes(g, val_map)
        if output is None:
            return None
        value = map_arg(output.args[0], lambda n: val_map[n])
        return (value, output) if return_output_node else value

    def _copy_one_by_one(self, g: Any, val_map: dict[Any, Any]) -> Node | None:
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                found: Node = node
                return found
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[Any, Any] | None = None) -> Graph:
        # (The memo has the nodes, too: what else was copied may hold some.)
        memo = {} if memo is None else memo
        made = Graph(tracer_cls=self._tracer_cls)
        memo[id(self)] = made
        made._codegen = copy.deepcopy(self._codegen)
        made._co_fields = dict(self._co_fields)
        found = made.graph_copy(self, memo, return_output_node=True)
        if found is not None:
            value, output = found
            memo[output] = new = made.output(value, type_expr=output.type)
            new.meta = copy.copy(output.meta)
        return made

    def __reduce__(self) -> Any:
        from framejit.fx._pickling import record_of

        # The state comes later: what is in it may hold this graph.
        return _new_graph, (type(self),), record_of(self)

    def __setstate__(self, record: dict[str, Any]) -> None:
        from framejit.fx._pickling import restore

        restore(self, record)
        owner = self.owning_module
        if owner is not None and vars(owner).get("_graph") is self:
            owner.recompile()  # it came before the nodes did

    # -- checks and clean-up

    def lint(self) -> None:
        """Raise where the graph is not well-formed, with the node named.

        Arguments are nodes of this graph that stand before; names are unique;
        targets exist in the module that owns the graph, if one does.
        """
        self._lint_nodes()
        owner = self.owning_module
        if owner is None:
            return
        for node in self.nodes:
            called = node.op == "call_function"
            if not (callable(node.target) if called else isinstance(node.target, str)):
                raise ValueError(
                    f"Node {node} target {node.target} has type "
                    f"{torch.typename(node.target)} but a "
                    f"{'Callable' if called else 'str'} is expected"
                )
            if node.op in ("get_attr", "call_module"):
                _check_path(owner, node)

    def eliminate_dead_code(
        self, is_impure_node: Callable[[Node], bool] | None = None
    ) -> bool:
        """Erase nodes without users that have no effect; did it erase any?

        ``is_impure_node`` says which nodes must stay, in place of
        :meth:`Node.is_impure`. Graphs that ``get_attr`` nodes name are cleaned,
        too.
        """
        from framejit.fx.graph_module import GraphModule

        self.lint()
        is_impure = is_impure_node or Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not is_impure(node):
                self.erase_node(node)
                changed = True
        if self.owning_module is not None:
            used = {node.target for node in self.find_nodes(op="get_attr")}
            for name, child in self.owning_module.named_children():
                if name in used and isinstance(child, GraphModule):
                    changed |= child.graph.eliminate_dead_code()
                    child.recompile()
        return changed

    # -- text

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "\n    ".join(["graph():", *(line for line in lines if line)])

    def print_tabular(self) -> None:
        """Print the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [
            (n.op, n.name, str(n.target), str(n.args), str(n.kwargs))
            for n in self.nodes
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, tuple("-" * width for width in widths))  # type: ignore[arg-type]
        for row in rows:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            print("  ".join(cells).rstrip())

    def to_text(self) -> str:
        """The graph as text that :meth:`parse` reads back."""
        from framejit.fx._text import print_graph

        return print_graph(self)

    @staticmethod
    def parse(text: str) -> Graph:
        """The graph that :meth:`to_text` gave this text of."""
        from framejit.fx._text import parse_graph

        return parse_graph(text)

    # -- code

    def python_code(self, root_module: str, *, verbose: bool = False) -> PythonCode:
        """The graph as Python source; ``root_module`` is what paths begin with.

        verbose: comments say where in the user's program nodes come from.
        """
        return self._codegen._gen_python_code(
            self, root_module, Namespace(), verbose=verbose
        )

    def set_codegen(self, codegen: CodeGen) -> None:
        """Let `codegen` write the source of this graph."""
        self._codegen = codegen

    def on_generate_code(
        self, make_transformer: Callable[[TransformCode | None], TransformCode]
    ) -> AbstractContextManager[None]:
        """Change the lines of the body whenever source is generated.

        ``make_transformer`` gets the transformer there is, or None, and returns
        one: a function from a list of lines to a list of lines. As a context
        manager the old one is put back at the end.
        """
        codegen = self._codegen
        old = codegen._body_transformer
        codegen._body_transformer = make_transformer(old)

        @contextmanager
        def until_end() -> Iterator[None]:
            try:
                yield
            finally:
                codegen._body_transformer = old

        return until_end()

    def process_inputs(self, *args: Any) -> Any:
        """The inputs of the graph, of the arguments of the generated function."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the generated function returns, of the output of the graph."""
        return self._codegen.process_outputs(out)

    def _target_to_str(self, target: Target) -> str:
        """What a node with this target is named after."""
        name = target if isinstance(target, str) else target.__name__
        if isinstance(target, str) and name[:2] == name[-2:] == "__":
            name = name[2:-2]
        return _snake_case(name)


def _new_graph(cls: builtins.type[Graph]) -> Graph:
    """One without nodes, yet."""
    graph = cls.__new__(cls)
    Graph.__init__(graph)
    return graph


def _snake_case(name: str) -> str:
    out = ""
    for at, letter in enumerate(name):
        if "A" <= letter <= "Z" and at and "a" <= name[at - 1] <= "z":
            out += "_"
        out += letter.lower()
    return out


def _has_state(module: torch.nn.Module, path: str) -> bool:
    """Does it have a module, parameter or buffer there?"""
    prefix, _, name = path.rpartition(".")
    try:
        owner = module.get_submodule(prefix)
    except AttributeError:
        return False
    value = getattr(owner, name, None)
    return (
        isinstance(value, (torch.nn.Module, torch.nn.Parameter))
        or name in owner._buffers
    )


def _check_path(owner: Any, node: Node) -> None:
    """Raise unless the module has what a node names."""
    at = owner
    parts = str(node.target).split(".")
    for index, part in enumerate(parts):
        at = getattr(at, part, None)
        before = ".".join(parts[:index])
        if at is None:
            raise RuntimeError(
                f"Node {node} target {node.target} references nonexistent attribute "
                f"{part} of {before}"
            )
        if node.op == "call_module" and not isinstance(at, torch.nn.Module):
            raise RuntimeError(
                f"Node {node} target {node.target} {part} of {before} does not "
                "reference an nn.Module"
            )


_fx.set_classes(Node, Graph, immutable_list, immutable_dict)
