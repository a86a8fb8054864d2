"""``FxGraphDrawer``: a graph as a picture.

``dot`` is the text that Graphviz draws; ``svg`` needs no program: each node is
a box in the row behind its inputs, with a line from each input.
"""

from __future__ import annotations

import html
from typing import Any

from framejit.fx._names import target_text
from framejit.fx.graph_module import GraphModule
from framejit.fx.node import Node, format_arg

__all__ = ["FxGraphDrawer"]

_COLORS = {
    "placeholder": "AliceBlue",
    "call_module": "LemonChiffon1",
    "get_param": "Yellow2",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
    "call_function": "CadetBlue1",
    "call_method": "Azure2",
}
# What SVG has of Graphviz's names.
_SVG_COLORS = {
    "LemonChiffon1": "lemonchiffon",
    "CadetBlue1": "#98f5ff",
    "Azure2": "#e0eeee",
    "Yellow2": "#eeee00",
}


class FxGraphDrawer:
    """The picture of a module's graph, called `name`."""

    def __init__(self, graph_module: GraphModule, name: str) -> None:
        self.name = name
        self.module = graph_module

    def lines_of(self, node: Node) -> list[str]:
        """What stands in the box of a node."""
        lines = [f"name=%{node.name}", f"op_code={node.op}"]
        if node.op == "call_module":
            called: Any = self.module.get_submodule(str(node.target))
            lines.append(type(called).__name__)
        lines.append(f"target={target_text(node.target)}")
        constants = [format_arg(a) for a in node.args if not isinstance(a, Node)]
        if constants and node.op not in ("placeholder", "output"):
            lines.append(f"args={', '.join(constants)}")
        lines += [
            f"{key}={format_arg(value)}"
            for key, value in node.kwargs.items()
            if not isinstance(value, Node)
        ]
        lines.append(f"num_users={len(node.users)}")
        meta: Any = node.meta.get("tensor_meta")
        if hasattr(meta, "shape"):
            lines.append(f"{meta.dtype} {list(meta.shape)}")
        return lines

    def dot(self) -> str:
        """The text that Graphviz draws (``dot -Tsvg``)."""

        def quoted(text: str) -> str:
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            return escaped.replace("{", "\\{").replace("}", "\\}").replace("|", "\\|")

        out = [f'digraph "{quoted(self.name)}" {{', "  rankdir=TB;"]
        for node in self.module.graph.nodes:
            label = "|".join(quoted(line) for line in self.lines_of(node))
            out.append(
                f'  "{node.name}" [shape=record, style="filled,rounded", '
                f'fillcolor={_COLORS[node.op]}, label="{{{label}}}"];'
            )
            out += [
                f'  "{source.name}" -> "{node.name}";'
                for source in node.all_input_nodes
            ]
        return "\n".join([*out, "}"]) + "\n"

    def get_dot_graph(self) -> str:
        """The same, by torch.fx's name for it; a str, not an object of pydot's."""
        return self.dot()

    def svg(self) -> str:
        """The picture, as SVG."""
        line, width, gap = 16, 260, 40
        rows: dict[int, list[Node]] = {}
        row_of: dict[Node, int] = {}
        for node in self.module.graph.nodes:
            row = 1 + max((row_of[n] for n in node.all_input_nodes), default=-1)
            row_of[node] = row
            rows.setdefault(row, []).append(node)
        boxes: dict[Node, tuple[int, int, int]] = {}
        texts = {node: self.lines_of(node) for node in row_of}
        y = gap
        for row in sorted(rows):
            heights = [line * len(texts[node]) + 10 for node in rows[row]]
            for at, node in enumerate(rows[row]):
                boxes[node] = (gap + at * (width + gap), y, heights[at])
            y += max(heights) + gap
        total = gap + max(map(len, rows.values()), default=0) * (width + gap)
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{y}" '
            'font-family="monospace" font-size="12">'
        ]
        for node, (x, top, _) in boxes.items():
            for source in node.all_input_nodes:
                sx, stop, height = boxes[source]
                out.append(
                    f'<line x1="{sx + width // 2}" y1="{stop + height}" '
                    f'x2="{x + width // 2}" y2="{top}" stroke="grey"/>'
                )
        for node, (x, top, height) in boxes.items():
            color = _COLORS[node.op]
            out.append(
                f'<rect x="{x}" y="{top}" width="{width}" height="{height}" rx="6" '
                f'fill="{_SVG_COLORS.get(color, color.lower())}" stroke="black"/>'
            )
            for at, text in enumerate(texts[node]):
                out.append(
                    f'<text x="{x + 8}" y="{top + line * (at + 1)}">'
                    f"{html.escape(text)}</text>"
                )
        return "\n".join([*out, "</svg>"]) + "\n"
