"""Programs of the kinds that people write, each a function of `wrap`: it compiles
what its author would, and returns what is to be as in eager."""

from __future__ import annotations

import abc
import asyncio
import collections
import copy
import dataclasses
import enum
import functools
import math
import typing

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS = {}


def program(*breaks: str):
    """With the ids of the breaks that cannot be avoided."""

    def add(make):
        PROGRAMS[make.__name__] = (make, set(breaks))
        return make

    return add


# ---- training


@program()
def cnn_with_evaluation(wrap):
    # The gradient of a bias before a batch norm is rounding, which Adam amplifies.
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(8 * 16, 5),
    )
    compiled = wrap(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    seen = []
    for _ in range(5):
        model.train()
        x, y = torch.randn(4, 1, 8, 8), torch.randint(5, (4,))
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        model.eval()
        with torch.no_grad():
            right = (compiled(x).argmax(1) == y).float().mean()
        seen += [loss.item(), right.item()]
    return seen, model.state_dict()


@program()
def gan_with_gradient_penalty(wrap):
    make = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 8))
    judge = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    maker, critic = wrap(make), wrap(judge)
    of_make = torch.optim.Adam(make.parameters(), 1e-3, betas=(0.5, 0.999))
    of_judge = torch.optim.Adam(judge.parameters(), 1e-3, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    seen = []
    for _ in range(4):
        real, noise = torch.randn(6, 8), torch.randn(6, 4)
        of_judge.zero_grad()
        fake = maker(noise)
        loss = bce(critic(real), torch.ones(6, 1))
        loss = loss + bce(critic(fake.detach()), torch.zeros(6, 1))
        mix = torch.rand(6, 1)
        between = (mix * real + (1 - mix) * fake.detach()).requires_grad_()
        (slope,) = torch.autograd.grad(
            critic(between).sum(), between, create_graph=True
        )
        loss = loss + ((slope.norm(2, 1) - 1) ** 2).mean()
        loss.backward()
        of_judge.step()
        of_make.zero_grad()
        of_maker = bce(critic(fake), torch.ones(6, 1))
        of_maker.backward()
        of_make.step()
        seen += [loss.item(), of_maker.item()]
    return seen, make.state_dict(), judge.state_dict()


@program("FJ101", "FJ201")  # the checks of torch.distributions
def policy_gradient(wrap):
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-2)

    @wrap
    def act(state):
        choice = torch.distributions.Categorical(logits=policy(state))
        action = choice.sample()
        return action, choice.log_prob(action)

    losses = []
    for _ in range(3):
        state, logs, rewards = torch.zeros(4), [], []
        for turn in range(10):
            action, log = act(state)
            logs.append(log)
            rewards.append(1.0 if action.item() == turn % 2 else 0.0)
            state = state * 0.9 + torch.randn(4) * 0.1
        total, returns = 0.0, []
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        loss = -(torch.stack(logs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program()
def q_learning_with_a_target(wrap):
    online = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    target = copy.deepcopy(online)
    optimizer = torch.optim.RMSprop(online.parameters(), 1e-3)

    @wrap
    def update(state, action, reward, after, done):
        with torch.no_grad():
            wanted = reward + 0.99 * (1 - done) * target(after).max(1).values
        value = online(state).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, wanted)
        optimizer.zero_grad()
        loss.backward()
        for p in online.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        return loss.detach()

    @wrap
    def follow(rate):
        with torch.no_grad():
            for p, t in zip(online.parameters(), target.parameters()):
                t.mul_(1 - rate).add_(p, alpha=rate)

    seen = []
    for turn in range(6):
        batch = torch.randn(8, 4), torch.randint(2, (8,)), torch.rand(8)
        seen.append(update(*batch, torch.randn(8, 4), torch.zeros(8)).item())
        follow(0.01 * (turn + 1))
    return seen, target.state_dict()


@program()
def average_of_weights(wrap):
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    average = copy.deepcopy(model).requires_grad_(False)
    compiled, evaluated = wrap(model), wrap(average)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @wrap
    def update(decay):
        with torch.no_grad():
            for p, q in zip(model.parameters(), average.parameters()):
                q.lerp_(p, 1 - decay)
            for p, q in zip(model.buffers(), average.buffers()):
                q.copy_(p)

    seen = []
    for turn in range(6):
        x = torch.randn(6, 4)
        loss = compiled(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update(min(0.99, (1 + turn) / (10 + turn)))
        seen.append(evaluated(x).mean().item())
    return seen, average.state_dict()


@program("FJ102")  # the scaler looks whether gradients are finite
def scaled_step(wrap):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)

    @wrap
    def step(x):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    seen = []
    for _ in range(6):
        seen += [step(torch.randn(3, 4)), scaler.get_scale()]
    return seen, model.state_dict()


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        result = x.exp() * factor
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return gradient * result, None


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, codes):
        nearest = torch.cdist(x, codes).argmin(1)
        ctx.save_for_backward(nearest)
        ctx.mark_non_differentiable(nearest)
        ctx.codes = codes.shape[0]
        return codes[nearest], nearest

    @staticmethod
    def backward(ctx, gradient, _):
        (nearest,) = ctx.saved_tensors
        of_codes = torch.zeros(ctx.codes, gradient.shape[1])
        return gradient, of_codes.index_add_(0, nearest, gradient)


@program()
def functions_with_gradients_of_their_own(wrap):
    @wrap
    def f(x, codes):
        y = Exponential.apply(x, 2.0)
        found, which = Quantize.apply(StraightThrough.apply(y), codes)
        return found.sum() + y.mean(), which

    seen = []
    for size in (3, 4, 5):
        x = torch.randn(size, 2, requires_grad=True)
        codes = torch.randn(4, 2, requires_grad=True)
        loss, which = f(x, codes)
        loss.backward()
        seen += [loss.detach(), x.grad, codes.grad, which]
    return seen


# ---- data


class Numbers(torch.utils.data.Dataset):
    def __init__(self, transform=lambda x: x):
        self.transform = transform

    def __len__(self):
        return 12

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return self.transform(torch.randn(4, generator=generator)), i % 3


@program()
def workers_of_a_loader(wrap):
    model = nn.Linear(4, 3)
    compiled = wrap(model)
    transform = wrap(lambda x: (x * 2).tanh())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = []
    for x, y in torch.utils.data.DataLoader(Numbers(transform), 5, num_workers=1):
        loss = F.cross_entropy(compiled(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    return seen


# ---- the language


@program("FJ402")
def coroutines(wrap):
    @wrap
    def work(x):
        return x.relu() * 2

    @wrap
    async def serve(x):
        y = work(x)
        await asyncio.sleep(0)
        return y + 1

    async def many():
        return await asyncio.gather(*(serve(torch.ones(3) * i) for i in range(4)))

    return asyncio.run(many())


@program("FJ402")
def generators(wrap):
    @wrap
    def rows(x):
        for row in x:
            yield (row * 2).sum()

    @wrap
    def total(x):
        return sum(rows(x))

    return total(torch.ones(3, 2)), list(rows(torch.ones(2, 2)))


class Registered(abc.ABC, nn.Module):
    known: typing.ClassVar[dict] = {}

    def __init_subclass__(cls, **options):
        Registered.known[cls.__name__] = cls
        super().__init_subclass__(**options)

    @property
    def device(self):
        return next(self.parameters()).device

    @functools.cached_property
    def scale(self):
        return 1 / math.sqrt(self.size)

    @classmethod
    def build(cls, *args):
        return cls(*args)

    @staticmethod
    def activate(x):
        return F.gelu(x)

    @abc.abstractmethod
    def body(self, x): ...

    def forward(self, x):
        return self.body(x.to(self.device) * self.scale)


class Net(Registered):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.layer = nn.Linear(size, size)

    def body(self, x):
        return self.activate(self.layer(x))


@program()
def properties_and_classmethods(wrap):
    model = wrap(Registered.known["Net"].build(4))
    return [model(torch.ones(n, 4)) for n in (1, 2, 3, 4)]


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    meta: dict = dataclasses.field(default_factory=dict)

    def to(self, device):
        return dataclasses.replace(self, x=self.x.to(device), y=self.y.to(device))


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    loss: torch.Tensor
    logits: torch.Tensor


@program()
def dataclasses_in_and_out(wrap):
    model = nn.Linear(4, 3)

    @wrap
    def f(batch):
        batch = batch.to("cpu")
        logits = model(batch.x)
        batch.meta["calls"] = batch.meta.get("calls", 0) + 1
        return Result(F.cross_entropy(logits, batch.y), logits)

    batch = Batch(torch.randn(2, 4), torch.tensor([0, 1]))
    results = [f(batch) for _ in range(3)]
    return [[r.loss.detach(), r.logits.detach()] for r in results], batch.meta["calls"]


class Point(typing.NamedTuple):
    a: torch.Tensor
    n: int


class Mode(enum.Enum):
    ADD = "add"
    SUBTRACT = "subtract"


@program()
def modes_and_keywords(wrap):
    @wrap
    def f(point, mode, *, factor=1, **more):
        match mode:
            case Mode.ADD:
                y = point.a + point.n
            case Mode.SUBTRACT:
                y = point.a - point.n
        for key, value in sorted(more.items()):
            y = y + value * len(key)
        return Point(y * factor, point.n + 1), sorted(more.items(), reverse=True)

    return [
        [*found, pairs[0][1], pairs[1][1]]
        for n in range(3)
        for mode in Mode
        for found, pairs in [
            f(Point(torch.ones(2), n), mode, factor=n, z=torch.ones(2), aa=1.5)
        ]
    ]


@program()
def features_by_hooks(wrap):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    features = collections.OrderedDict()

    def keep(name):
        return lambda module, inputs, output: features.update({name: output.detach()})

    for name, module in model.named_modules():
        module.register_forward_hook(keep(name))
    compiled = wrap(model)
    results = [compiled(torch.randn(2, 4)) for _ in range(3)]
    return results, dict(features)
