G_INT = 2
G_STR = 'g'
G_TENSOR = torch.tensor(0.75)
G_LIST = [1, 2]
G_DICT = {'a': 1, 'b': 2}
OBJ = Box(2, torch.tensor(0.5))
NET = Net(0.5)


def make_args(call):
    n = [3, 3, 4, 2, 5][call]
    g = [True, False, True, True, True][call]
    a0 = torch.randn(n, n)
    a1 = [0.5, 1.5, 0.0, 1.5, 0.0][call]
    a2 = [1, -1, -2, -1, 6][call]
    return a0, a1, a2,


def between(call):
    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect
    if call == 2: G_INT = bool(G_INT)
    if call == 1: G_INT += 1


def f(a0, a1, a2):
    try:
        for i2, i1 in enumerate(a0.sub(torch.tensor(0.5), alpha=2).unbind(0)[:3]):
            if (a1 <= (a2 / 4)):
                LOG.append(('k1', ''[i2:]))
                if ''.replace('a', 'zz')[:12].startswith('a'):
                    raise ChildError(effect('a')) from None
                a0.view(-1)[0] = float('1.5')
            try:
                u3, u4 = a0.unsqueeze(0).squeeze(0), '{}:{x}'.format(a0.stride(0), x=','.join(str(v) for v in [a2, i2, a2]))
                if a0.is_contiguous():
                    raise ChildError(max([i2, a2])) from KeyError('k')
            except ValueError:
                v6 = 'a'
            except (TypeError, IndexError):
                r8 = i1
            finally:
                v9 = opaque(('b' or 'none'))
            u10, u11 = (a0.cumsum(0) / (a0.abs() + 1)), (a0 if callable(i2) else a0.cumsum(-1))
    finally:
        if (a0 := torch.add(a0, torch.add(a0[0].contiguous(), a0.mean()))) is None: pass
    return {'a0': a0, 'a1': a1, 'a2': a2}


def F_CELL(value):
    pass
