SETTINGS = {'gradients': 'penalty', 'late': True}
G_INT = 2
G_STR = 'g'
G_TENSOR = torch.tensor(0.75)
G_LIST = [1, 2]
G_DICT = {'a': 1, 'b': 2}
OBJ = Box(2, torch.tensor(0.5))
NET = Net(0.5)


def make_args(call):
    n = [3, 3, 4, 2, 5][call]
    g = [False, True, False, True, True][call]
    a0 = torch.randn(n, n).t()
    a1 = [[2, 0, -2, 3, 1][call] for _ in range(2)]
    a2 = [[3, 3, 3, 6, 3][call] for _ in range(2)]
    a3 = torch.randn(n, n, requires_grad=g)
    a4 = {'a': torch.randn(n, n), 'b': torch.randn(n, n).to(getattr(torch, ['int64', 'int64', 'int64', 'int64', 'float32'][call])), **({'c': torch.randn(n, n, requires_grad=g)} if call > 2 else {})}
    b0 = watched(call)
    return a0, a1, a2, a3, a4, b0,


def between(call):
    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect
    if call > 1: G_TENSOR = torch.tensor(float(call))
    if call == 1: G_INT = float(G_INT)
    if call >= 1: G_STR += 'a'
    if call == 2: OBJ.late = 1


def outer():
    cell = 3

    def set_cell(value):
        nonlocal cell
        cell = value

    def f(a0, a1, a2, a3, a4, b0):
        x1 = a3 * 2
        x1[x1 > 0] = 2.0
        @torch.no_grad()
        def f_2(x, n=2):
            y3 = x1
            return x * n
        x_4 = f_2(torch.ones(x1.size(0), x1.shape[1]))
        y_5 = NET(x_4) if effect(True) else NET(x_4, skip=True)
        x6 = torch.cat([a4.get('c', a3), a3], -2)[:a4.get('c', a3).size(0)].clone()
        l_7 = [Final(1), Final(2), Final(3)]
        l_7.pop()
        LOG.append('popped')
        l_7[0] = 5
        LOG.append('replaced')
        l_7.clear()
        x_4[0].add_(effect(x_4[0]))
        with contextlib.nullcontext():
            v9 = (lambda v8_0: opaque(y_5))
        u10, *_ = x_4
        v11 = {'k1': effect(NET.n), 'k1': NET.n, G_STR: NET.n}
        NET.train()
        return (NET(x_4, skip=effect(True)), cell, x6, v11, a2, a1, u10,)

    return f, set_cell


f, F_CELL = outer()
