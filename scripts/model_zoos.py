"""Models for `sweep_models`: this repository's and those of installed packages.

A zoo lists names and builds a `Case` for one: a module with random weights and
a function that makes its arguments for a batch size. Nothing is downloaded. The
builders know packages' constructors only; no model is singled out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

Inputs = Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclasses.dataclass
class Case:
    model: Any
    inputs: Inputs
    random: bool = False  # eager differs from eager
    again: Callable[[], Any] | None = None  # another copy of the model


class Own:
    """tests/python/modules/architectures, in the styles code on the web has."""

    def _registry(self) -> dict[str, Any]:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = os.path.join(root, "tests", "python", "modules")
        if path not in sys.path:
            sys.path.insert(0, path)
        from architectures import ARCHITECTURES

        return ARCHITECTURES

    def names(self) -> list[str]:
        return list(self._registry())

    def build(self, name: str) -> Case:
        model, inputs = self._registry()[name]()
        return Case(model, lambda batch: (inputs(batch), {}))


class Transformers:
    """Model classes of `transformers`, each from its default config, shrunken."""

    MAPPINGS = (
        "MODEL_MAPPING",
        "MODEL_FOR_CAUSAL_LM_MAPPING",
        "MODEL_FOR_MASKED_LM_MAPPING",
        "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
        "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
        "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING",
        "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING",
    )
    # What makes a config small, by the name of its field, wherever it appears.
    SMALL: dict[str, Any] = {
        "hidden_size": 32,
        "d_model": 32,
        "n_embd": 32,
        "dim": 32,
        "embed_dim": 32,
        "embedding_size": 32,
        "emb_dim": 32,
        "projection_dim": 32,
        "intermediate_size": 48,
        "ffn_dim": 48,
        "d_ff": 48,
        "hidden_dim": 48,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 24,
        "n_inner": 48,
        "d_kv": 8,
        "head_dim": 8,
        "num_heads": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "n_head": 4,
        "n_heads": 4,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_layers": 2,
        "n_layer": 2,
        "n_layers": 2,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "num_decoder_layers": 2,
        "num_experts": 4,
        "num_local_experts": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 99,
        "max_position_embeddings": 64,
        "n_positions": 64,
        "image_size": 32,
        "patch_size": 8,
    }

    def _classes(self) -> dict[str, tuple[Any, Any]]:
        import importlib

        found: dict[str, tuple[Any, Any]] = {}
        auto = importlib.import_module("transformers.models.auto.modeling_auto")
        for mapping in self.MAPPINGS:
            table = getattr(auto, mapping, None)
            if table is None:
                continue
            names = getattr(auto, mapping + "_NAMES", {})
            configs = importlib.import_module(
                "transformers.models.auto.configuration_auto"
            ).CONFIG_MAPPING_NAMES
            for kind, model in names.items():
                model = model if isinstance(model, str) else model[0]
                if kind in configs:
                    found.setdefault(model, (configs[kind], model))
        return found

    def names(self) -> list[str]:
        return list(self._classes())

    def _shrink(self, config: Any, depth: int = 0) -> None:
        for key, value in list(vars(config).items()):
            if hasattr(value, "to_dict") and depth < 3:
                self._shrink(value, depth + 1)
            elif isinstance(value, dict):
                continue
            elif key.endswith(("_token_id", "_token_index")) and isinstance(value, int):
                if value >= 99:
                    setattr(config, key, 1 + hash_of(key) % 90)
        if getattr(config, "pad_token_id", 0) is None:
            config.pad_token_id = 0
        names = getattr(config, "attribute_map", {})
        for key, small in self.SMALL.items():
            key = names.get(key, key)
            value = getattr(config, key, None)
            if type(value) is int and value > small:
                try:
                    setattr(config, key, small)
                except Exception:
                    continue
        layers = getattr(config, "num_hidden_layers", None)
        for key in ("layer_types", "mlp_layer_types"):
            value = getattr(config, key, None)
            if isinstance(value, list) and isinstance(layers, int):
                # One of each kind first.
                kinds = list(dict.fromkeys(value))
                with contextlib.suppress(AttributeError):
                    setattr(config, key, (kinds + value)[:layers])

    def build(self, name: str) -> Case:
        stub_torchvision()
        import torch
        import transformers

        config_name, model_name = self._classes()[name]
        config = getattr(transformers, config_name)()
        self._shrink(config)
        model_class = getattr(transformers, model_name)
        model = model_class(config)
        if sum(p.numel() for p in model.parameters()) > 30_000_000:
            raise MemoryError("not small")
        parameters = inspect.signature(model.forward).parameters
        text = (
            config.get_text_config() if hasattr(config, "get_text_config") else config
        )
        vocabulary = getattr(text, "vocab_size", None) or 99
        vision = getattr(config, "vision_config", None) or config
        size = getattr(vision, "image_size", None) or 32
        if isinstance(size, int):
            size = (size, size)
        channels = getattr(vision, "num_channels", None) or 3

        def inputs(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
            made: dict[str, Any] = {}
            if "pixel_values" in parameters:
                made["pixel_values"] = torch.randn(batch, channels, *size)
            if "input_values" in parameters:
                made["input_values"] = torch.randn(batch, 2000)
            if "input_features" in parameters:
                bins = getattr(config, "num_mel_bins", None) or 80
                frames = 2 * (getattr(config, "max_source_positions", None) or 32)
                made["input_features"] = torch.randn(batch, bins, frames)
            if "input_ids" in parameters:
                made["input_ids"] = torch.randint(2, vocabulary - 1, (batch, 9))
            if "decoder_input_ids" in parameters:
                made["decoder_input_ids"] = torch.randint(2, vocabulary - 1, (batch, 5))
            return (), made

        return Case(model, inputs)


def hash_of(text: str) -> int:
    return sum(map(ord, text))


class Timm:
    """One model of each family module of `timm`, or all with names like `timm_all`."""

    def __init__(self, everything: bool) -> None:
        self.everything = everything

    def names(self) -> list[str]:
        stub_torchvision()
        import timm

        if self.everything:
            return timm.list_models()
        names = []
        for module in timm.list_modules():
            models = timm.list_models(module=module)
            # The shortest names are the small base variants.
            models.sort(key=lambda n: (not any(s in n for s in SMALL_NAMES), len(n), n))
            names += models[:2]
        return sorted(set(names))

    def build(self, name: str) -> Case:
        stub_torchvision()
        import timm
        import torch

        model = timm.create_model(name, pretrained=False, num_classes=10)
        config = getattr(model, "default_cfg", {}) or {}
        size = config.get("input_size", (3, 224, 224))
        if not config.get("fixed_input_size"):
            size = (
                size[0],
                max(64, size[1] // 4 // 32 * 32),
                max(64, size[2] // 4 // 32 * 32),
            )
        if sum(p.numel() for p in model.parameters()) > 12_000_000:
            raise MemoryError("not small")
        return Case(model, lambda batch: ((torch.randn(batch, *size),), {}))


SMALL_NAMES = (
    "pico",
    "nano",
    "atto",
    "femto",
    "tiny",
    "xxs",
    "small",
    "_t",
    "18",
    "_s",
    "b0",
)


class Torchvision:
    def names(self) -> list[str]:
        stub_torchvision()
        import torchvision.models as models

        return models.list_models()

    def build(self, name: str) -> Case:
        stub_torchvision()
        import torch
        import torchvision.models as models

        kwargs: dict[str, Any] = {"weights": None}
        if (
            "weights_backbone"
            in inspect.signature(models.get_model_builder(name)).parameters
        ):
            kwargs["weights_backbone"] = None
        model = models.get_model(name, **kwargs)
        if sum(p.numel() for p in model.parameters()) > 20_000_000:
            raise MemoryError("not small")
        size = 75
        if "inception" in name or "googlenet" in name:
            size = 96
        if "vit" in name:
            size = 224
        if "maxvit" in name:
            size = 224

        def inputs(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
            if "video" in type(model).__module__:
                return (torch.randn(batch, 3, 8, 64, 64),), {}
            if "optical_flow" in type(model).__module__:
                return (
                    torch.randn(batch, 3, 128, 128),
                    torch.randn(batch, 3, 128, 128),
                ), {}
            return (torch.randn(batch, 3, size, size),), {}

        return Case(model, inputs)


def stub_torchvision() -> None:
    """Declares torchvision's operators when its library was built for another torch."""
    import re

    import torch

    if "torchvision" in sys.modules or not importlib.util.find_spec("torchvision"):
        return
    library = torch.library.Library("torchvision", "DEF")
    stub_torchvision.library = library  # type: ignore[attr-defined]
    for _ in range(50):
        try:
            import torchvision  # noqa: F401

            return
        except RuntimeError as error:
            missing = re.search(
                r"operator torchvision::(\w+) does not exist", str(error)
            )
            if missing is None:
                raise
            library.define(missing[1] + "(Tensor[] tensors) -> Tensor")
        for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
            del sys.modules[name]


def _crawl(*packages: str) -> Any:
    from crawl_modules import Crawl

    return Crawl(*packages)


ZOOS: dict[str, Any] = {
    "diffusers": _crawl("diffusers.models"),
    "monai": _crawl("monai.networks"),
    "timm_layers": _crawl("timm.layers"),
    "vit_pytorch": _crawl("vit_pytorch"),
    "x_transformers": _crawl("x_transformers"),
    "segmentation": _crawl("segmentation_models_pytorch"),
    "geometric": _crawl("torch_geometric.nn"),
    "small": _crawl("pytorch_msssim", "einops.layers.torch", "torchvision.ops"),
    # Packages of one model each, mostly of single authors.
    "wild": _crawl(
        "axial_attention",
        "bottleneck_transformer_pytorch",
        "conformer",
        "demucs",
        "denoising_diffusion_pytorch",
        "efficientnet_pytorch",
        "egnn_pytorch",
        "g_mlp_pytorch",
        "hourglass_transformer_pytorch",
        "lambda_networks",
        "linformer",
        "local_attention",
        "mlp_mixer_pytorch",
        "nystrom_attention",
        "open_clip",
        "perceiver_pytorch",
        "performer_pytorch",
        "point_transformer_pytorch",
        "pretrainedmodels.models",
        "product_key_memory",
        "pytorch_tabnet",
        "pytorch_tcn",
        "reformer_pytorch",
        "rotary_embedding_torch",
        "segment_anything.modeling",
        "tab_transformer_pytorch",
        "timesformer_pytorch",
        "vector_quantize_pytorch",
        "x_clip",
    ),
    "kornia": _crawl("kornia"),
    "neuralop": _crawl("neuralop"),
    "spandrel": _crawl("spandrel.architectures"),
    "speechbrain": _crawl("speechbrain.lobes", "speechbrain.nnet"),
    "ultralytics": _crawl("ultralytics.nn"),
    "own": Own(),
    "transformers": Transformers(),
    "timm": Timm(False),
    "timm_all": Timm(True),
    "torchvision": Torchvision(),
}
