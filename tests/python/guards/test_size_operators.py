"""How often torch's own samples of its operators are compiled as their sizes change."""

import logging

import pytest
import torch

import framejit
from sweeps.sizes import calls_of_operator, operators, visit

# Compiled again for other sizes, under dynamic=True over sizes 5, 6, 7, 8. Each says
# why; one that is no longer needed fails.
#
# The graph is another one for each size:
OTHER_GRAPHS = {
    "cumprod": "the gradient is a loop over the elements",
    "masked.cumprod": "cumprod",
    "linalg.vander": "cumprod",
    "linalg.householder_product": "the gradient is a loop over the reflections",
}
# Before 2.13 that of cumprod is a kernel of ours.
if not torch.__version__.startswith("2.13."):
    del OTHER_GRAPHS["cumprod"], OTHER_GRAPHS["masked.cumprod"]
    del OTHER_GRAPHS["linalg.vander"]
# Code of torch's takes the size for a number before an operator sees it:
NUMBERS_OF_TORCH = {
    "block_diag": "the gradient notes the sizes of the blocks as numbers",
}
AGAIN = OTHER_GRAPHS | NUMBERS_OF_TORCH
# A part of the database, and of what the table names some samples from all over.
EVERY, SAMPLES = 3, 3
PARTS = 4


# What is said of what is compiled partly or not at all.
QUIET = ("framejit.graph_breaks", "framejit.fallbacks")


def name_of(op):
    return ".".join(filter(None, (op.name, op.variant_test_name)))


def samples_of(op):
    """Functions with the arguments of their calls, where eager takes all of these."""
    try:
        found = list(calls_of_operator(op))
    except Exception:  # the database has none of such sizes
        return
    count = SAMPLES if name_of(op) in AGAIN else 1
    step = max(1, len(found) // count)
    for fn, calls in found[::step][:count]:
        try:
            for args in calls:
                fn(*args)
        except Exception:
            continue
        yield fn, calls


def test_the_table_names_operators():
    assert AGAIN.keys() <= {name_of(op) for op in operators()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_an_operator_is_compiled_once_for_all_sizes(part, caplog):
    for channel in QUIET:
        caplog.set_level(logging.ERROR, channel)
    wrong, visited = [], 0
    chosen = [
        op
        for at, op in enumerate(operators())
        if at % EVERY == 0 or name_of(op) in AGAIN
    ]
    for op in chosen[part::PARTS]:
        name, again = name_of(op), []
        for number, (fn, calls) in enumerate(samples_of(op)):
            found = visit(fn, calls)
            visited += 1
            if found.wrong:
                wrong.append(f"{name} {number} differs from eager: {found.wrong}")
            if found.again:
                again.append(f"{number}: {found.entries} entries for {found.patterns}")
        if bool(again) != (name in AGAIN):
            why = AGAIN.get(name, "no reason is known")
            wrong.append(f"{name} {again or 'is compiled once'} ({why})")
    framejit.reset()
    assert not wrong, "\n".join(wrong)
    assert visited > 15
