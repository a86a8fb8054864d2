"""Uses an installed FrameJIT as its users do; `scripts/test` runs it on the wheel.

Run by a Python that has the wheel and torch, from a folder without a checkout.
Every assertion is something that only packaging can break: what the wheel holds,
where the extension is found, entry points, the switch, the break pages.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import subprocess
import sys
import tempfile

import torch

import framejit

SCRIPT = """
import torch

def step(x):
    return (x.sin() + 1).relu() * 2

for _ in range(3):
    step(torch.ones(4))

import framejit
print("compiles", framejit.counters()["compiles"])
"""


def branching(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env={"PATH": "/usr/bin:/bin", "FRAMEJIT_STRICT": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def main() -> None:
    home = pathlib.Path(framejit.__file__).resolve()
    assert home.is_relative_to(pathlib.Path(sys.prefix).resolve()), home

    x = torch.linspace(-1, 1, 1000)
    compiled = framejit.compile(lambda x: (x.exp() + 1).log() * x)
    torch.testing.assert_close(compiled(x), (x.exp() + 1).log() * x)
    (entry,) = framejit.inspect(compiled)
    assert entry.loop_nodes, "no kernel of ours"

    report = framejit.explain(branching)(x)
    page = home.parent / report.breaks[0].page
    assert page.is_file(), page

    version = importlib.metadata.version("framejit")
    assert version == framejit.__version__
    assert "framejit" in torch.compiler.list_backends()
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder, "script.py")
        script.write_text(SCRIPT)
        for told in (
            run(str(script), FRAMEJIT="1"),
            run("-m", "framejit", str(script)),
        ):
            assert told.strip() not in ("", "compiles 0"), told
        assert "compiles 0" in run(str(script))
    plugins = importlib.metadata.entry_points(group="pytest11", name="framejit")
    assert all(plugin.load() for plugin in plugins) and plugins
    print(f"framejit {version} of {home.parent}: installed, compiles, says why not")


if __name__ == "__main__":
    main()
