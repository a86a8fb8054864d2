"""Passes over graphs: shapes, splitting, pictures, times."""

from framejit.fx.passes import graph_drawer, profiler, shape_prop, split_module

__all__ = ["graph_drawer", "profiler", "shape_prop", "split_module"]
