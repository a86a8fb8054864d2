"""Two views of one memory, of which one is written: what eager refuses is refused.

ATen's rule (`get_overlap_status` in ATen/MemoryOverlap.h) is about sizes,
places *and* strides, those of dims with one element, too: `x[0]` and
`x.diagonal()` of a 1x1 `x` are one element at one place, and no operator may
write to one what it reads from the other. So every pair of views is met at
sizes that make them equal, part of each other, or apart.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from differential import check

VIEWS = {
    "itself": lambda x: x,
    "row": lambda x: x[0],
    "last row": lambda x: x[-1],
    "column": lambda x: x[:, 0],
    "rows": lambda x: x[:1],
    "diagonal": lambda x: x.diagonal(),
    "turned": lambda x: x.t(),
    "flat": lambda x: x.view(-1),
    "every second": lambda x: x.view(-1)[::2],
    "unsqueezed": lambda x: x[0].unsqueeze(0),
    "strided": lambda x: x.as_strided((x.size(0),), (2,)),
}
WRITES = {
    "copy": lambda a, b: a.copy_(b),
    "add": lambda a, b: a.add_(b),
    "into": lambda a, b: torch.mul(b, b, out=a),
    "cumsum": lambda a, b: torch.cumsum(b, 0, out=a),
    "matmul": lambda a, b: a.addmm_(b, b) if b.dim() == 2 else a.add_(b @ b),
    "masked": lambda a, b: a.masked_scatter_(b > 0, b),
    "foreach": lambda a, b: torch._foreach_add_([a, b], [b, a]),
}


pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more")


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", ["fresh", "input"])
def test_written_through_one_and_read_through_another(kind, write):
    for i, (first, second) in enumerate(itertools.product(VIEWS, repeat=2)):

        def program(x, first=first, second=second):
            if kind == "fresh":
                x = x * 2
            a, b = VIEWS[first](x), VIEWS[second](x)
            # No `try`: an error ends the function as it ends eager's.
            WRITES[write](a, b)
            return x + 1, a * 2

        for n in (1, 3):
            check(
                program,
                lambda n=n: (torch.arange(1.0, n * n + 1).view(n, n),),
                backends=("native",),
                calls=1,
                backward=False,
                dynamic=(None, True)[i % 2],
            )


@pytest.mark.parametrize("write", ["copy", "add", "matmul"])
def test_one_function_meets_all_sizes(write):
    for first, second in itertools.combinations(VIEWS, 2):

        def program(x, first=first, second=second):
            x = x * 2
            try:
                WRITES[write](VIEWS[first](x), VIEWS[second](x))
            except RuntimeError as error:
                return x, str(error)
            return x, ""

        # The arguments of a call are made twice: for eager and for compiled.
        sizes = (n for n in (3, 2, 1, 4, 1, 3) for _ in range(2))

        def args(sizes=sizes):
            n = next(sizes)
            return (torch.arange(1.0, n * n + 1).view(n, n),)

        check(program, args, backends=("native",), calls=6, backward=False)
