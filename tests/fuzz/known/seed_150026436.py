SETTINGS = {'gradients': 'double', 'used': [False, False, True, False, True]}
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
    a0 = torch.randn(n + 1, n)[1:]
    a1 = {'a': [0, 0, -2, 3, 4][call], 'b': [3, 3, 0, -1, 6][call]}
    a2 = [True, False, False, True, True][call]
    b0 = iter({1: 0, 2: 0, call: 0})
    b1 = reversed([1, 2, call])
    b2 = done(done(done(done(set(), 'update(range(17))'), 'add(1)'), 'update(range(1))'), 'update(range(9))')
    b3 = collections.Counter('abcab')
    b4 = collections.deque()
    if call == 1: next(b0, 0)
    return a0, a1, a2, b0, b1, b2, b3, b4,


def between(call):
    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect
    global EXC, SHARED, Box, ChildBox
    if call >= 1: NET.history.append(call)
    if call == 1: OBJ.extra = call
    if call > 1: NET.layers[0] = torch.nn.Identity()
    if call == 0: cached.cache_clear()


def f(a0, a1, a2, b0, b1, b2, b3, b4):
    def fn1(p2, *rest, key=2, **more):
        nonlocal b4
        u3, *u4 = G_LIST
        for i6, i5 in enumerate(OBJ.items[:2][:4]):
            u7, u8 = p2, F.gelu(operator.mul(p2, OBJ.x))
        p2 = p2
        return (a0.sort(dim=0).values if ('abc' < '') else a0.add(-0.25, alpha=2))
    try:
        try:
            @logged
            def fn9(p10):
                if str(p10).startswith('a'):
                    raise ValueError(p10) from None
                x11 = a0 + 0
                with torch.no_grad():
                    x11.view(-1)[0] = float('1e2')
                for i13, i12 in enumerate(range(3, 0, -1)):
                    x11 = fn1(fn1((a0 if a2 else a0)))
                    if (s14 := F.mse_loss(x11, ((x11 - x11) * x11.exp()))) is None: pass
                else:
                    u15, u16 = effect(a0).shape
                return a0
            b2 = frozenset(G_LIST.copy())
            b2 &= {c18 for c18 in filter(None, G_LIST[:4])}
        except LookupError:
            effect(f'{OBJ.n}-{OBJ.n:03d}', 't')
        OBJ.table = dict(zip(('a', 'c'), [c20 for c20 in range(OBJ.n % 5, 5)]))
    except Exception:
        b2 ^= {OBJ.n, OBJ.n, OBJ.n}
    x_23 = a0.masked_fill(a0 > 0, 1e-3)
    for y_24 in iter(OBJ.items[:2]):
        x_23 = x_23 * 0.5 + y_24.sum()
        if (OBJ == OBJ):
            break
    s_25 = b2
    if isinstance(s_25, set):
        s_25 |= {OBJ.n, 33}
        s_25 -= {OBJ.table.get('k1', OBJ.n)}
        s_25.intersection_update(range(40))
        s_25.symmetric_difference_update([7, 8])
        v_26 = [*s_25.copy()]
    h_27 = (fn1(*[x_23]) * 0.5).detach().requires_grad_()
    (g_28,) = torch.autograd.grad((h_27 ** 3).sum(), h_27, create_graph=True)
    p_29 = ((g_28.norm() - 1) ** 2).detach()
    a_30 = a0
    if not a_30.requires_grad:
        a_30.requires_grad_(True)
    b_31 = (a_30 * a_30).detach() + 1
    LOG.append((a_30.requires_grad, a_30.is_leaf))
    return (torch.where((x_23 if a2 else x_23) > fn1(a0), (x_23 if a2 else x_23), fn1(a0)), p_29, b3,)


def F_CELL(value):
    pass
