"""The lists and dicts in arguments of nodes.

Changing one would not change the node that it was read from, so they refuse:
make a copy, change that, and assign it to ``node.args`` or ``node.kwargs``.
"""

from __future__ import annotations

from typing import Any, NoReturn

from torch.utils import _pytree

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises TypeError: a copy may be changed."""
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation: copy the "
        "arguments of a node, change the copy and assign it to node.args or "
        "node.kwargs"
    )


class immutable_list(list[Any]):
    """A list that cannot be changed."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse  # type: ignore[assignment]
    append = clear = extend = insert = pop = _refuse  # type: ignore[assignment]
    remove = reverse = sort = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[type[immutable_list], tuple[tuple[Any, ...]]]:
        return immutable_list, (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dict that cannot be changed."""

    __delitem__ = __ior__ = __setitem__ = _refuse  # type: ignore[assignment]
    clear = pop = popitem = setdefault = update = _refuse  # type: ignore[assignment]

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[immutable_dict], tuple[tuple[Any, ...]]]:
        return immutable_dict, (tuple(self.items()),)


_pytree.register_pytree_node(
    immutable_list,
    lambda items: (list(items), None),
    lambda items, context: immutable_list(items),
    serialized_type_name="framejit.fx.immutable_collections.immutable_list",
)
_pytree.register_pytree_node(
    immutable_dict,
    lambda items: (list(items.values()), list(items)),
    lambda values, keys: immutable_dict(zip(keys or (), values, strict=True)),
    serialized_type_name="framejit.fx.immutable_collections.immutable_dict",
)
