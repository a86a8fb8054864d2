"""The rows of test_effects_on_inputs.py.

Per kind of object: how it is made, the ways to change it, what is looked at
afterwards, and what is done before.
"""

ROWS: list[tuple[str, str, str, str]] = []


def kind(setup: str, changes: tuple[str, ...], look: str, before: str = "") -> None:
    ROWS.extend((setup, change, look, before) for change in changes)


# Changes that several kinds share.
LIST_CHANGES = (
    "o.append(9)",
    "o.extend([7,8])",
    "o.insert(0,5)",
    "o.insert(-1,5)",
    "r=o.pop()",
    "r=o.pop(0)",
    "o.remove(2)",
    "o.clear()",
    "o.reverse()",
    "o.sort()",
    "o.sort(reverse=True)",
    "o.sort(key=lambda v:-v)",
    "o[0]=9",
    "o[-1]=9",
    "o[1:2]=[6,6,6]",
    "o[::2]=[1,1]",
    "del o[0]",
    "del o[1:]",
    "o+=[4]",
    "o*=2",
    "o.__init__([8])",
    "o.__init__()",
    "o.__setitem__(0,4)",
    "o.__delitem__(0)",
    "o.__iadd__([1])",
    "o.__imul__(2)",
    "list.append(o,3)",
    "o[:]=[]",
    "o[len(o):]=[3]",
    "a,*o[1:3]=[9,8,7]",
    "for i in range(3): o.append(i)",
    "for v in o:\n    if len(o)<9: o.append(v)",
    "for v in o:\n    o.remove(v)",
    "it=iter(o)\nnext(it)\no.append(4)\nr=list(it)",
)
MAPPING_CHANGES = (
    "o['z']=1",
    "del o['a']",
    "r=o.pop('a')",
    "r=o.pop('q',5)",
    "r=o.popitem()",
    "o.clear()",
    "o.update(k=4)",
    "o.update({'a':7,'n':1})",
    "o.update([('b',3)])",
    "r=o.setdefault('s',5)",
    "r=o.setdefault('a',5)",
    "o|={'y':3}",
    "o.__init__(w=5)",
    "o.__setitem__('u',1)",
    "o.__delitem__('b')",
    "o.__ior__({'t':3})",
    "v=o.pop('a')\no['a']=v",
    "del o['b']\no['b']=1\no['d']=3",
    "o['a']+=1",
    "dict.update(o,{'h':2})",
)
DICT_CHANGES = (
    "dict.__setitem__(o,'j',1)",
    "o['b']=4\ndel o['b']\no['c']=4\no['b']=5",
    "for k in list(o): del o[k]",
    "k=next(iter(o))\ndel o[k]",
    "r=list(reversed(o))\no['q']=3",
    "try:\n    for k in o: o[k+'1']=2\nexcept RuntimeError: r='re'",
    "dict.pop(o,'b')",
    "it=iter(o)\nnext(it)\no['a']=9\nr=list(it)",
    "v=o.values()\no['new']=3\nr=list(v)",
    "k=o.keys()\no.pop('a')\nr=list(k)",
    "v=o.items()\no['new']=3\nr=len(v)",
    "o[(1,2)]=3",
    "o[1]=2\no[1.0]=3\no[True]=4",
)
SET_CHANGES = (
    "o.add(9)",
    "o.add(1)",
    "o.discard(2)",
    "o.remove(3)",
    "r=o.pop()",
    "o.clear()",
    "o.update([7,8])",
    "o|={17,33}",
    "o&={1,2}",
    "o-={1}",
    "o^={1,9}",
    "o.difference_update([1])",
)
DEQUE_CHANGES = (
    "o.append(9)",
    "o.appendleft(9)",
    "o.extend([7,8])",
    "o.extendleft([7,8])",
    "r=o.pop()",
    "r=o.popleft()",
    "o.rotate(1)",
    "o.rotate(-2)",
    "o.reverse()",
    "o.insert(1,5)",
    "o.remove(2)",
    "o.clear()",
    "o[0]=9",
    "del o[1]",
    "o+=[1,2]",
    "o*=2",
    "o.__init__([4],2)",
    "o.__init__([4])",
    "for v in list(o): o.append(v)",
    "it=iter(o)\nnext(it)\ntry:\n    o.append(4)\n    next(it)\nexcept RuntimeError: r='re'",
)
ITERATOR_CHANGES = (
    "r=next(o)",
    "r=list(o)",
    "for v in o:\n    if v>1: break",
    "r=next(o,7)",
    "r=sum(o)",
    "r=[v for v in o]",
    "r=2 in o",
    "a,*b=o",
    "r=dict.fromkeys(o)",
    "r=tuple(zip(o,o))",
    "r=o.__next__()",
    "r=max(o)",
    "r=sorted(o)",
    "r=list(map(abs,o))",
    "r=[].extend(o)",
    "r=set(o)",
    "r=list(zip(o,[1]))",
    "r=copy.copy(o)",
    "r=o.__reduce__()",
    "r=list(islice(o,2))",
    "r=','.join(map(str,o))",
    "r=any(v>1 for v in o)",
    "r=f'{list(o)}'",
)
NEXT_CHANGES = (
    "r=next(o)",
    "for v in o: break",
    "r=len(list(o))",
)
EXCEPTION = "(type(o.__cause__).__name__, type(o.__context__).__name__, o.__suppress_context__, o.__traceback__ is None, getattr(o,'__notes__',None), o.args, vars(o))"

kind(
    "ValueError(1)",
    (
        "try:\n    raise o from KeyError(2)\nexcept ValueError: pass",
        "try:\n    raise o\nexcept ValueError: pass",
        "try:\n    raise o from None\nexcept ValueError: pass",
        "try:\n    try:\n        1/0\n    except ZeroDivisionError:\n        raise o\nexcept ValueError: pass",
        "try:\n    try:\n        raise o\n    finally:\n        y = y+1\nexcept ValueError: pass",
        "try:\n    try:\n        raise o\n    except ValueError:\n        raise KeyError(3)\nexcept KeyError as k: r = k.__context__ is o",
        "try:\n    try:\n        raise o\n    except ValueError as e:\n        raise KeyError(3) from e\nexcept KeyError as k: r = k.__cause__ is o",
        "try:\n    raise KeyError(3) from o\nexcept KeyError as k: r = k.__cause__ is o",
        "o.add_note('n')",
        "o.__cause__ = KeyError()",
        "o.__context__ = KeyError()",
        "o.__suppress_context__ = True",
        "o.with_traceback(None)",
        "o.__traceback__ = None",
        "o.args = (5,)",
        "o.foo = 3",
        "o.__notes__ = ['a']",
        "o.__init__(7, 8)",
        "del o.__traceback__",
        "o.__setstate__({'z': 3})",
        "def g():\n    yield 1\nit=g()\nnext(it)\ntry:\n    it.throw(o)\nexcept ValueError: pass",
        "class M:\n    def __enter__(s): return s\n    def __exit__(s,*a): return True\nwith M():\n    raise o",
        "r = isinstance(o, Exception)",
        "import contextlib\nwith contextlib.suppress(ValueError):\n    raise o",
        "ps = []\ntry:\n    raise o\nexcept ValueError as e:\n    ps.append(e)\nr = ps[0] is o",
        "raise o",
        "raise o from KeyError(1)",
        "raise KeyError(1) from o",
    ),
    EXCEPTION,
)
kind(
    "ValueError(1)",
    ("try:\n    raise o\nexcept ValueError as e:\n    e.__cause__=KeyError(1)",),
    EXCEPTION,
    "o.add_note('x')",
)
kind(
    "ExceptionGroup('g',[ValueError(1),KeyError(2)])",
    (
        "try:\n    raise o\nexcept* ValueError: pass\nexcept* KeyError: pass",
        "try:\n    raise o\nexcept ExceptionGroup: pass",
    ),
    EXCEPTION,
)
kind(
    "StopIteration(4)",
    (
        "o.value = 5",
        "def g():\n    return o\n    yield\ntry:\n    next(g())\nexcept StopIteration as e: r = e.value is o",
    ),
    EXCEPTION + ",o.value",
)
kind(
    "OSError(1,'x','f')",
    (
        "o.filename = 'z'",
        "o.errno = 4",
        "o.strerror='q'",
        "o.__init__(2,'g')",
    ),
    EXCEPTION + ",o.filename,o.errno,o.strerror",
)
kind(
    "ImportError('a', name='n')",
    (
        "o.name = 'q'",
        "o.msg='m'",
        "o.path='p'",
    ),
    EXCEPTION + ",o.name,o.msg,o.path",
)
kind(
    "UnicodeDecodeError('utf-8', b'x', 0, 1, 'r')",
    (
        "o.start = 1",
        "o.reason='z'",
        "o.object=b'q'",
    ),
    "(o.start,o.reason,o.object)",
)
kind(
    "SyntaxError('a',('f',1,2,'t'))",
    (
        "o.lineno = 5",
        "o.msg='b'",
        "o.text='z'",
    ),
    "(o.lineno,o.msg,o.text)",
)
kind("SystemExit(3)", ("o.code = 5",), "o.code")
kind("NameError('a',name='b')", ("o.name='c'",), "o.name")
kind(
    "AttributeError('a',name='b',obj=1)",
    (
        "o.name='c'",
        "o.obj=4",
    ),
    "(o.name,o.obj)",
)
kind("[3,1,2,4]", LIST_CHANGES, "o")
kind(
    "L([3,1,2,4])",
    LIST_CHANGES + ("o.z=3",),
    "(list(o),vars(o))",
)
kind(
    "{'a':1,'b':2,'c':3}",
    MAPPING_CHANGES + DICT_CHANGES,
    "list(o.items())",
)
kind(
    "OD([('a',1),('b',2),('c',3)])",
    MAPPING_CHANGES
    + DICT_CHANGES
    + (
        "o.move_to_end('a')",
        "o.move_to_end('c',last=False)",
        "r=o.popitem(last=False)",
        "r=o.popitem(False)",
        "r=o.popitem(last=True)",
        "o.move_to_end('a')\no['n']=1\no.move_to_end('b',False)",
        "o.move_to_end('b')\ndel o['a']",
        "OD.move_to_end(o,'a',last=True)",
        "dict.__setitem__(o, 'a', 4)",
        "o.z=3",
    ),
    "(list(o.items()), list(dict.items(o)) , list(reversed(o)), vars(o) if hasattr(o,'__dict__') else 0)",
)
kind(
    "MOD([('a',1),('b',2),('c',3)])",
    (
        "o.move_to_end('a')",
        "o.popitem(last=False)",
        "o['k']=3",
        "o.pop('a')",
        "o.clear()",
        "o.update(a=5,z=3)",
    ),
    "(list(o.items()), list(reversed(o)))",
)
kind(
    "DD(list,a=[1],b=[2],c=3)",
    MAPPING_CHANGES
    + (
        "r=o['missing']",
        "o['missing'].append(3)",
        "o.default_factory=None",
        "o.default_factory=int\no['q']+=1",
        "o.__missing__('f')",
        "r=o.get('nn')",
        "r='nn' in o",
        "o.__init__(int)",
        "o.__init__(int, z=3)",
    ),
    "(list(o.items()), o.default_factory)",
)
kind(
    "Counter('aabbc')",
    (
        "o['z']=1",
        "del o['a']",
        "r=o.pop('a')",
        "r=o.pop('q',5)",
        "r=o.popitem()",
        "o.clear()",
        "o.update(k=4)",
        "o.update({'a':7,'n':1})",
        "o.update([('b',3)])",
        "r=o.setdefault('s',5)",
        "o.update('abc')",
        "o.subtract('ab')",
        "o['a']+=2",
        "o+=Counter('zz')",
        "o-=Counter('a')",
        "o&=Counter('a')",
        "o|=Counter('qq')",
        "r=o.most_common(1)",
        "r=o['nope']",
        "del o['nope']",
        "r=list(o.elements())",
        "r=o+Counter('a')",
    ),
    "list(o.items())",
)
kind(
    "ChainMap({'a':1},{'b':2})",
    (
        "o['c']=3",
        "o['b']=5",
        "del o['a']",
        "o.maps.append({})",
        "o.pop('a')",
        "o.clear()",
        "r=o.new_child()",
        "o.maps[1]['q']=3",
        "o.update(z=3)",
    ),
    "[list(m.items()) for m in o.maps]",
)
kind(
    "{1,2,3,8,16,32}",
    SET_CHANGES
    + (
        "o.intersection_update([2,1])",
        "o.symmetric_difference_update([1,70])",
        "o.__init__([3])",
        "for i in range(40): o.add(i)",
        "for i in range(40): o.add(i*32)\nfor i in range(38): o.discard(i*32)",
        "o.discard(8)\no.add(16)\no.add(0)",
        "o.discard(1)\no.discard(2)\no.add(65)",
        "o.add(-1)\no.add(-2)",
        "o.add(-2)\no.add(-1)",
        "o.add('a')\no.add((1,2))",
        "o.add(1.0)\no.add(True)",
        "o.__ior__({5})",
        "o.remove(8)\no.add(32)\no.add(8)",
    ),
    "list(o)",
)
kind(
    "set()",
    (
        "for i in (32,8,16,0): o.add(i)",
        "o.add(8)\no.add(0)",
        "o.update((8,0,16))\no.discard(0)\no.add(0)",
        "o.add(16)\no.add(8)\no.discard(16)\no.add(0)",
    ),
    "list(o)",
)
kind(
    "S({1,2,3,8,16,32})",
    SET_CHANGES + ("o.z=3",),
    "(list(o),vars(o))",
)
kind("deque([3,1,2,4])", DEQUE_CHANGES, "(list(o),o.maxlen)")
kind("deque([3,1,2,4],4)", DEQUE_CHANGES, "(list(o),o.maxlen)")
kind(
    "DQS([3,1,2,4],5)",
    (
        "o.append(9)",
        "o.appendleft(9)",
        "o.extend([7,8])",
        "o.extendleft([7,8])",
        "r=o.pop()",
        "r=o.popleft()",
        "o.rotate(1)",
        "o.rotate(-2)",
        "o.z=1",
    ),
    "(list(o),o.maxlen)",
)
kind(
    "bytearray(b'abcd')",
    (
        "o.append(5)",
        "o.extend(b'xy')",
        "o.insert(0,4)",
        "o.pop()",
        "o.remove(97)",
        "o.clear()",
        "o.reverse()",
        "o[0]=9",
        "del o[0]",
        "o[1:2]=b'zz'",
        "o+=b'q'",
        "o*=2",
        "o.__init__(b'k')",
        "memoryview(o)[0]=7",
        "memoryview(o).cast('B')[1]=3",
    ),
    "bytes(o)",
)
kind(
    "memoryview(bytearray(b'abcd'))",
    (
        "o[0]=9",
        "o[1:3]=b'zz'",
        "o.release()",
        "o[::2][0]=5",
        "o.cast('B')[1]=3",
        "o.toreadonly()",
    ),
    "try_(lambda: bytes(o))",
)
kind(
    "array('i',[3,1,2])",
    (
        "o.append(5)",
        "o.extend([4,5])",
        "o.insert(0,4)",
        "o.pop()",
        "o.remove(1)",
        "o.reverse()",
        "o[0]=9",
        "del o[0]",
        "o[0:1]=array('i',[5,5])",
        "o+=array('i',[1])",
        "o*=2",
        "o.byteswap()",
        "o.frombytes(b'1234')",
        "o.fromlist([1,2])",
        "memoryview(o)[0]=5",
    ),
    "list(o)",
)
kind("iter([1,2,3,4])", ITERATOR_CHANGES, "list(o)")
kind("iter((1,2,3,4))", ITERATOR_CHANGES, "list(o)")
kind("iter(range(1,5))", ITERATOR_CHANGES, "list(o)")
kind("iter({1:1,2:2,3:3,4:4})", ITERATOR_CHANGES, "list(o)")
kind("iter({1,2,3,4})", ITERATOR_CHANGES, "list(o)")
kind("reversed([4,3,2,1])", ITERATOR_CHANGES, "list(o)")
kind("map(abs,[1,2,3,4])", ITERATOR_CHANGES, "list(o)")
kind("filter(None,[1,2,3,4])", ITERATOR_CHANGES, "list(o)")
kind("iter(b'\\x01\\x02\\x03\\x04')", ITERATOR_CHANGES, "list(o)")
kind("iter(deque([1,2,3,4]))", ITERATOR_CHANGES, "list(o)")
kind("itertools.chain([1,2],[3,4])", ITERATOR_CHANGES, "list(o)")
kind("itertools.islice([1,2,3,4],4)", ITERATOR_CHANGES, "list(o)")
kind("itertools.repeat(3,4)", ITERATOR_CHANGES, "list(o)")
kind("itertools.accumulate([1,1,1,1])", ITERATOR_CHANGES, "list(o)")
kind("itertools.takewhile(bool,[1,2,3,4])", ITERATOR_CHANGES, "list(o)")
kind("itertools.starmap(max,[(1,0),(2,0),(3,1)])", ITERATOR_CHANGES, "list(o)")
kind("itertools.compress([1,2,3,4],[1,1,1,1])", ITERATOR_CHANGES, "list(o)")
kind("(v for v in [1,2,3,4])", ITERATOR_CHANGES, "list(o)")
kind("iter(GI())", ITERATOR_CHANGES, "list(o)")
kind("iter(iter([1,2,3,4,9]).__next__,9)", ITERATOR_CHANGES, "list(o)")
kind("iter({1:1,2:2,3:3}.values())", ITERATOR_CHANGES, "list(o)")
kind("reversed({1:1,2:2,3:3})", ITERATOR_CHANGES, "list(o)")
kind("enumerate([1,2,3])", NEXT_CHANGES, "len(list(o))")
kind("zip([1,2,3],[4,5,6])", NEXT_CHANGES, "len(list(o))")
kind("iter({1:1,2:2,3:3}.items())", NEXT_CHANGES, "len(list(o))")
kind("itertools.product([1,2],[3,4])", NEXT_CHANGES, "len(list(o))")
kind("itertools.pairwise([1,2,3,4])", NEXT_CHANGES, "len(list(o))")
kind("itertools.permutations([1,2,3])", NEXT_CHANGES, "len(list(o))")
kind("itertools.combinations([1,2,3],2)", NEXT_CHANGES, "len(list(o))")
kind("itertools.zip_longest([1,2],[3])", NEXT_CHANGES, "len(list(o))")
kind("itertools.groupby([1,1,2])", NEXT_CHANGES, "len(list(o))")
kind(
    "itertools.count(3)",
    (
        "r=next(o)",
        "for v in o:\n    if v>6: break",
        "r=list(zip(o,[1,2]))",
    ),
    "next(o)",
)
kind(
    "itertools.cycle([1,2,3])",
    (
        "r=next(o)",
        "r=list(islice(o,4))",
    ),
    "[next(o) for _ in range(4)]",
)
kind(
    "itertools.tee([1,2,3])",
    (
        "r=next(o[0])",
        "r=list(o[1])",
    ),
    "(list(o[0]),list(o[1]))",
)
kind(
    "gen()",
    (
        "r=next(o)",
        "r=o.send(None)",
        "o.close()",
        "try:\n    o.throw(ValueError(1))\nexcept ValueError: r=3",
        "try:\n    o.throw(ValueError)\nexcept ValueError: pass",
        "r=list(o)",
        "for v in o: break",
        "def d():\n    yield from o\nr=list(d())",
    ),
    "(o.gi_frame is None, list(o))",
)
kind(
    "coro()",
    (
        "o.close()",
        "try:\n    o.send(None)\nexcept StopIteration as e: r=e.value",
    ),
    "(o.cr_frame is None, o.close())",
)
kind(
    "mkfun()",
    (
        "o.__defaults__=(5,)",
        "o.__kwdefaults__={'b':3}",
        "o.__code__=(lambda a=1:a*7).__code__",
        "o.__name__='q'",
        "o.__qualname__='q'",
        "o.__doc__='d'",
        "o.__module__='m'",
        "o.__annotations__={'a':int}",
        "o.attr=3",
        "o.__dict__['z']=4",
        "del o.__defaults__",
        "o.__annotations__['k']=int",
        "o.__kwdefaults__=None",
        "o.__dict__={'a':3}",
        "o.__defaults__=(5,)\nr=o()",
        "o.__type_params__=()",
        "functools.update_wrapper(o, len)",
        "o.__dict__.update(q=3)",
        "setattr(o,'w',1)",
    ),
    "(o(),o.__name__,o.__qualname__,o.__defaults__,o.__kwdefaults__,o.__doc__,o.__module__,o.__annotations__,o.__dict__)",
)
kind(
    "mkclosure()",
    (
        "o.__closure__[0].cell_contents=9",
        "del o.__closure__[0].cell_contents",
        "o.__closure__[0].cell_contents+=1\nr=o()",
    ),
    "try_(o)",
)
kind(
    "types.CellType(3)",
    (
        "o.cell_contents=4",
        "del o.cell_contents",
        "o.cell_contents+=1",
    ),
    "try_(lambda: o.cell_contents)",
)
kind(
    "P()",
    (
        "o.a=5",
        "o.q=5",
        "del o.a",
        "o.__dict__['z']=1",
        "o.__dict__.update(r=3)",
        "o.__dict__={'n':1}",
        "o.__class__=Q",
        "setattr(o,'k',3)",
        "delattr(o,'a')",
        "o.__dict__.clear()",
        "vars(o)['t']=3",
        "o.__dict__.pop('a')",
        "o.__init__()",
        "o.__setattr__('a',7)",
        "object.__setattr__(o,'a',8)",
        "o.prop=5",
        "o.lst.append(3)",
        "o.lst+=[3]",
        "o.a+=1",
        "o.__setstate__({'a': 9}) if hasattr(o,'__setstate__') else None",
        "del o.__dict__",
        "o.__dict__.setdefault('zz',[]).append(1)",
        "o.a, o.lst = o.lst, o.a",
        "o.__doc__='x'",
    ),
    "(type(o).__name__,list(vars(o).items()))",
)
kind(
    "SL()",
    (
        "o.a=5",
        "o.b=3",
        "del o.a",
        "o.__setattr__('a',4)",
        "SL.a.__set__(o,5)",
        "SL.a.__delete__(o)",
        "o.__class__=SL2",
    ),
    "(type(o).__name__,getattr(o,'a',None),getattr(o,'b',None))",
)
kind(
    "mkclass()",
    (
        "o.a=5",
        "o.new=3",
        "del o.a",
        "o.__name__='Z'",
        "o.__doc__='d'",
        "o.__qualname__='q'",
        "o.__module__='m'",
        "o.f=lambda s:9",
        "o.__bases__=(B2,)",
        "o.__init__=lambda s:None",
        "o.__eq__=lambda s,t:True",
        "o.__annotations__={'a':1}",
        "type.__setattr__(o,'a',6)",
        "setattr(o,'a',3)",
        "o.__abstractmethods__=frozenset()",
        "o.lst.append(4)",
        "r=o.__subclasses__()",
        "o.__slots__=()",
        "o.prop=property(lambda s:4)",
        "o.a+=1\nr=o.a",
        "o.mro()",
    ),
    "(o.__name__,o.__doc__,o.__qualname__,o.__module__,getattr(o,'a',None),getattr(o,'new',None),o.__bases__,try_(lambda:o().f()),o()==3,o.__annotations__,o.lst,len(o.__subclasses__()), getattr(o,'prop',0).__class__.__name__)",
)
kind(
    "Meta('K',(),{'a':1})",
    (
        "o.a=5",
        "o.b=4",
        "del o.a",
    ),
    "(Meta.log[:], getattr(o,'a',None),getattr(o,'b',None))",
    "Meta.log.clear()",
)
kind(
    "types.ModuleType('mm')",
    (
        "o.a=5",
        "o.__name__='z'",
        "o.__doc__='d'",
        "o.__dict__['q']=1",
        "setattr(o,'k',2)",
        "o.__dict__.update(b=3)",
        "o.__class__=MT",
        "del o.__doc__",
        "exec('zz=3',o.__dict__)",
    ),
    "(type(o).__name__,[k for k in vars(o).items()])",
)
kind(
    "property(len)",
    (
        "o.__doc__='d'",
        "o.__init__(abs)",
        "o.__isabstractmethod__",
        "o.fget",
    ),
    "(o.fget,o.__doc__)",
)
kind("PS(len)", ("o.x=3",), "(o.fget,vars(o))")
kind(
    "types.SimpleNamespace(a=1)",
    (
        "o.a=2",
        "o.b=3",
        "del o.a",
        "o.__dict__['c']=1",
        "o.__init__(z=3)",
        "o.__dict__.update(q=3)",
        "setattr(o,'k',2)",
        "o.__dict__.clear()",
    ),
    "list(vars(o).items())",
)
kind(
    "types.MethodType(mkfun(),3)",
    (
        "o.__func__.attr=4",
        "o.attr",
    ),
    "o.__func__.__dict__",
)
kind(
    "staticmethod(mkfun())",
    (
        "o.attr=4",
        "o.__name__='q'",
        "o.__func__.z=3",
        "o.__init__(len)",
        "o.__dict__['q']=3",
    ),
    "(vars(o),o.__func__.__name__)",
)
kind(
    "classmethod(mkfun())",
    (
        "o.attr=4",
        "o.__init__(len)",
    ),
    "(vars(o),o.__func__.__name__)",
)
kind(
    "functools.partial(max,1,key=abs)",
    (
        "o.attr=4",
        "o.__setstate__((min,(2,),{},{}))",
        "o.keywords['default']=3",
        "o.__dict__['q']=3",
        "o.keywords.clear()",
    ),
    "(o.func,o.args,o.keywords,vars(o))",
)
kind(
    "lru()",
    (
        "r=o(1)",
        "r=o(1)\nr=o(2)\nr=o(1)",
        "o.cache_clear()",
        "r=o(5)\nr=o(6)\nr=o(7)",
        "r=o.cache_info()",
        "o.attr=3",
        "r=o(9)\no.cache_clear()",
        "r=o(1)\nr=o.cache_info()",
        "r=o('k')",
        "r=[o(i) for i in (1,2,1,3,1)]",
    ),
    "(o.cache_info(), vars(o).get('attr'))",
)
kind(
    "lru_used()",
    (
        "r=o(1)",
        "r=o(2)",
        "r=o(3)",
        "r=o(1)\nr=o(4)",
        "r=o(2)\nr=o(1)",
        "o.cache_clear()",
        "r=o.__wrapped__(3)",
    ),
    "(o.cache_info(),[probe(o,v) for v in (1,2,3,4)])",
)
kind(
    "lruU()",
    (
        "r=o(1)",
        "r=o(1)\nr=o(2)\nr=o(1)",
        "o.cache_clear()\nr=o(1)",
        "r=o(3)",
    ),
    "o.cache_info()",
)
kind(
    "functools.cached_property(mkfun())",
    (
        "o.attrname='q'",
        "o.z=3",
    ),
    "vars(o).get('z'),o.attrname",
)
kind(
    "CP()",
    (
        "r=o.v",
        "r=o.v\ndel o.v",
        "o.v=3",
        "r=o.v+o.v",
    ),
    "vars(o)",
)
kind(
    "cv()",
    (
        "o.set(5)",
        "t=o.set(5)\no.reset(t)",
        "r=o.get()",
        "o.set(5)\nr=o.get()",
    ),
    "o.get()",
)
kind(
    "contextvars.Context()",
    (
        "o.run(cvv.set,3)",
        "r=o.run(cvv.get)",
    ),
    "o.get(cvv,None)",
)
kind(
    "random.Random(3)",
    (
        "r=o.random()",
        "o.seed(4)",
        "r=o.randint(1,9)",
        "r=o.gauss(0,1)",
        "l=[1,2,3]\no.shuffle(l)\nr=l",
        "r=o.choice([1,2])",
        "o.setstate(random.Random(9).getstate())",
        "r=o.getrandbits(4)",
        "r=o.uniform(0,1)",
    ),
    "(hash(o.getstate()),o.random())",
)
kind(
    "io.StringIO('abc')",
    (
        "o.write('z')",
        "r=o.read(1)",
        "o.seek(2)",
        "o.truncate(1)",
        "o.close()",
        "r=o.readline()",
        "r=list(o)",
        "r=o.getvalue()",
        "print('hi',file=o)",
        "o.writelines(['a'])",
        "r=o.tell()",
        "r=next(o)",
        "o.attr=3",
        "o.write('z')\nr=o.getvalue()",
        "o.__init__('n')",
        "o.detach",
    ),
    "(o.closed, o.closed or (o.getvalue(),o.tell()))",
)
kind(
    "io.BytesIO(b'abc')",
    (
        "o.write(b'z')",
        "r=o.read(1)",
        "o.seek(2)",
        "o.truncate(1)",
        "o.close()",
        "o.getbuffer()[0]=5",
        "r=o.readinto(bytearray(2))",
        "r=list(o)",
    ),
    "(o.closed, o.closed or (o.getvalue(),o.tell()))",
)
kind(
    "decimal.getcontext().copy()",
    (
        "o.prec=5",
        "o.rounding='ROUND_UP'",
        "o.clear_flags()",
        "r=o.divide(decimal.Decimal(1),3)",
        "o.flags[decimal.Inexact]=True",
        "o.traps[decimal.Inexact]=True",
        "o.Emax=9",
        "o.clamp=1",
        "o.capitals=0",
    ),
    "repr(o)",
)
kind(
    "decimal.Decimal(7)",
    (
        "r=o/3",
        "decimal.getcontext().prec=6\nr=o/3",
        "with decimal.localcontext() as c:\n    c.prec=3\n    r=o/3",
    ),
    "(o/3,repr(decimal.getcontext()))",
    "decimal.setcontext(decimal.Context())",
)
kind(
    "fractions.Fraction(1,3)",
    (
        "r=o+1",
        "o._numerator=5",
        "r=o.numerator",
    ),
    "o",
)
kind(
    "datetime.date(2020,1,1)",
    (
        "r=o.replace(day=3)",
        "r=o+datetime.timedelta(1)",
    ),
    "o",
)
kind(
    "threading.Lock()",
    (
        "o.acquire()\no.release()",
        "r=o.acquire(False)",
        "with o: pass",
        "r=o.locked()",
    ),
    "o.locked()",
)
kind(
    "threading.RLock()",
    (
        "with o: pass",
        "o.acquire()\no.acquire()\no.release()",
    ),
    "repr(o).split(' at ')[0]",
)
kind(
    "threading.Event()",
    (
        "o.set()",
        "o.set()\no.clear()",
        "r=o.is_set()",
        "o.set()\nr=o.is_set()",
        "o.set()\nr=o.wait(1)",
    ),
    "o.is_set()",
)
kind(
    "threading.Semaphore(2)",
    (
        "o.release()",
        "with o: pass",
    ),
    "o._value",
)
kind(
    "threading.Condition()",
    (
        "with o: o.notify()",
        "r=o.acquire()\no.release()",
    ),
    "0",
)
kind(
    "threading.Barrier(1)",
    (
        "r=o.wait()",
        "o.reset()",
        "o.abort()",
    ),
    "(o.broken,o.n_waiting)",
)
kind(
    "threading.local()",
    (
        "o.a=3",
        "o.__dict__['z']=3",
        "o.a=3\nr=o.a\ndel o.a",
    ),
    "vars(o)",
)
kind(
    "queue.Queue()",
    (
        "o.put(3)",
        "o.put(3)\nr=o.get()",
        "try:\n    o.get_nowait()\nexcept queue.Empty: r=1",
        "r=o.qsize()",
        "o.put(1)\no.task_done()",
    ),
    "(o.qsize(),list(o.queue),o.unfinished_tasks)",
)
kind(
    "queue.SimpleQueue()",
    (
        "o.put(3)",
        "o.put(3)\nr=o.get()",
        "r=o.empty()",
    ),
    "o.qsize()",
)
kind(
    "heap()",
    (
        "heapq.heappush(o,0)",
        "r=heapq.heappop(o)",
        "heapq.heapify(o)",
        "r=heapq.heapreplace(o,9)",
        "r=heapq.heappushpop(o,0)",
        "r=heapq.nsmallest(2,o)",
        "bisect.insort(o,2)",
    ),
    "o",
)
kind(
    "weakref.WeakValueDictionary(k=KEEP)",
    (
        "o['z']=KEEP",
        "del o['k']",
        "o.clear()",
        "r=o.pop('k')",
        "r=o.setdefault('n',KEEP)",
    ),
    "sorted(o)",
)
kind(
    "weakref.WeakKeyDictionary({KEEP:1})",
    (
        "o[KEEP]=3",
        "o.clear()",
        "r=o[KEEP]",
    ),
    "list(o.values())",
)
kind(
    "weakref.WeakSet([KEEP])",
    (
        "o.add(KEEP2)",
        "o.discard(KEEP)",
        "o.clear()",
        "r=len(o)",
    ),
    "len(o)",
)
kind(
    "weakref.ref(KEEP)",
    (
        "r=o() is KEEP",
        "r=o().__class__",
        "o().zz=3",
        "r=weakref.getweakrefcount(KEEP)",
    ),
    "vars(KEEP)",
    "vars(KEEP).clear()",
)
kind("WR(KEEP)", ("o.z=3",), "vars(o)")
kind(
    "DC(1,[2])",
    (
        "o.a=3",
        "o.b.append(3)",
        "o=dataclasses.replace(o,a=4)",
        "o.__dict__['a']=8",
        "o.__init__(5,[6])",
    ),
    "o",
)
kind(
    "FDC(1)",
    (
        "try:\n    o.a=3\nexcept dataclasses.FrozenInstanceError: r=1",
        "object.__setattr__(o,'a',5)",
    ),
    "o",
)
kind(
    "mkenum()",
    (
        "o.A.z=3",
        "o.A._value_=7",
        "o.attr=3",
        "try:\n    o.A=3\nexcept AttributeError: r=1",
    ),
    "(o.A.__dict__.get('z'),o.A.value,getattr(o,'attr',None))",
)
kind(
    "NT(1,2)",
    (
        "r=o._replace(a=3)",
        "try:\n    o.a=3\nexcept AttributeError: r=1",
        "NT._fields",
    ),
    "o",
)
kind(
    "UserDict(a=1)",
    (
        "o['b']=2",
        "del o['a']",
        "o.data['z']=1",
        "o.update(q=3)",
        "o|={'k':1}",
    ),
    "list(o.data.items())",
)
kind(
    "UserList([1,2])",
    (
        "o.append(3)",
        "o+=[3]",
        "o.sort()",
        "o[0]=4",
        "o.data.append(4)",
    ),
    "o.data",
)
kind(
    "types.MappingProxyType(DBACK)",
    (
        "DBACK['n']=1\nr=o['n']",
        "r=list(o)\nDBACK['q']=1\nr=list(o)",
        "r=len(o)",
        "DBACK.clear()\nr=len(o)",
    ),
    "dict(o)",
    "DBACK.clear(); DBACK['a']=1",
)
kind(
    "dict(a=1).keys()",
    (
        "r=list(o)",
        "r=len(o)",
        "r='a' in o",
        "r=o.mapping['a']",
        "r=o|{'b'}",
    ),
    "list(o)",
)
kind(
    "DBACK.values()",
    (
        "DBACK['z']=3\nr=list(o)",
        "r=list(o)\nDBACK['y']=3\nr=len(o)",
        "DBACK['a']=7\nr=list(o)",
    ),
    "list(o)",
    "DBACK.clear(); DBACK['a']=1",
)
kind(
    "ctypes.c_int(3)",
    (
        "o.value=5",
        "r=o.value",
        "ctypes.pointer(o)[0]=4",
        "ctypes.pointer(o).contents.value=7",
    ),
    "o.value",
)
kind(
    "(ctypes.c_int*3)(1,2,3)",
    (
        "o[0]=5",
        "o[0:2]=[1,1]",
    ),
    "list(o)",
)
kind("CSt()", ("o.a=5",), "o.a")
kind(
    "re.compile('a(b)').match('ab')",
    (
        "r=o.group(1)",
        "r=o.span()",
    ),
    "o.span()",
)
kind(
    "re.finditer('a','aaa')",
    (
        "r=next(o).span()",
        "for v in o: break",
        "r=len(list(o))",
    ),
    "len(list(o))",
)
kind(
    "re.compile('a').scanner('aaa')",
    (
        "r=o.match().span()",
        "r=o.search().span()",
    ),
    "o.match().span()",
)
kind(
    "struct.Struct('i')",
    (
        "r=o.pack(3)",
        "ba=bytearray(4)\no.pack_into(ba,0,3)\nr=bytes(ba)",
        "o.__init__('h')",
    ),
    "o.format",
)
kind("bytearray(8)", ("struct.pack_into('i',o,0,3)",), "bytes(o)")
kind("struct.iter_unpack('b',b'abc')", ("r=next(o)",), "list(o)")
kind(
    "csvw()",
    ("o.writerow([1,2])",),
    "CSVB.getvalue()",
    "CSVB.seek(0); CSVB.truncate(0)",
)
kind("csv.reader(['a,b','c,d'])", ("r=next(o)",), "(o.line_num,list(o))")
kind(
    "hashlib.sha1()",
    (
        "o.update(b'x')",
        "r=o.hexdigest()",
    ),
    "o.hexdigest()",
)
kind(
    "zlib.compressobj()",
    (
        "r=o.compress(b'x'*9)",
        "r=o.flush()",
    ),
    "len(try_(o.flush) or '')",
)
kind(
    "json.JSONEncoder()",
    (
        "o.indent=3",
        "r=o.encode([1])",
    ),
    "o.indent",
)
kind("string.Formatter()", ("r=o.format('{}',3)",), "0")
kind(
    "logging.Logger('x')",
    (
        "o.setLevel(10)",
        "o.disabled=True",
        "o.addHandler(HND)",
        "o.propagate=False",
        "o.debug('x')",
    ),
    "(o.level,o.disabled,len(o.handlers),o.propagate)",
)
kind(
    "tb()",
    (
        "o.tb_next=None",
        "o.tb_lineno",
    ),
    "(o.tb_next is None)",
)
kind(
    "frm()",
    (
        "o.f_lineno",
        "o.f_trace=len",
        "o.f_trace_lines=False",
        "o.f_trace_opcodes=True",
        "o.clear()",
        "o.f_locals['q']=3",
    ),
    "(o.f_trace,o.f_trace_lines,o.f_trace_opcodes, try_(lambda: sorted(o.f_locals)))",
)
kind(
    "np.zeros(3)",
    (
        "o[0]=5",
        "o+=1",
        "o.fill(3)",
        "o.shape=(3,1)",
        "o.resize((2,))",
        "o.sort()",
        "o.flags.writeable=False",
        "o.flat[0]=4",
        "o.view()[0]=3",
        "o.setflags(write=False)",
        "np.add(o,1,out=o)",
        "o.dtype='int64'",
        "np.put(o,[0],[3])",
        "o.T[1]=4",
        "o.itemset(0,4) if hasattr(o,'itemset') else None",
        "torch.from_numpy(o)[0]=3",
        "torch.from_numpy(o).add_(1)",
        "o[0]+=1\nr=float(o[0])",
        "np.copyto(o,1)",
        "o.put([0],[4])",
        "o.partition(1)",
        "memoryview(o)[0]=4.0",
        "o.reshape(3,1)[0]=9",
        "np.random.shuffle(o)",
        "o.byteswap(True)",
        "o.strides=(8,)",
        "o.real=4",
        "o.flat=3",
    ),
    "(o.tolist(),o.shape,o.flags.writeable,str(o.dtype))",
    "np.random.seed(0)",
)
kind(
    "np.random.RandomState(3)",
    (
        "r=o.rand()",
        "o.seed(1)",
        "o.shuffle([1,2])",
    ),
    "o.rand()",
)
kind("np.random.default_rng(3)", ("r=o.random()",), "o.random()")
kind("np.nditer(np.zeros(3))", ("r=next(o)",), "o.iterindex")
kind("iter(np.arange(3))", ("r=next(o)",), "[int(v) for v in o]")
kind(
    "slice(1,2)",
    (
        "r=o.start",
        "r=o.indices(5)",
    ),
    "o",
)
kind(
    "abcm()",
    (
        "o.register(int)",
        "r=issubclass(int,o)",
        "o.register(int)\nr=issubclass(int,o)",
    ),
    "issubclass(int,o)",
)
kind(
    "sdisp()",
    (
        "o.register(int,lambda v:9)\nr=o(3)",
        "r=o(3)",
        "o.register(int)(lambda v:8)",
    ),
    "o(3)",
)
kind(
    "xml.Element('a')",
    (
        "o.set('k','v')",
        "o.append(xml.Element('b'))",
        "o.text='t'",
        "o.attrib['q']='z'",
        "o.tag='n'",
    ),
    "xml.tostring(o)",
)
kind(
    "CB()",
    (
        "with o: pass",
        "try:\n    with o: raise ValueError(1)\nexcept ValueError: pass",
    ),
    "o.log",
)
kind(
    "contextlib.ExitStack()",
    (
        "o.callback(LOGL.append,3)",
        "o.close()",
        "o.enter_context(CB())",
        "with o: o.callback(LOGL.append,1)",
    ),
    "(LOGL[:],len(o._exit_callbacks))",
    "LOGL.clear()",
)
kind(
    "torch.Generator().manual_seed(3)",
    (
        "o.manual_seed(5)",
        "r=o.seed() and 1",
        "r=torch.rand(2,generator=o)",
        "o.set_state(torch.Generator().manual_seed(9).get_state())",
        "r=o.initial_seed()",
    ),
    "torch.rand(1,generator=o).item() if o.initial_seed()<100 else 0",
)
kind(
    "nn.Linear(2,2)",
    (
        "o.train(False)",
        "o.eval()",
        "o.extra=3",
        "o.weight.requires_grad=False",
        "o.register_buffer('b',torch.ones(1))",
        "o.b2=nn.Parameter(torch.ones(1))",
        "o.sub=nn.ReLU()",
        "del o.bias",
        "o.bias=None",
        "o.requires_grad_(False)",
        "o.zero_grad()",
        "o.register_forward_hook(lambda *a:None)",
        "o.double()",
        "o._buffers['z']=torch.ones(1)",
        "o.load_state_dict({'weight':torch.ones(2,2),'bias':torch.ones(2)})",
        "o.weight.data=torch.ones(2,2)",
        "o.weight.data.fill_(2)",
        "o.weight.grad=torch.ones(2,2)",
        "o.add_module('q',nn.ReLU())",
        "o.register_parameter('pp',None)",
        "o.__class__=LinSub",
    ),
    "(type(o).__name__,o.training,[(k,v.sum().item()*0+v.numel(),v.requires_grad,str(v.dtype),v.grad is None) for k,v in o.named_parameters()],[k for k,_ in o.named_buffers()],[k for k,_ in o.named_modules()],vars(o).get('extra'),len(o._forward_hooks), list(o._parameters), list(o.state_dict()))",
)
kind(
    "torch.ones(2,2)",
    (
        "o.add_(1)",
        "o[0]=5",
        "o.data=torch.zeros(3)",
        "o.foo=3",
        "o.requires_grad_(True)",
        "o.requires_grad=True",
        "o.grad=torch.ones(2,2)",
        "o.resize_(3,3).zero_()",
        "o.set_(torch.zeros(3))",
        "o.t_()",
        "o.zero_()",
        "o.detach_()",
        "o.unsqueeze_(0)",
        "o.transpose_(0,1)",
        "o.data.fill_(3)",
        "o.detach().fill_(3)",
        "o.numpy()[0]=9",
        "o.__class__=torch.nn.Parameter",
        "o.names=None",
        "o.copy_(torch.zeros(2))",
        "o.T[0]=9",
        "o.view(-1)[0]=4",
        "torch.neg(o,out=o)",
        "o.untyped_storage().fill_(0)",
        "o.swap=1",
        "o.squeeze_()",
        "o.as_strided_((1,),(1,))",
        "o.index_fill_(0,torch.tensor([0]),7.)",
        "o.apply_(lambda v: v+1)",
        "o.map_(o,lambda a,b:a+b)",
        "o.retain_grad() if o.requires_grad else None",
        "o.__dict__['q']=3",
        "o.__setstate__((torch.zeros(1).untyped_storage(),0,(1,),(1,)))",
        "o.index_put_((torch.tensor([0]),),torch.tensor(3.))",
        "o.real.zero_()",
        "o.swapaxes_(0,1)",
        "o.rename_(None)",
        "o.sum().backward() if o.requires_grad else None",
    ),
    "(o.tolist(),o.shape,o.requires_grad,str(o.dtype),vars(o),o.grad is None, o.is_leaf, o._version>0)",
)
