G_INT = 2
G_STR = 'g'
G_TENSOR = torch.tensor(0.75)
G_LIST = [1, 2]
G_DICT = {'a': 1, 'b': 2}
OBJ = Box(2, torch.tensor(0.5))
NET = Net(0.5)


def make_args(call):
    n = [3, 3, 4, 2, 5][call]
    g = [False, False, False, False, True][call]
    a0 = torch.randn(n, n).t()
    a1 = [6, 6, 0, 2, -1][call]
    a2 = (torch.randn(n, n), [0, 0, 5, 4, 4][call],)
    a3 = torch.randn(n, n)
    return a0, a1, a2, a3,


def between(call):
    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect
    if call == 1: OBJ.late = 1
    if call > 1: G_DICT.pop('a', None)


def f(a0, a1, a2, a3, kept=[1]):
    u1, *_ = a3
    u1.clamp_(max=2.0)
    def fn2():
        nonlocal a2
        u1.detach_()
        n3 = (torch.tensor(0.5) if True else effect(torch.tensor(0.5))).sin().item()
        v5 = {a1 for c4 in itertools.islice(itertools.count(a1), 3)}
        return a3
    v6 = (torch.tensor(0.5).clone().item() > float((a1 if False else a1)))
    def fn7(p8, p9):
        u10, *u11 = [len({a1, a1}) for c12 in (v - 1 for v in range(a1 % 4)) if v6]
        k13 = 0
        while k13 < a1 % 4:
            k13 += 1
            if kept: kept[0] = a3.numel()
            p9 = (a2[0] if v6 else fn2())
            print(len({u10, u10, a1}), ('k1' or 'none').upper(), file=OUT)
        return kept[u10]
    return fn2().T


def F_CELL(value):
    pass
