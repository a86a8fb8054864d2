G_INT = 2
G_STR = 'g'
G_TENSOR = torch.tensor(0.75)
G_LIST = [1, 2]
G_DICT = {'a': 1, 'b': 2}
OBJ = Box(2, torch.tensor(0.5))
NET = Net(0.5)


def make_args(call):
    n = [3, 3, 3, 3, 3][call]
    g = [False, False, False, True, False][call]
    a0 = torch.randn(n, n).t()
    a1 = [4, 4, 3, 2, 2][call]
    a2 = torch.randn(())
    a3 = Box([6, -2, 0, 3, 0][call], torch.randn(()), [torch.ones(n, n)])
    a4 = torch.randn(n, n)
    return a0, a1, a2, a3, a4,


def between(call):
    global G_INT, G_STR, G_TENSOR, G_LIST, G_DICT, OBJ, NET, effect
    if call >= 1: OBJ.items = [torch.ones(2, 2)]
    if call > 1: OBJ.n = call
    if call > 1: effect = lambda value, tag='e': value


def f(a0, a1, a2, a3, a4):
    v1 = math.tanh(float('-2'))
    for i3, i2 in enumerate(itertools.islice(itertools.count(a3.n), 3)):
        a1 = NET.n
        try:
            for i4 in range((NET.n + a3.n) % 4):
                u5, u6 = F.softplus(a4).shape
                a3.table.get('k1')
            else:
                a3.items.pop()
        except KeyError as e7:
            LOG.append((type(e7).__name__, str(e7)[:30]))
            if (type(v1).__name__ is None):
                v8 = round(0.0)
                LOG.append(('c', sum(list(a0.shape))))
            else:
                a3.table['c'] += 1
                a2 += a0.amax((0,)).dot(operator.mul(a0[0], a4[0]))
        finally:
            framejit.graph_break()
    else:
        a4, a0 = a0, a4
    return effect(a0).cos()


def F_CELL(value):
    pass
