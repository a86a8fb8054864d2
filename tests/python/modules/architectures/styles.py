"""Ways of writing modules: registries, configs, outputs as objects, plumbing of arguments."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import logging
import types
import warnings
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Optional

import torch
import torch.nn as nn
import torch.nn.functional as F

from architectures.registry import architecture, vectors

logger = logging.getLogger(__name__)


class ModelOutput(OrderedDict):
    """An ordered dict whose fields are attributes, filled by __post_init__."""

    def __post_init__(self):
        class_fields = fields(self)
        first_field = getattr(self, class_fields[0].name)
        other_fields_are_none = all(
            getattr(self, f.name) is None for f in class_fields[1:]
        )
        if other_fields_are_none and not isinstance(first_field, torch.Tensor):
            for key, value in first_field:
                setattr(self, key, value)
        else:
            for f in class_fields:
                v = getattr(self, f.name)
                if v is not None:
                    self[f.name] = v

    def __getitem__(self, k):
        if isinstance(k, str):
            return dict(self.items())[k]
        return self.to_tuple()[k]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


@dataclass
class ClassifierOutput(ModelOutput):
    loss: Optional[torch.Tensor] = None
    logits: Optional[torch.Tensor] = None
    hidden_states: Optional[tuple] = None


class Config:
    model_type: ClassVar[str] = "toy"

    def __init__(self, hidden=8, layers=2, act="gelu_new", **kwargs):
        self.hidden, self.layers, self.act = hidden, layers, act
        self.use_return_dict = kwargs.pop("return_dict", True)
        for key, value in kwargs.items():
            setattr(self, key, value)

    def __getattribute__(self, key):
        if key != "attribute_map" and key in super().__getattribute__("attribute_map"):
            key = super().__getattribute__("attribute_map")[key]
        return super().__getattribute__(key)

    attribute_map = {"hidden_size": "hidden"}


class ClassInstantier(OrderedDict):
    def __getitem__(self, key):
        content = super().__getitem__(key)
        cls, kwargs = content if isinstance(content, tuple) else (content, {})
        return cls(**kwargs)


ACT2FN = ClassInstantier(
    {"gelu": nn.GELU, "gelu_new": (nn.GELU, {"approximate": "tanh"}), "relu": nn.ReLU}
)


def deprecated_argument(name):
    def decorator(func):
        @functools.wraps(func)
        def wrapper(*args, **kwargs):
            if name in kwargs:
                warnings.warn(f"{name} is deprecated", FutureWarning)
                kwargs.pop(name)
            return func(*args, **kwargs)

        return wrapper

    return decorator


class PreTrained(nn.Module):
    config_class = Config
    base_model_prefix = "model"

    def __init__(self, config, *inputs, **kwargs):
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.parameters())).dtype

    @property
    def base_model(self):
        return getattr(self, self.base_model_prefix, self)


class Classifier(PreTrained):
    def __init__(self, config):
        super().__init__(config)
        self.model = nn.ModuleList(
            [
                nn.Linear(config.hidden_size, config.hidden_size)
                for _ in range(config.layers)
            ]
        )
        self.act, self.head = ACT2FN[config.act], nn.Linear(config.hidden, 3)

    @deprecated_argument("past")
    def forward(
        self,
        inputs=None,
        labels=None,
        output_hidden_states=None,
        return_dict=None,
        **kwargs,
    ):
        return_dict = (
            return_dict if return_dict is not None else self.config.use_return_dict
        )
        if (
            inputs is not None
            and labels is not None
            and inputs.shape[0] != labels.shape[0]
        ):
            raise ValueError(
                f"batch {inputs.shape[0]} of inputs and {labels.shape[0]} of labels differ"
            )
        hidden = inputs.to(self.device, self.dtype)
        states = []
        for layer in self.base_model:
            states.append(hidden)
            hidden = self.act(layer(hidden))
        logits = self.head(hidden)
        loss = F.cross_entropy(logits, labels) if labels is not None else None
        if not return_dict:
            output = (logits,) + tuple(states)
            return ((loss,) + output) if loss is not None else output
        return ClassifierOutput(loss=loss, logits=logits, hidden_states=tuple(states))


@architecture
def model_output():
    return Classifier(Config()), lambda b: (
        torch.randn(b, 8),
        torch.randint(0, 3, (b,)),
    )


@architecture
def tuple_output():
    return Classifier(Config(return_dict=False)), lambda b: (
        torch.randn(b, 8),
        torch.randint(0, 3, (b,)),
    )


class Registry:
    def __init__(self, name):
        self._name, self._modules = name, {}

    def register(self, cls=None, *, name=None):
        if cls is None:
            return functools.partial(self.register, name=name)
        self._modules[name or cls.__name__] = cls
        return cls

    def build(self, cfg: dict, **defaults: Any):
        args = {**defaults, **cfg}
        kind = args.pop("type")
        if kind not in self._modules:
            raise KeyError(f"{kind} is not in the {self._name} registry")
        return self._modules[kind](**args)


BLOCKS = Registry("blocks")


@BLOCKS.register
class PlainBlock(nn.Module):
    def __init__(self, width, scale=1.0):
        super().__init__()
        self.linear, self.scale = nn.Linear(width, width), scale

    def forward(self, x):
        return self.linear(x) * self.scale


@BLOCKS.register(name="gated")
class GatedBlock(PlainBlock):
    def forward(self, x):
        return super().forward(x) * torch.sigmoid(x)


@architecture
def registry_modules():
    class Net(nn.Module):
        def __init__(self, cfgs):
            super().__init__()
            self.cfgs = cfgs
            for i, cfg in enumerate(cfgs):
                setattr(self, f"block{i}", BLOCKS.build(cfg, width=4))

        def forward(self, x):
            outs = OrderedDict()
            for i, cfg in enumerate(self.cfgs):
                x = getattr(self, f"block{i}")(x)
                outs[f"{cfg['type']}_{i}"] = x
            return outs

    return Net([dict(type="PlainBlock", scale=0.5), {"type": "gated"}]), vectors(4)


class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"


class Router(nn.Module):
    """A module dict routed by names in a config, with tasks as an enum."""

    heads: nn.ModuleDict

    def __init__(self, mode: Mode | str = Mode.MEAN):
        super().__init__()
        self.mode = Mode(mode)
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
        self.weights = nn.ParameterDict(
            {"a": nn.Parameter(torch.ones(1)), "b": nn.Parameter(torch.ones(1))}
        )
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(1)) for _ in range(2)])

    def forward(self, x, tasks=("b", "a")):
        results = defaultdict(list)
        for index, name in enumerate(sorted(tasks)):
            if name not in self.heads:
                continue
            out = self.heads[name](x) * self.weights[name] * self.scales[index]
            results[name].append(out)
            results["total"] += [out.sum() if self.mode is Mode.SUM else out.mean()]
        return {
            key: value[0] if len(value) == 1 else torch.stack(value)
            for key, value in results.items()
        }


@architecture
def module_dict_router():
    return Router("sum"), vectors(4)


@dataclass(frozen=True)
class LayerSpec:
    width: int
    activation: str = "relu"
    dropout: float = 0.0

    @classmethod
    def parse(cls, text: str) -> LayerSpec:
        width, activation, *rest = text.split(":")
        return cls(int(width), activation, *map(float, rest))

    def apply(self, x, training):
        fn = getattr(F, self.activation, None) or getattr(torch, self.activation)
        return F.dropout(fn(x), self.dropout, training)


@architecture
def spec_strings():
    class Net(nn.Module):
        def __init__(self, text):
            super().__init__()
            self.specs = [LayerSpec.parse(part) for part in text.split(",")]
            widths = [4] + [spec.width for spec in self.specs]
            self.linears = nn.ModuleList(
                nn.Linear(a, b) for a, b in zip(widths, widths[1:])
            )

        def forward(self, x):
            for spec, linear in zip(self.specs, self.linears):
                match spec:
                    case LayerSpec(activation="identity"):
                        x = linear(x)
                    case LayerSpec(dropout=0.0):
                        x = spec.apply(linear(x), False)
                    case _:
                        x = spec.apply(linear(x), self.training)
            return x

    return Net("8:relu,6:tanh:0.5,2:identity"), vectors(4)


class Plumbing(nn.Module):
    """Arguments through several layers of *args and **kwargs."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

    def inner(
        self, x, *rest, scale=1.0, shift: Optional[torch.Tensor] = None, **unused
    ):
        assert not unused, f"unexpected {sorted(unused)}"
        x = x * scale
        if shift is not None:
            x = x + shift
        return (x, *rest)

    def outer(self, *args, **kwargs):
        kwargs.setdefault("scale", 2.0)
        accepted = {k: v for k, v in kwargs.items() if k in ("scale", "shift")}
        return self.inner(*args, **accepted)

    def forward(self, *args, **kwargs):
        first, *others = args
        for layer in self.layers:
            first, *others = self.outer(
                layer(first), *others, shift=others[-1], extra=1, **kwargs
            )
        return first, others


@architecture
def args_plumbing():
    return Plumbing(), lambda b: (
        torch.randn(b, 4),
        torch.randn(b, 4),
        torch.randn(b, 4),
    )


class Recorder:
    """Collects intermediate results while it is active."""

    current: Recorder | None = None

    def __init__(self):
        self.items = []

    def __enter__(self):
        self.previous, Recorder.current = Recorder.current, self
        return self

    def __exit__(self, *exc):
        Recorder.current = self.previous
        return False

    @classmethod
    def record(cls, value):
        if cls.current is not None:
            cls.current.items.append(value)
        return value


@contextlib.contextmanager
def frozen(module):
    was = module.training
    module.train(False)
    try:
        yield module
    finally:
        module.train(was)


@architecture
def context_managers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = (
                nn.Linear(4, 4),
                nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
            )

        def forward(self, x):
            with Recorder() as recorder, contextlib.nullcontext():
                s = Recorder.record(self.student(x))
                with torch.no_grad(), frozen(self.teacher) as teacher:
                    t = Recorder.record(teacher(x))
            loss = F.mse_loss(s, t) + sum(item.abs().mean() for item in recorder.items)
            return s, loss

    return Net(), vectors(4)


class EMA(nn.Module):
    """Running statistics as buffers, plain counters and lists that forward changes."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("running", torch.zeros(4))
        self.register_buffer("steps", torch.tensor(0))
        self.calls, self.history, self.stats = 0, [], {"last": None}

    def forward(self, x):
        self.calls += 1
        y = self.linear(x)
        if self.training:
            with torch.no_grad():
                self.steps += 1
                self.running = self.running * 0.9 + y.mean(0) * 0.1
        self.history.append(tuple(y.shape))
        self.history = self.history[-3:]
        self.stats["last"] = self.calls
        return y - self.running


@architecture
def stateful_module():
    return EMA(), vectors(4)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        self.activations = {}
        for name, module in self.trunk.named_children():
            module.register_forward_hook(self.save(name))
        self.trunk[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))

    def save(self, name):
        def hook(module, args, output):
            self.activations[name] = output

        return hook

    def forward(self, x):
        out = self.trunk(x)
        features = [self.activations[k] for k in ("0", "2")]
        self.activations.clear()
        return out, torch.stack(features)


@architecture
def forward_hooks():
    return Hooked(), vectors(4)


class LoRALinear(nn.Linear):
    def __init__(self, *args, r=2, alpha=4, **kwargs):
        super().__init__(*args, **kwargs)
        self.lora_A = nn.Parameter(torch.randn(r, self.in_features))
        self.lora_B = nn.Parameter(torch.zeros(self.out_features, r))
        self.scaling = alpha / r
        self.weight.requires_grad = False
        self.merged = False

    def forward(self, x):
        result = super().forward(x)
        if not self.merged:
            result += (x @ self.lora_A.T @ self.lora_B.T) * self.scaling
        return result


@architecture
def lora():
    return nn.Sequential(
        LoRALinear(4, 6), nn.Tanh(), LoRALinear(6, 2, bias=False, r=1)
    ), vectors(4)


def filter_kwargs(fn, kwargs):
    allowed = inspect.signature(fn).parameters
    return {k: v for k, v in kwargs.items() if k in allowed}


@architecture
def signature_filter():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = PlainBlock(4)
            self.linear = nn.Linear(4, 4)

        def head(self, x, temperature=1.0):
            return self.linear(x) / temperature

        def forward(self, x, **kwargs):
            kwargs = {"temperature": 2.0, "unused": 1, **kwargs}
            return self.head(self.block(x), **filter_kwargs(self.head, kwargs))

    return Net(), vectors(4)


@architecture
def local_functions():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.Parameter(torch.randn(3, 4, 4))
            self.names = types.SimpleNamespace(first="relu", second="tanh")

        def forward(self, x):
            cache = {}

            def once(key, make):
                if key not in cache:
                    cache[key] = make()
                return cache[key]

            total = 0

            def step(h, w):
                nonlocal total
                total = total + once("norm", lambda: x.norm())
                return getattr(torch, self.names.first)(h @ w)

            h = functools.reduce(step, self.weights.unbind(0), x)
            *_, last = (F.normalize(h, dim=d) for d in range(h.dim()))
            return {"h": h, "last": last, "total": total, "n": len(cache)}

    return Net(), vectors(4)


@architecture
def logging_and_warnings():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 2)
            self.verbose = False

        def forward(self, x):
            if self.verbose:
                print(f"input {tuple(x.shape)}")
            logger.debug("shape %s", tuple(x.shape))
            out = self.linear(x)
            if out.shape[-1] == 1:
                warnings.warn("one class only")
            return out

    return Net(), vectors(4)


class Lazy(nn.Module):
    """Makes tables on first use and keeps them by size."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)
        self.tables: dict[tuple[int, torch.device], torch.Tensor] = {}
        self._seq_len_cached = 0
        self.cos_cached = None

    def table(self, length, device):
        key = (length, device)
        if key not in self.tables:
            self.tables[key] = torch.tril(
                torch.ones(length, length, device=device, dtype=torch.bool)
            )
        return self.tables[key]

    def rotary(self, x):
        seq_len = x.shape[1]
        if seq_len > self._seq_len_cached or self.cos_cached is None:
            self._seq_len_cached = seq_len
            angles = torch.outer(
                torch.arange(seq_len, device=x.device, dtype=torch.float32),
                torch.ones(8),
            )
            self.cos_cached = angles.cos()[None]
        return x * self.cos_cached[:, :seq_len]

    def forward(self, x):
        y = self.rotary(self.proj(x))
        scores = (y @ x.transpose(1, 2)).masked_fill(
            ~self.table(x.size(1), x.device), float("-inf")
        )
        return scores.softmax(-1) @ x


@architecture
def lazy_tables():
    return Lazy(), vectors(5, 8)


class Tree(nn.Module):
    """Recursion over nested Python data, with an explicit stack as the other way."""

    def __init__(self):
        super().__init__()
        self.leaf, self.combine = nn.Linear(4, 4), nn.Bilinear(4, 4, 4)

    def encode(self, node):
        if isinstance(node, torch.Tensor):
            return self.leaf(node)
        left, right = node
        return torch.tanh(self.combine(self.encode(left), self.encode(right)))

    def flat(self, node):
        stack, found = [node], []
        while stack:
            top = stack.pop()
            if isinstance(top, (tuple, list)):
                stack.extend(reversed(top))
            else:
                found.append(top)
        return torch.stack(found).mean(0)

    def forward(self, tree):
        return self.encode(tree) + self.flat(tree)


@architecture
def recursive_tree():
    def inputs(batch):
        a, b, c = (torch.randn(batch, 4) for _ in range(3))
        return (((a, b), [c, a]),)

    return Tree(), inputs


@architecture
def dict_batches():
    class Net(nn.Module):
        required = {"x", "mask"}

        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, batch):
            missing = self.required - set(batch)
            if missing:
                raise KeyError(f"missing {missing}")
            x, mask = batch["x"], batch.get("mask")
            out = dict(batch)
            out["logits"] = self.linear(x)
            if mask is not None:
                out["logits"] = out["logits"] * mask.unsqueeze(-1)
                out.pop("mask")
            batch["seen"] = True
            return out

    return Net(), lambda b: ({"x": torch.randn(b, 5, 4), "mask": torch.ones(b, 5)},)
