"""Pieces of programs that belong to a dimension; templates as in idioms.py."""

from __future__ import annotations

ALIASES = (
    """
%l% = $LI0$
%m% = $LI0$
%l%.append($I1$)
%v% = [len(%m%), %l% is %m%, *%m%[-2:]]
-> v:LI
""",
    """
%o% = $obj0$
%d% = %o%.__dict__ if hasattr(%o%, '__dict__') else %o%.table
%o%.n = $I1$
%v% = %d%.get('n', 7)
%d%['n'] = $I1$
%w% = %o%.n
-> v:I w:I
""",
    """
%x% = $M0$
with torch.no_grad():
    %x%.mul_($F0$)
%y% = $M0$ + %x% * 2
%b% = %x% is $M0$
-> y:M b:B
""",
    """
%d% = $DI0$
%k%, %w% = %d%.keys(), %d%.values()
%d%['new'] = $I1$
%v% = [len(%k%), *%w%, 'new' in %k%]
LOG.append(list(%k%))
-> v:LI
""",
    """
%x% = $M0$
%y% = %x%.detach()
%z% = %x%.data
%z%.add_(1)
%r% = %x%.sum(0) + %y%[0]
-> r:R
""",
    """
%o% = Box($I0$, $S0$)
%d% = vars(%o%)
%l% = [%d%, %o%] if $B1$ else [%o%.__dict__, %o%]
if True:
    <block>
%d%['n'] = $I1$
%o%.new = %d%
%v% = %l%[1].n
%w% = %l%[0]['new'] is %d%
-> v:I w:B
""",
    """
%b% = [$obj0$.items is $LM0$, $I0$ is $I0$, NET.weight is $M0$, OBJ is $obj0$]
LOG.append(%b%)
%u% = NET.weight
with torch.no_grad():
    %u%.mul_(2)
%x% = $M1$ * NET.weight
-> x:M
""",
)

EXCEPTIONS = (
    """
try:
    <block>
    raise $exc0$
except Exception as error:
    LOG.append((type(error).__name__, error is $exc0$, error.__context__ is None))
    %v% = len(error.args)
""",
    """
try:
    try:
        $DI0$['none'] if $B1$ else [][$I0$ % 3 + 5]
    except LookupError as error:
        raise $exc0$ from error
except Exception as error:
    LOG.append((type(error.__cause__).__name__, type(error.__context__).__name__))
    if $B0$:
        raise
""",
    """
%e% = $exc0$
%e%.__cause__ = $exc0$ if $B0$ else None
%e%.add_note($Z1$)
%e%.code = $I1$
%v% = [len(getattr(%e%, '__notes__', ())), %e%.__suppress_context__]
-> v:LI
""",
    """
try:
    try:
        raise $exc0$
    finally:
        <block>
        if $B0$:
            raise KeyError('finally')
except Exception as %e%:
    LOG.append(repr(%e%.__context__))
    %t% = %e%.with_traceback(None)
    %e%.args = ($I1$, 'changed')
""",
    """
%e% = ValueError($Z1$)
%e%.__context__ = $exc0$
try:
    raise %e% from ($exc0$ if $B1$ else None)
except ValueError as error:
    LOG.append((str(error), error.__suppress_context__, error.__cause__ is $exc0$))
""",
    """
def %f%(p):
    try:
        if p > 1:
            raise $exc0$
        return p
    except (ValueError, UserError) as error:
        return getattr(error, 'code', -1)
    except LookupError:
        return -2
    except Exception:
        return -3
%v% = %f%($I1$) + %f%(3)
-> v:I
""",
    """
with Manager('e', Exception) as %m%:
    <block>
    raise $exc0$
with contextlib.suppress(Exception):
    raise type($exc0$)($Z0$)
LOG.append($exc0$.__traceback__ is None)
""",
    """
%g% = (w for w in (1, 2))
try:
    %g%.throw($exc0$)
except Exception as error:
    LOG.append(type(error).__name__)
try:
    raise ExceptionGroup('group', [$exc0$, KeyError('x')])
except* KeyError as group:
    LOG.append(len(group.exceptions))
except* Exception as rest:
    LOG.append(rest.exceptions[0] is $exc0$)
""",
    """
%d% = {'error': $exc0$, 'args': $exc0$.args}
%v% = len(%d%['args'])
LOG.append(isinstance(%d%['error'], (LookupError, UserError)))
%e% = copy.copy($exc0$)
LOG.append(str(%e%))
-> v:I
""",
)

ITERATORS = (
    """
%v% = [next($endless0$, -1), next($endless0$, -2), *itertools.islice($endless0$, 2)]
-> v:LI
""",
    """
for %i% in $it0$:
    <block i:I>
    if %i% > 1:
        break
%v% = next($it0$, -5)
-> v:I
""",
    """
%v% = [a + b for a, b in zip($it0$, $endless0$)]
%w% = list($it0$)
-> v:LI w:LI
""",
    """
%x% = $M1$
for %y% in $iterM0$:
    %x% = %x% * 0.5 + %y%.sum()
    if $B1$:
        break
-> x:M
""",
    """
%a%, %b% = itertools.tee($it0$)
%v% = [next(%a%, 1), *%b%]
%c% = iter(%a%)
LOG.append(%c% is %a%)
-> v:LI
""",
    """
%v% = $I1$ in $it0$
%w% = max($it0$, default=-1)
try:
    %u% = next($it0$)
except StopIteration as stop:
    LOG.append(('stop', stop.value))
-> v:B w:I
""",
    """
def %f%(it):
    yield next(it, 0)
    yield from itertools.islice(it, 2)
%v% = list(%f%($endless0$))
%z% = enumerate($it0$, $I0$)
%w% = [i * j for i, j in %z%]
-> v:LI w:LI
""",
    """
for %i% in $it0$:
    framejit.graph_break()
    LOG.append(%i%)
    %x% = $M1$ * %i%
%y% = next($iterM0$, $M0$)
-> y:M
""",
    """
%l% = $LI0$
%j% = iter(%l%)
%v% = next(%j%, 0)
%l%.append($I1$)
%w% = list(itertools.islice(%j%, 4))
LOG.append(operator.length_hint(%j%))
-> v:I w:LI
""",
)

HISTORIES = (
    """
%s% = $set0$
%s% = %s% if isinstance(%s%, set) else set(%s%)
%s%.add($I1$)
%s%.discard($I1$)
%v% = list(%s%)
-> v:LI
""",
    """
%s% = set($set0$)
for %i% in range(12):
    %s%.add(%i% * 7 % 31)
    if %i% % 3 == 0: %s%.discard(%i%)
if $B1$: %s%.pop()
%v% = list(%s%)
%w% = [*(%s% & $set0$), *(%s% ^ {40, 72})]
-> s:set v:LI w:LI
""",
    """
%d% = $odict0$
%d%['k'] = $I1$
if 'a' in %d%: %d%['a'] += 1
if hasattr(%d%, 'move_to_end') and %d%:
    %d%.move_to_end(next(iter(%d%)), last=$B1$)
LOG.append(list(%d%.items()))
""",
    """
%d% = $odict0$
try:
    if isinstance(%d%, collections.OrderedDict):
        LOG.append(%d%.popitem(last=$B1$))
    else:
        LOG.append(%d%.popitem())
    %d%.update(z=1, a=$I1$)
except KeyError as error:
    LOG.append(str(error))
%v% = list(%d%.values())
%x% = $M1$ + len(%d%)
-> v:LI x:M
""",
    """
%d% = collections.OrderedDict($DI1$)
%d%.pop('a', 0)
%d%['a'] = $I1$
for %k% in reversed(%d%):
    LOG.append(%k%)
%c% = collections.Counter($Z1$)
%c%.subtract({'a': 2})
%v% = [v for _, v in %c%.most_common()]
-> v:LI
""",
    """
%q% = $deque0$
%q%.append($I1$)
%q%.appendleft($I1$)
%q%.rotate($I0$)
%v% = [*%q%, len(%q%)]
if $B1$: %q%.popleft()
%q%.extend([1, 2])
-> v:LI
""",
    """
%v% = [cached(n % 3) for n in $LI1$] + [cached($I1$ % 4)]
LOG.append(cached.__name__)
-> v:LI
""",
    """
%v% = [few(n % 4) for n in $LI1$] + [few($I1$ % 3)]
LOG.append(("few", tuple(few.cache_info()), tuple(cached.cache_info())))
-> v:LI
""",
    """
%d% = $odict0$
%e% = %d%.copy()
for %k% in list(%d%)[:2]:
    del %d%[%k%]
%d%[%k% if %e% else 'n'] = 3
%v% = list(%d% | %e%) == list(%e% | %d%)
LOG.append(list(%d%))
-> v:B
""",
    """
%s% = $set0$
if isinstance(%s%, set):
    %s% |= {$I1$, 33}
    %s% -= {$I1$}
    %s%.intersection_update(range(40))
    %s%.symmetric_difference_update([$I1$, 8])
    %v% = [*%s%.copy()]
""",
)

DEEP = (
    """
%n% = $deep0$
%c% = 0
while isinstance(%n%, list) and %n% and %c% < 50:
    %n% = %n%[-1]
    %c% += 1
%v% = %c%
-> v:I
""",
    """
%n% = $deep0$
%x% = $M1$
for %i% in range(5):
    if isinstance(%n%, Node):
        %n%.n += 1
        %x% = %x% + %n%.n
        %n% = %n%.next if %n%.next is not None else %n%
-> x:M
""",
    """
try:
    %v% = len(str($deep0$))
except RecursionError:
    %v% = -1
-> v:I
""",
    """
try:
    %b% = $deep0$ == $deep0$
    %c% = copy.copy($deep0$)
    LOG.append(%c% is $deep0$)
except RecursionError as error:
    %b% = False
-> b:B
""",
    """
%n% = $deep0$
if isinstance(%n%, list):
    %n%.append($I1$ if $B1$ else %n%)
elif isinstance(%n%, dict):
    %n%['self'] = %n%
else:
    %n%.items.append(%n%)
""",
    """
def %f%(d):
    return d + 1 if d > $I0$ % 3 + 40 else %f%(d + 1) + 1
%v% = %f%(0)
%l% = [1]
for %i% in range(30): %l% = [%l%, %i%]
%k% = %l%[0][0][1]
-> v:I k:I
""",
    """
%l% = []
%l%.append(%l%)
%d% = {'l': %l%}
%d%['d'] = %d%
%o% = Node(1)
%o%.next = Node(2, %o%)
LOG.append(repr(%l%) + repr(%d%))
%v% = %o%.next.next.n
-> v:I
""",
)

FINALIZERS = (
    """
%o% = Final($I1$)
%x% = $M1$ * 2
del %o%
LOG.append('after')
-> x:M
""",
    """
%o% = FinalTorch($I1$)
%x% = $M1$ + G_TENSOR
%o% = None
%y% = %x% * G_TENSOR
-> y:M
""",
    """
%o% = Box($I0$, $S0$)
%r% = weakref.ref(%o%, gone)
LOG.append(%r%() is %o%)
del %o%
LOG.append(%r%() is None)
""",
    """
%l% = [Final(1), Final(2), Final(3)]
%l%.pop()
LOG.append('popped')
%l%[0] = 5
LOG.append('replaced')
%l%.clear()
""",
    """
def %f%(p):
    inner = Final(p)
    <body p:I>
    return p + 1
%v% = %f%($I1$)
LOG.append('returned')
-> v:I
""",
    """
%w% = weakref.WeakValueDictionary()
%o% = Box(1, $S0$)
%w%['o'] = %o%
%v% = len(%w%)
%o% = None
%u% = len(%w%)
-> v:I u:I
""",
    """
try:
    %o% = Final($I0$, Final(9))
    <block>
    if $B1$: raise ValueError('v')
except ValueError:
    LOG.append('caught')
%o% = 1
""",
    """
%o% = $fin0$
%o%.held = Final($I0$)
framejit.graph_break()
%o%.held = None
LOG.append('let go')
""",
    """
%g% = (w for w in (Final(1), 2))
next(%g%)
%g%.close()
LOG.append('closed')
%d% = {'a': Final(4)}
%d%['a'] = %d%.pop('a').n
%v% = %d%['a']
-> v:I
""",
    """
%o% = Box(2, $S0$)
weakref.finalize(%o%, gone, 'finalize')
%o%.items.append(Final(6))
%x% = $M1$.sin()
del %o%
-> x:M
""",
)

WRITES = (
    """
%x% = torch.empty(0)
torch.add($M1$.detach(), $F0$, out=%x%)
-> x:M
""",
    """
%x% = $M1$.detach() * 1
%y% = torch.sin(%x%, out=%x%)
LOG.append(%y% is %x%)
torch.mul(%x%, 2, out=%x%.t())
torch.sum(%x%, 0, out=%x%[0])
-> x:M
""",
    """
%x% = $M1$ * 1
%x%.diagonal().fill_($F0$)
%x%.t()[1:].mul_(2)
%x%[0].unsqueeze(0).expand(1, %x%.size(1)).add_(1)
-> x:M
""",
    """
%r% = $R1$ * 1
%r%.expand(1, %r%.size(0))[0].fill_($F0$)
%y% = %r%.unsqueeze(1).expand(%r%.size(0), 3)
try:
    %y%.add_(1)
except RuntimeError as error:
    LOG.append(str(error)[:40])
-> r:R
""",
    """
%x% = $M0$
%y% = %x%.detach()
%y%.as_strided((%y%.size(0),), (1,)).add_($F0$)
%z% = %x%.contiguous()
LOG.append([%z% is %x%, %z%.is_contiguous(), %z%.stride()])
-> z:M
""",
    """
%x% = $M1$ + 0
%v%, %w% = %x%.select(1, 0), %x%.view(-1)
%v%.add_(1)
%w%.mul_($F0$)
%v%.zero_()
%a% = %x%.unfold(0, 1, 1)
%a%.sub_(1)
-> x:M v:R
""",
    """
%b% = torch.zeros(8)
%o% = torch.cumsum(torch.ones(4), 0, out=%b%[::2])
torch.maximum(%b%[:4], %b%[4:], out=%b%[2:6])
%m%, %i% = torch.empty(0), torch.empty(0, dtype=torch.int64)
torch.max($M1$.detach(), 0, out=(%m%, %i%))
-> b:R m:R
""",
    """
try:
    torch.add($M0$, 1, out=$M0$)
except RuntimeError as error:
    LOG.append(str(error)[:40])
try:
    torch.exp($M1$, out=torch.empty(2, dtype=torch.int64))
except RuntimeError as error:
    LOG.append(str(error)[:40])
""",
    """
%x% = $M1$ * 2
%l% = list(%x%.unbind(1)) + [%x%.mT]
%l%[-1][0] += 1
%l%[0] *= 3
with torch.no_grad():
    %x%.transpose(0, 1).reshape(-1)[:1].zero_()
    %x%.flatten()[0] = $F0$
%y% = %x%.view_as(%x%)
%y% -= 1
-> x:M
""",
    """
%x% = $M0$.detach()
%x%.index_add_(0, torch.zeros(1, dtype=torch.int64), %x%[:1])
%x%.scatter_(0, torch.zeros_like(%x%, dtype=torch.int64)[:1], $F0$)
%x%.index_put_((torch.tensor([0]),), %x%[0, 0])
%x%[0].copy_(%x%[:, 0])
%x%.swapaxes_(0, 1)
-> x:M
""",
)

DTYPES = (
    """
%x% = ($M1$.to(torch.bfloat16) * $M1$).float()
%y% = ($M1$.half() + $S1$).to(torch.float32)
-> x:M y:M
""",
    """
LOG.append(str(($M1$ + $I0$).dtype) + str(($M0$ * $F0$).dtype) + str(($S0$ + $M0$).dtype))
%x% = torch.result_type($M0$, $S0$)
LOG.append(str(%x%))
""",
    """
%i% = ($M1$ * 2).to(torch.int64)
%x% = %i% / 2 + %i% // 2 + %i% % 3 + (%i% > 0)
%u% = %i%.to(torch.uint8) + 250
%y% = %u%.float() + (%i%.bool() | True)
-> x:M y:M
""",
    """
%d% = $M1$.double()
%x% = F.linear(%d%, %d%).float() + torch.where(%d% > 0, %d%, 1.0).float()
%l% = F.mse_loss($M1$.bfloat16(), $M1$)
LOG.append(str(%l%.dtype))
-> x:M
""",
    """
try:
    %x% = $M0$.masked_fill($M0$ > 0, 1e39) + torch.full((1,), 300, dtype=torch.uint8)
except RuntimeError as error:
    LOG.append(str(error)[:40])
%h% = F.layer_norm($M0$.bfloat16(), $M0$.shape[1:], torch.ones($M0$.size(1)).bfloat16())
LOG.append((str(%h%.dtype), str(%h%.softmax(0, dtype=torch.float32).dtype)))
""",
    """
%x% = $M1$ * 1
%x% += $M0$.to(torch.float64)
%x%.copy_($M0$.to(torch.int32))
%x%[0] = torch.ones((), dtype=torch.int64)
%x% = torch.cat([%x%, %x%.double()])[:%x%.size(0)].float()
-> x:M
""",
)

HELD = (
    """
for %o% in all_held($held0$):
    LOG.append((type(%o%).__name__, getattr(%o%, 'n', None), len(%o%)))
""",
    """
for %o% in all_held($held0$):
    %o%.items.append($I0$)
    %o%.n = $I1$ + len(%o%.items)
%v% = [*%o%.items[-2:]]
-> v:LI
""",
    """
%h% = $held0$
%l% = [%h%] if isinstance(%h%, slice) else list(map(type, %h% | frozenset([3])))
LOG.append(sorted(getattr(t, '__name__', '') for t in %l%))
""",
    """
%x% = $M0$
for %o% in all_held($held0$):
    %x% = %x% * len(%o%) + getattr(%o%, 'extra', 1)
    if $B0$:
        framejit.graph_break()
    %o%.extra = $I0$
-> x:M
""",
    """
%h% = $held0$ if isinstance($held0$, frozenset) else frozenset()
LOG.append((len({NET.weight, 1} | %h%), NET.weight in %h%, len(%h% - {NET.weight})))
LOG.append([t.shape for t in %h% if isinstance(t, torch.Tensor)])
""",
    """
%h% = {$held0$: $I0$} if not isinstance($held0$, slice) else {'a': $I0$}
for %k% in %h%:
    LOG.append((type(%k%).__name__, [o.__dict__.get('n') for o in all_held(%k%)]))
""",
)

METHODS = (
    """
$lm0$($I0$)
LOG.append((len($lm0$.__self__), $lm0$.__name__, $lm0$.__self__ is G_LIST))
""",
    """
$lm0$.__self__.append($I1$)
if $B1$:
    framejit.graph_break()
$lm0$(3)
%v% = list($lm0$.__self__)
-> v:LI
""",
    """
LOG.append(($dm0$('a', -1), len($dm0$.__self__), $dm0$.__self__ is G_DICT))
LOG.append($dm0$.__qualname__)
""",
    """
%x% = $tm0$($M0$) + $tm0$.__self__
LOG.append($tm0$.__self__.shape[0])
-> x:M
""",
    """
try:
    LOG.append($dm0$.__self__.nothing)
except AttributeError as error:
    LOG.append((str(error), error.name, error.obj is $dm0$.__self__))
try:
    LOG.append(OBJ.nothing)
except AttributeError as error:
    LOG.append((error.name, error.obj is OBJ))
""",
)

# Leaves that the function makes.
LEAVES = (
    """
%d% = torch.zeros_like($M0$, requires_grad=True)
(%g%,) = torch.autograd.grad(((%d% + $M0$.detach()) * $F0$).sin().sum(), %d%)
-> g:M
""",
    """
%x% = ($M1$.detach() * 1).requires_grad_(True)
(%x% * %x%).sum().backward()
%g% = %x%.grad * 2
LOG.append((%x%.is_leaf, %x%.requires_grad, %g%.requires_grad))
-> g:M
""",
    """
%h% = ($M1$ * $F0$).detach().requires_grad_()
(%g%,) = torch.autograd.grad((%h% ** 3).sum(), %h%, create_graph=True)
%p% = ((%g%.norm() - 1) ** 2).detach()
-> p:S
""",
    """
%w% = torch.ones($M0$.size(1), requires_grad=True)
for %i% in range(2):
    ($M0$.detach() * %w%).sum().backward()
    with torch.no_grad():
        %w% -= 0.1 * %w%.grad
        %w%.grad = None
%r% = %w%.detach() * 2
-> r:R
""",
    """
%a% = $M0$
if not %a%.requires_grad:
    %a%.requires_grad_(True)
%b% = (%a% * %a%).detach() + 1
LOG.append((%a%.requires_grad, %a%.is_leaf))
-> b:M
""",
    """
%a% = $M0$
%x% = %a% * %a%
if %a%.is_leaf and %a%.requires_grad:
    %a%.requires_grad_(False)
    %x% = %x% + %a% * 2
    %a%.requires_grad_(True)
-> x:M
""",
)

CLASSES = (
    """
%o% = $obj0$
%a% = %o%($M1$)
if hasattr(%o%, '__dict__'):
    %o%.__class__ = ChildBox if $B1$ else Box
%x% = %o%(%a%)
LOG.append(type(%o%).kind)
-> x:M
""",
    """
%x% = NET($M1$)
%y% = NET.weight * %x%
LOG.append((type(NET).__name__, len(list(NET.parameters())), isinstance(NET, OtherNet)))
-> y:M
""",
)
