"""A zoo of every nn.Module class of a package that can be made by guessing.

Constructor arguments are guessed by their names, inputs by trying shapes until
eager accepts them; what resists is skipped. So hundreds of modules are run that
nobody chose.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

# (pattern of an argument's name, value); the first that matches.
ARGUMENTS: tuple[tuple[str, Any], ...] = (
    (r"(num_|n_)?(attention_|self_)?heads?$|nhead|heads_", 4),
    (r"head_dim|dim_head|attention_head_dim", 8),
    (r"depth|num_(hidden_)?layers|n_layers?|num_blocks|layers$", 2),
    (r"image_size|img_size|input_size|sample_size|resolution", 32),
    (r"patch_size|window_size", 4),
    (r"kernel_size|kernel$|ks$", 3),
    (r"stride|dilation|groups?$|upscale|scale_factor|num_groups|expansion|factor", 1),
    (r"padding", 1),
    (r"num_classes|n_classes|num_tokens|num_embeddings|vocab", 20),
    (r"spatial_dims|dimensions|ndim$", 2),
    (r"seq_len|max_len|num_patches|max_seq|length|num_positions", 16),
    (r"num_experts|codebook_size|num_codes|k$", 4),
    (r"drop|prob|rate|p$", 0.1),
    (r"eps", 1e-5),
    (r"alpha|beta|gamma|scale|temperature|sigma|std|momentum", 0.5),
    (r"act|nonlin", "relu"),
    (r"norm", "batch"),
    (r"bias|use_|with_|is_|has_", True),
    (r"temb|time_emb|time_dim|temb_channels", 32),
    (r"mlp_ratio|ratio|multiplier", 2),
    (
        r"dim|channels|chs?$|planes|features|hidden|width|size|units|embed|_c$|inp|oup",
        32,
    ),
)
FORWARD: tuple[tuple[str, str], ...] = (
    (r"timesteps?$|^t$|^time$|labels?|targets?", "index"),
    (r"edge_index", "edges"),
    (r"mask", "none"),
    (r"encoder_hidden_states|context|memory|^cond|^key|^value|^query", "sequence"),
    (r"temb|^emb$|embedding|^cond_", "vector"),
    (r"input_ids|tokens|^ids$", "tokens"),
)


def shapes(kind: str, batch: int) -> Any:
    import torch

    makers: dict[str, Callable[[], Any]] = {
        "sequence": lambda: torch.randn(batch, 16, 32),
        "image": lambda: torch.randn(batch, 3, 32, 32),
        "map": lambda: torch.randn(batch, 32, 16, 16),
        "vector": lambda: torch.randn(batch, 32),
        "tokens": lambda: torch.randint(0, 20, (batch, 16)),
        "signal": lambda: torch.randn(batch, 32, 24),
        "volume": lambda: torch.randn(batch, 32, 4, 8, 8),
        "heads": lambda: torch.randn(batch, 4, 16, 8),
        "index": lambda: torch.randint(0, 4, (batch,)),
        "nodes": lambda: torch.randn(10 * batch, 32),
        "edges": lambda: torch.randint(0, 10 * batch, (2, 20 * batch)),
        "none": lambda: None,
    }
    return makers[kind]()


FIRST = tuple("sequence map image vector tokens signal volume heads nodes".split())


def required(function: Any) -> Iterator[inspect.Parameter]:
    for name, parameter in inspect.signature(function).parameters.items():
        variable = (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name == "self" or parameter.kind in variable:
            continue
        if parameter.default is parameter.empty:
            yield parameter


def guess(parameter: inspect.Parameter) -> Any:
    for pattern, value in ARGUMENTS:
        if re.search(pattern, parameter.name.lower()):
            text = str(parameter.annotation)
            if isinstance(value, int) and re.match(
                r"(typing\.)?(List|Sequence|list)", text
            ):
                return [value, value]
            return value
    raise LookupError(f"no guess for {parameter.name}")


class Crawl:
    def __init__(self, *packages: str) -> None:
        self.packages = packages

    def names(self) -> list[str]:
        import model_zoos
        from torch import nn

        model_zoos.stub_torchvision()
        found = []
        for package in self.packages:
            for module in self.modules(package):
                for name, cls in vars(module).items():
                    if (
                        isinstance(cls, type)
                        and issubclass(cls, nn.Module)
                        and cls.__module__ == module.__name__
                        and "forward" in dir(cls)
                    ):
                        found.append(f"{module.__name__}:{name}")
        return found

    def modules(self, package: str) -> Iterator[Any]:
        try:
            root = importlib.import_module(package)
        except ImportError:
            return
        yield root
        for info in pkgutil.walk_packages(
            getattr(root, "__path__", []), package + ".", onerror=lambda name: None
        ):
            if re.search(r"test|flax|onnx|\.data|scripts|__main__|tensorrt", info.name):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield importlib.import_module(info.name)
            except (Exception, SystemExit):
                continue

    def build(self, name: str) -> Any:
        import torch
        from model_zoos import Case, stub_torchvision

        stub_torchvision()
        module, _, class_name = name.partition(":")
        cls = getattr(importlib.import_module(module), class_name)
        arguments = {p.name: guess(p) for p in required(cls.__init__)}
        model = cls(**arguments)
        if sum(p.numel() for p in model.parameters()) > 5_000_000:
            raise MemoryError("not small")
        parameters = list(required(model.forward))
        if not parameters:
            raise LookupError("forward takes nothing")

        def kinds_of(first: str) -> list[str]:
            kinds = [first]
            for parameter in parameters[1:]:
                kind = next(
                    (k for p, k in FORWARD if re.search(p, parameter.name)), first
                )
                kinds.append(kind)
            return kinds

        def inputs(kinds: list[str], batch: int) -> Any:
            return tuple(shapes(kind, batch) for kind in kinds), {}

        error: Exception = LookupError("no input fits")
        first = next((k for p, k in FORWARD if re.search(p, parameters[0].name)), None)
        for kind in itertools.chain([first] if first else [], FIRST):
            kinds = kinds_of(kind)
            try:
                for train in (False, True):
                    model.train(train)
                    with torch.no_grad():
                        model(*inputs(kinds, 2)[0])
            except Exception as problem:
                error = problem
                continue
            torch.manual_seed(0)
            return Case(cls(**arguments), functools.partial(inputs, kinds))
        raise error
