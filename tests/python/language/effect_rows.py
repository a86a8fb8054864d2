"""Rows about what the language has: exceptions, containers, iterators, classes."""

from effect_changes import (
    DEQUE_CHANGES,
    DICT_CHANGES,
    EXCEPTION,
    ITERATOR_CHANGES,
    LIST_CHANGES,
    MAPPING_CHANGES,
    NEXT_CHANGES,
    SET_CHANGES,
    kind,
)

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
