"""framejit.export and torch.export on the programs of tests/python/modules.

How many of them each exports (with known sizes, and with every size `Dim.AUTO`) so that
the program gives what eager gives; how long that takes in one process; and how long the
first export of a fresh process takes. By processor time, in a thread each.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COLD = ("gpt", "bert", "resnet", "unet", "mobilenet_v2", "lstm_by_hand")
SIDES = ("torch", "framejit")


def prepare() -> None:
    import torch

    for folder in ("tests/python/modules", "tests/python"):
        sys.path.insert(0, str(ROOT / folder))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)


def shapes_of(args: Any, side: Any, auto: bool) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    if not auto:
        return None
    return pytree.tree_map(
        lambda leaf: (
            {dim: side.Dim.AUTO for dim in range(leaf.dim())}
            if isinstance(leaf, torch.Tensor)
            else None
        ),
        args,
    )


def side_named(name: str) -> Any:
    import torch

    import framejit.export

    return torch.export if name == "torch" else framejit.export


def one(name: str, side: Any, auto: bool) -> tuple[bool, bool, float]:
    """Was it exported, does the program give what eager gives, and milliseconds."""
    import torch
    from architectures import ARCHITECTURES
    from torch.utils import _pytree as pytree

    def made() -> tuple[Any, Any]:
        torch.manual_seed(0)
        module, inputs = ARCHITECTURES[name]()
        return module.eval(), inputs

    def run(module: Any, args: Any) -> list[Any]:
        copies = pytree.tree_map(
            lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, args
        )
        torch.manual_seed(1)
        return pytree.tree_leaves(module(*copies))

    module, inputs = made()
    args = inputs(3)
    with torch.no_grad():
        start = time.process_time()
        try:
            program = side.export(
                module,
                args,
                dynamic_shapes=shapes_of(args, side, auto),
                strict=False,
            )
        except Exception:
            return False, False, 0.0
        took = (time.process_time() - start) * 1e3
        try:
            module, inputs = made()
            args = inputs(3)
            pairs = zip(run(module, args), run(program.module(), args), strict=True)
            for expected, found in pairs:
                torch.testing.assert_close(
                    expected, found, rtol=1e-4, atol=1e-5, equal_nan=True
                )
        except Exception:
            return True, False, took
    return True, True, took


def share(side_name: str, auto: bool) -> None:
    """In a process of its own: prints what one side does with all programs."""
    prepare()
    from architectures import ARCHITECTURES

    side = side_named(side_name)
    rows = {name: one(name, side, auto) for name in ARCHITECTURES}
    print(json.dumps(rows))


def cold(side_name: str, name: str) -> None:
    """In a process of its own: prints the milliseconds of its first export."""
    prepare()
    print(json.dumps(one(name, side_named(side_name), auto=False)[2]))


def in_process(call: str) -> Any:
    code = f"import benchmarks.export as e; e.{call}"
    path = os.pathsep.join([str(ROOT), str(ROOT / "scripts")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def exports(arguments: argparse.Namespace) -> None:
    """The section `export`."""
    for auto in (False, True):
        title = "every size Dim.AUTO" if auto else "known sizes"
        print(f"\n{title:<24} {'exported':>9} {'as eager':>9} {'s in all':>9}")
        rows = {side: in_process(f"share({side!r}, {auto})") for side in SIDES}
        for side, made in rows.items():
            exported = sum(row[0] for row in made.values())
            equal = sum(row[1] for row in made.values())
            seconds = sum(row[2] for row in made.values()) / 1e3
            print(f"  {side:<22} {exported:>5}/{len(made)} {equal:>9} {seconds:9.1f}")
        if arguments.verbose:
            for name in rows["torch"]:
                told = [f"{side}: {made[name]}" for side, made in rows.items()]
                print(f"    {name:<24} " + "  ".join(told))
    print(f"\n{'first export (ms)':<24} {'torch':>9} {'framejit':>9}")
    for name in COLD:
        times = [
            min(in_process(f"cold({side!r}, {name!r})") for _ in range(3))
            for side in SIDES
        ]
        ratio = times[0] / times[1]
        print(f"  {name:<22} {times[0]:9.0f} {times[1]:9.1f} {ratio:8.0f}x")
