"""scripts/bench gpu-models: inference and training of models people have, on a CUDA
device, against eager and Inductor. Weights are random; what is not installed
(transformers, torchvision) is left out."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu import BF16, alternate, compiled_by
from benchmarks.measure import Row, Run, print_rows

Made = tuple[nn.Module, dict[str, Tensor], Callable[[Any], Tensor]]


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=False))
    ids = torch.randint(50257, (8, 512), device="cuda")
    return model, {"input_ids": ids, "labels": ids}, lambda out: out.loss


def bert() -> Made:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig())
    ids = torch.randint(30000, (16, 256), device="cuda")
    return model, {"input_ids": ids}, lambda out: out.last_hidden_state.float().mean()


def llama_block() -> Made:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=1,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=32000,
        use_cache=False,
    )
    ids = torch.randint(32000, (4, 1024), device="cuda")
    return (
        LlamaModel(config),
        {"input_ids": ids},
        lambda out: out.last_hidden_state.float().mean(),
    )


def resnet50() -> Made:
    from torchvision.models import resnet50 as make

    images = torch.randn(32, 3, 224, 224, device="cuda")
    return make(), {"x": images}, lambda out: out.float().logsumexp(1).mean()


def vit() -> Made:
    from torchvision.models import vit_b_16

    images = torch.randn(32, 3, 224, 224, device="cuda")
    return vit_b_16(), {"x": images}, lambda out: out.float().logsumexp(1).mean()


MODELS = {
    "GPT-2 124M": gpt2,
    "BERT-base": bert,
    "a Llama-1B block": llama_block,
    "ResNet-50": resnet50,
    "ViT-B/16": vit,
}
# name -> dtype of the weights, autocast, training
FORMS = {
    "float32 inference": (torch.float32, False, False),
    "bfloat16 inference": (BF16, False, False),
    "AMP training": (torch.float32, True, True),
}


def step_of(
    model: Callable[..., Any],
    inputs: dict[str, Tensor],
    loss: Callable[[Any], Tensor],
    parameters: list[Tensor],
    amp: bool,
    trains: bool,
) -> Run:
    def run() -> Tensor:
        with torch.autocast("cuda", dtype=BF16, enabled=amp):
            if not trains:
                with torch.no_grad():
                    return loss(model(**inputs))
            value = loss(model(**inputs))
        value.backward()
        for parameter in parameters:
            parameter.grad = None
        return value.detach()

    return run


def row_of(arguments: argparse.Namespace, name: str, form: str) -> Row:
    dtype, amp, trains = FORMS[form]
    torch.manual_seed(0)
    model, inputs, loss = MODELS[name]()
    model = model.to("cuda", dtype).train(trains)
    inputs = {
        key: value.to(dtype) if value.is_floating_point() else value
        for key, value in inputs.items()
    }
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    variants: dict[str, Run] = {}
    compile_ms: dict[str, float] = {}
    expected = None
    torch._dynamo.reset()
    own = copy.deepcopy(model)
    for variant, call in {"eager": model, **compiled_by(arguments, own)}.items():
        parameters = list((model if variant == "eager" else own).parameters())
        run = step_of(call, inputs, loss, parameters, amp, trains)
        begin = time.perf_counter()
        try:
            found = float(run())  # type: ignore[arg-type]
        except Exception as error:
            print(f"  {name}: {variant} raises {type(error).__name__}: {error}"[:300])
            continue
        compile_ms[variant] = (time.perf_counter() - begin) * 1e3
        expected = found if expected is None else expected
        if abs(found - expected) > 2e-2 * max(1.0, abs(expected)):
            print(f"  {name}: {variant} gives {found}, eager {expected}")
        variants[variant] = run
    times = alternate(variants, arguments.rounds, arguments.turn)
    return Row(f"{name}, {form}", times, compile_ms)


def gpu_models(arguments: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        print("\nscripts/bench gpu-models: there is no CUDA device")
        return

    def rows() -> Iterator[Row]:
        for name in MODELS:
            for form in FORMS:
                if arguments.filter not in f"{name}, {form}":
                    continue
                try:
                    yield row_of(arguments, name, form)
                except ImportError as error:
                    print(f"  {name}: {error}")

    print_rows("models on CUDA", rows(), "framejit", ("inductor", "eager"))
