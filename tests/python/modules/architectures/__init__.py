"""Small models in the many styles that code on the web has, for tests and sweeps.

`ARCHITECTURES` maps a name to a function that makes (module, inputs), where
``inputs(batch)`` makes the positional arguments. Each file is a field; nothing
here is written with the compiler in mind.
"""

from architectures import (
    generative,
    graphs,
    patches,
    scenes,
    sequence,
    styles,
    transformers,
    vision,
)
from architectures.registry import ARCHITECTURES

__all__ = [
    "ARCHITECTURES",
    "generative",
    "graphs",
    "patches",
    "scenes",
    "sequence",
    "styles",
    "transformers",
    "vision",
]
