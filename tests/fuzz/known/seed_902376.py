G_INT = 2
G_STR = 'g'
G_TENSOR = torch.tensor(0.75)
G_LIST = [1, 2]
G_DICT = {'a': 1, 'b': 2}
OBJ = Box(2, torch.tensor(0.5))
NET = Net(0.5)


def make_args(call):
    n = [3, 3, 3, 3, 3][call]
    g = [False, False, False, False, False][call]
    a0 = torch.randn(n, n, requires_grad=g)
    a1 = [6, 5, -1, 3, 0][call]
    a2 = Box([6, 6, 0, 2, 5][call], torch.randn(()), [torch.ones(n, n)])
    return a0, a1, a2,


def between(call):
    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect
    if call == 2: NET.layers[0] = torch.nn.Identity()
    if call > 1: Box.extra = 5
    if call == 2: G_DICT.pop('a', None)
    if call >= 1: F_CELL(call)
    if call > 1: G_INT = bool(G_INT)


def f(a0, a1, a2, kept=[1]):
    x1 = a0 + 0
    x1[:, NET.n % x1.size(1)] = effect(2.0)
    try:
        framejit.graph_break()
        if (x3 := a2.items[a2.n]) is None: pass
    finally:
        framejit.graph_break()
    match ChildBox(NET.n, a2.x):
        case ChildBox(n=g5):
            for i6 in range(4, 0, -1):
                print(i6, 'b', file=OUT)
                w9 = r8 = (effect((x1[0] / (a0[0].abs() + 1))) if (effect(2.0) == (a2.n / 4)) else (x1.mean(dim=-1) + (x1[0] if False else x1[0])))
                for i11, i10 in enumerate((a2.items + [a0])[:4]):
                    w13 = v12 = a2.items.copy()
        case Box():
            s14 = a2.x + 0
            s14.add_(s14)
    return (torch.where(a2.items[-1] > x1[0].cos(), a2.items[-1], x1[0].cos()), a2, kept,)


def F_CELL(value):
    pass
