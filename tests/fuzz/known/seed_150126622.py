SETTINGS = {'gradients': 'double'}
G_INT = 2
G_STR = 'g'
G_TENSOR = torch.tensor(0.75)
G_LIST = [1, 2]
G_DICT = {'a': 1, 'b': 2}
OBJ = Box(2, torch.tensor(0.5))
NET = Net(0.5)


def make_args(call):
    n = [3, 3, 3, 3, 3][call]
    g = [False, True, False, False, False][call]
    a0 = torch.randn(n, n)
    a1 = torch.tensor(0.5, requires_grad=g)
    return a0, a1,


def between(call):
    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect
    if call == 2: G_LIST = list(G_LIST)


def f(a0, a1):
    global G_INT
    a1 = (torch.where(effect(a0[0]) > a1, effect(a0[0]), a1)[0] if (float('1e2') != -0.25) else a1)
    a_1 = a0
    if not a_1.requires_grad:
        a_1.requires_grad_(True)
    b_2 = (a_1 * a_1).detach() + 1
    LOG.append((a_1.requires_grad, a_1.is_leaf))
    r3 = effect((a0 * a0[0])[0])
    if effect((G_INT <= G_INT)):
        for i5, i4 in enumerate(itertools.chain([G_INT, G_INT, G_INT][:2], (7, 8))):
            v6 = (f'{G_INT}-{i5:03d}' if ('b'[G_INT:] is None) else effect(('a' * (i5 % 4))))
        G_INT *= sum(v * v for v in [G_INT]) % 5
        def fn7(p8, p9):
            nonlocal b_2
            u10, *_ = torch.maximum(a0, p8)
            y11 = b_2
            return (torch.add(y11, a0) / (r3.abs() + 1))
    else:
        v12 = G_INT
        try:
            n13 = G_TENSOR.item()
        except UserError as e14:
            LOG.append((type(e14).__name__, str(e14)[:30]))
            s15 = a1 + 0
            s15.add_(max(a1.item(), G_INT * 1.0))
        except RuntimeError as e16:
            LOG.append((type(e16).__name__, str(e16)[:30]))
            n17 = F.mse_loss(a0, a0).item()
        y18 = b_2
    g_19 = (w for w in (Final(1), 2))
    next(g_19)
    g_19.close()
    LOG.append('closed')
    d_20 = {'a': Final(4)}
    d_20['a'] = d_20.pop('a').n
    v_21 = d_20['a']
    l_22 = [Final(1), Final(2), Final(3)]
    l_22.pop()
    LOG.append('popped')
    l_22[0] = 5
    LOG.append('replaced')
    l_22.clear()
    return (effect(a0.sin()), a0, v_21, r3, a1, b_2,)


def F_CELL(value):
    pass
