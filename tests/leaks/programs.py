"""Whole programs: a row each, as text.

Each is run again and again. In a *fresh* one everything is made anew at every
turn, code objects too, and dropped: what is left of it is a leak. In a *steady*
one the first part is run once, and the function `turn` many times.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    name: str
    source: str
    steady: bool = False


README = """
@framejit.compile
def f(x, y):
    a = torch.sin(x)
    b = torch.cos(y)
    return a + b
f(torch.randn(10, 10), torch.randn(10, 10))
"""

MODULE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))
net = framejit.compile(Net())
net(torch.randn(3, 4)).sum().backward()
"""

TRAINING = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.b(torch.relu(self.a(x)))
net = Net()
step = framejit.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
def turn():
    optimizer.zero_grad()
    loss = step(torch.randn(3, 4)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()
"""

BREAKS = """
def helper(x):
    framejit.graph_break()
    return x * 2
@framejit.compile
def f(x, n):
    for i in range(3):
        x = helper(x) + i
        if x.sum() > 0:
            x = x - 1
    print(n, end='', file=sink)
    return x
f(torch.ones(3), 1)
f(-torch.ones(3), 2)
"""

EXCEPTIONS = """
class Mistake(Exception):
    pass
@framejit.compile
def f(x, kind):
    y = x * 2
    try:
        if kind == 0:
            raise Mistake('caught')
        y = y + x[kind]
    except Mistake as error:
        y = y + len(error.args)
    if kind == 1:
        raise Mistake('uncaught', y)
    return y
for kind in (0, 1, 2, 7):
    try:
        f(torch.ones(4), kind)
    except (Mistake, IndexError):
        pass
"""

GENERATORS = """
def numbers(x):
    for i in range(3):
        got = yield x * i
        if got:
            return
@framejit.compile
def f(x):
    total = sum(numbers(x))
    g = numbers(total)
    next(g)
    try:
        g.send(1)
    except StopIteration:
        pass
    return total
f(torch.ones(2))
@framejit.compile
def produce(x):
    y = x + 1
    framejit.graph_break()
    yield y
    yield y * 2
list(produce(torch.ones(2)))
next(produce(torch.ones(2)))
"""

RESETS = """
@framejit.compile
def f(x):
    return (x * 2 + 1).relu().sum()
def turn():
    f(torch.ones(5, requires_grad=True)).backward()
    framejit.reset()
"""

RECOMPILES = """
@framejit.compile
def f(x, n, name):
    return x.reshape(-1) * n + len(name)
for n in range(12):
    f(torch.ones(n + 1, 2), n, 'a' * n)
    f(torch.ones(2, dtype=torch.float64), 1.5 * n, 'b')
"""

CLOSURES = """
def make(scale):
    table = {'scale': scale}
    def f(x):
        return x * table['scale'] + state.weight
    return framejit.compile(f)
class State:
    weight = torch.ones(3)
state = State()
state.itself = state
for scale in (1.5, 2.5):
    make(scale)(torch.ones(3))
"""

RECURSION = """
def f(x, n):
    return x if n == 0 else f(x, n - 1) + 1
g = framejit.compile(f)
g(torch.ones(2), 4)
class Tree(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.child = Tree(depth - 1) if depth else None
        self.weight = torch.nn.Parameter(torch.ones(2))
    def forward(self, x):
        return self.weight * (x if self.child is None else self.child(x))
tree = Tree(2)
tree.compiled = framejit.compile(tree.forward)
tree.compiled(torch.ones(2)).sum().backward()
"""

ITSELF = """
@framejit.compile
def f(x):
    return x + len(f.history)
f.history = [1]
f(torch.ones(2))
class Holder:
    def __init__(self):
        self.run = framejit.compile(self.body)
        self.weight = torch.ones(2)
    def body(self, x):
        return x * self.weight
Holder().run(torch.ones(2))
"""

INPLACE = """
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
def body(self, x):
    return torch.nn.Sequential.forward(self, x) * 2
net.forward = __import__('types').MethodType(body, net)
compiled = framejit.compile(net)
compiled(torch.ones(2, 3)).sum().backward()
compiled.eval()
compiled(torch.ones(4, 3))
"""

THREADS = """
@framejit.compile
def f(x):
    y = x * 2
    framejit.graph_break()
    return y.sin()
workers = [threading.Thread(target=f, args=(torch.ones(3),)) for _ in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""

CALLS = """
@framejit.compile
def f(x, d, o):
    d['n'] = d['n'] + 1
    o.items.append(x * 2)
    x.add_(1)
    return {'x': [x, x.t()], 'o': o}, (y for y in o.items)
class O:
    pass
def turn():
    o = O()
    o.items = []
    f(torch.ones(2, 2), {'n': 1}, o)
"""

DOUBLE = """
@framejit.compile
def f(x):
    return (x.sin() * x).sum(), x * 2
def turn():
    x = torch.ones(3, requires_grad=True)
    a, _ = f(x)
    (g,) = torch.autograd.grad(a, x, create_graph=True)
    g.sum().backward()
    _, b = f(x)
    b.sum().backward()
    f(x)
"""

EFFECTS = """
class Config:
    scale = 2.0
config = Config()
seen = []
@framejit.compile
def f(x):
    seen.append(config.scale)
    with torch.no_grad():
        y = x * config.scale
    torch.manual_seed(3)
    return y + torch.rand(3)
def turn():
    f(torch.ones(3))
    seen.clear()
"""

# Calls with several outputs whose histories are dropped. What C++ holds shows in
# the resident memory alone, so the tensors are large.
DROPPED = """
weight = torch.nn.Parameter(torch.tensor([0.5]))
@framejit.compile
def f(x):
    y = x * weight
    return y, (y * 3).sin(), y.sum()
def turn():
    y, z, s = f(torch.ones(128, 128))
    del y, z
    s.backward(retain_graph=True)
    f(torch.ones(128, 128))
"""

ROWS = (
    Row("readme", README),
    Row("module", MODULE),
    Row("training", TRAINING, steady=True),
    Row("breaks", BREAKS),
    Row("exceptions", EXCEPTIONS),
    Row("generators", GENERATORS),
    Row("resets", RESETS, steady=True),
    Row("recompiles", RECOMPILES),
    Row("closures", CLOSURES),
    Row("recursion", RECURSION),
    Row("itself", ITSELF),
    Row("inplace", INPLACE),
    Row("threads", THREADS),
    Row("calls", CALLS, steady=True),
    Row("double backward", DOUBLE, steady=True),
    Row("effects", EFFECTS, steady=True),
    Row("dropped", DROPPED, steady=True),
)
