SETTINGS = {'gradients': 'batched'}
G_INT = 2
G_STR = 'g'
G_TENSOR = torch.tensor(0.75)
G_LIST = [1, 2]
G_DICT = {'a': 1, 'b': 2}
OBJ = Box(2, torch.tensor(0.5))
NET = Net(0.5)


def make_args(call):
    n = [3, 3, 4, 2, 5][call]
    g = [True, False, True, True, False][call]
    a0 = torch.randn(n, n).t()
    a1 = [[1, -2, -2, 4, -2][call] for _ in range(2)]
    a2 = torch.randn(n, requires_grad=g)
    b0 = map(abs, [-1, call, 2, 3])
    b1 = map(int, '12')
    b2 = map(torch.neg, torch.randn(3, n, n))
    b3 = done(done(done(done(done(set(), 'discard(9)'), 'discard(17)'), 'difference_update(range(64))'), 'discard(9)'), 'add(17)')
    b4 = done(collections.OrderedDict(a=1, b=2), 'move_to_end("a")')
    if call == 1: next(b0, 0)
    if call < 2: next(b1, 0)
    a2 = a2.to(torch.float64)
    a0 = a0.to(torch.float64)
    return a0, a1, a2, b0, b1, b2, b3, b4,


def between(call):
    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect
    global EXC, SHARED, Box, ChildBox
    if call == 2: G_INT += 1
    if call == 2: NET.layers[0] = torch.nn.Identity()
    if call > 1: NET.train(call % 2 == 0)
    if call == 3: few(call)
    if call == 2: ChildBox.__bases__ = (Box,)


def outer():
    cell = 3

    def set_cell(value):
        nonlocal cell
        cell = value

    def f(a0, a1, a2, b0, b1, b2, b3, b4):
        b3 = frozenset(a1)
        x_2 = NET(a0)
        y_3 = NET.weight * x_2
        LOG.append((type(NET).__name__, len(list(NET.parameters())), isinstance(NET, OtherNet)))
        if (0 <= abs(G_INT) < 4):
            v4 = ('a' * (-2 % 4))
            v5 = Box.make((a1 or [cell])[-1], a0.max())
            try:
                for i6, i7 in zip(map(lambda v: v + 1, G_LIST[:3]), G_LIST.copy()[:4]):
                    b3 |= (b3 | {G_INT})
                    a1 += a1[:2]
                    v5.table.update(dict(v5.table))
                def gen9(p10):
                    try:
                        yield p10
                        yield 2
                    finally:
                        LOG.append(('closed', cell))
                for i12 in gen9(int(str(cell))):
                    len(v5.table)
            except LookupError:
                v14 = v4
            except KeyError:
                if (v16 := G_LIST) is None: pass
                if torch.is_tensor(a0): raise ValueError('again')
            else:
                v5.table['z'] = cell
        x_17 = (a0 * torch.tensor(0.5))
        for y_18 in b2:
            x_17 = x_17 * 0.5 + y_18.sum()
            if isinstance(torch.tensor(0.5), (str, float)):
                break
        v_19 = [next(itertools.count(cell), -1), next(itertools.count(G_INT), -2), *itertools.islice(itertools.count(G_INT), 2)]
        def f_20(it):
            yield next(it, 0)
            yield from itertools.islice(it, 2)
        v_21 = list(f_20(itertools.count(cell)))
        z_22 = enumerate(b0, G_INT)
        w_23 = [i * j for i, j in z_22]
        d_24 = b4
        try:
            if isinstance(d_24, collections.OrderedDict):
                LOG.append(d_24.popitem(last=(not False)))
            else:
                LOG.append(d_24.popitem())
            d_24.update(z=1, a=operator.sub(G_INT, cell))
        except KeyError as error:
            LOG.append(str(error))
        v_25 = list(d_24.values())
        x_26 = y_3.transpose(0, 1) + len(d_24)
        s_27 = set(b3)
        for i_28 in range(12):
            s_27.add(i_28 * 7 % 31)
            if i_28 % 3 == 0: s_27.discard(i_28)
        if 'abc'.startswith('a'): s_27.pop()
        v_29 = list(s_27)
        w_30 = [*(s_27 & b3), *(s_27 ^ {40, 72})]
        x_31 = a0
        y_32 = x_31.detach()
        y_32.as_strided((y_32.size(0),), (1,)).add_(-0.25)
        z_33 = x_31.contiguous()
        LOG.append([z_33 is x_31, z_33.is_contiguous(), z_33.stride()])
        d_34 = F.linear(z_33, x_17).double()
        x_35 = F.linear(d_34, d_34).float() + torch.where(d_34 > 0, d_34, 1.0).float()
        l_36 = F.mse_loss(a0.bfloat16(), x_26.clamp(min=1e-3))
        LOG.append(str(l_36.dtype))
        try:
            x_37 = z_33.masked_fill(x_35 > 0, 1e39) + torch.full((1,), 300, dtype=torch.uint8)
        except RuntimeError as error:
            LOG.append(str(error)[:40])
        h_38 = F.layer_norm(x_35.bfloat16(), x_17.shape[1:], torch.ones(z_33.size(1)).bfloat16())
        LOG.append((str(h_38.dtype), str(h_38.softmax(0, dtype=torch.float32).dtype)))
        return (torch.lerp(sum([z_33, torch.tensor(0.5)]), y_3 * 1, 0.5), x_26, v_19,)

    return f, set_cell


f, F_CELL = outer()
