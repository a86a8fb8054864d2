"""Functions of `operator` that generated code writes as operators."""

from __future__ import annotations

#: With an operand on either side: a proxy may be the right one.
REFLECTABLE: dict[str, str] = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "floordiv": "{} // {}",
    "truediv": "{} / {}",
    "div": "{} / {}",
    "mod": "{} % {}",
    "pow": "{} ** {}",
    "lshift": "{} << {}",
    "rshift": "{} >> {}",
    "and_": "{} & {}",
    "or_": "{} | {}",
    "xor": "{} ^ {}",
    "getitem": "{}[{}]",
    "matmul": "{} @ {}",
}

OPERATORS: dict[str, str] = {
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "gt": "{} > {}",
    "le": "{} <= {}",
    "ge": "{} >= {}",
    "pos": "+{}",
    "neg": "-{}",
    "invert": "~{}",
    **REFLECTABLE,
}

INPLACE: dict[str, str] = {
    **{
        f"i{name.rstrip('_')}": text.replace("{} ", "{} ", 1).replace(" {}", "= {}")
        for name, text in REFLECTABLE.items()
        if name not in ("getitem", "div")
    },
    "setitem": "{}[{}] = {}",
}
