"""Rows that call special methods by their names, where other rows use operators,
and what changes few programs make. `test_every_method_has_a_row` asks for them."""

from effect_changes import EXCEPTION, kind


def sequence(item: str, more: str) -> tuple[str, ...]:
    return (
        f"r=o.__setitem__(0,{item})",
        "r=o.__delitem__(1)",
        f"r=o.__iadd__({more}) is o",
        "r=o.__imul__(2) is o",
    )


kind("deque([3,1,2,4])", sequence("9", "[7]"), "(list(o),o.maxlen)")
kind("deque([3,1,2,4],4)", sequence("9", "[7]"), "(list(o),o.maxlen)")
kind("bytearray(b'abcd')", sequence("9", "b'q'"), "bytes(o)")
kind("array('i',[3,1,2])", sequence("9", "array('i',[7])"), "list(o)")
kind("array('u','abc')", ("o.fromunicode('z')",), "list(o)")
kind("array('i',[3,1,2])", ("o.fromfile(io.BytesIO(b'1234'),1)",), "list(o)")
kind("memoryview(bytearray(b'abcd'))", ("o.__setitem__(0,9)",), "bytes(o)")
kind(
    "memoryview(bytearray(b'abcd'))",
    ("with o: r=o[0]", "o.__enter__()", "o.__exit__(None,None,None)"),
    "try_(lambda: bytes(o))",
)
for setup in ("{1,2,3,8,16,32}", "S({1,2,3,8,16,32})"):
    kind(
        setup,
        (
            "r=o.__iand__({1,2,70}) is o",
            "r=o.__isub__({1,70}) is o",
            "r=o.__ixor__({1,70}) is o",
        ),
        "list(o)",
    )
kind(
    "Counter('aabbc')",
    (
        "r=o.__setitem__('z',1)",
        "o.__delitem__('a')",
        "o.__delitem__('nope')",
        "r=o.__iadd__(Counter('az')) is o",
        "r=o.__iand__(Counter('az')) is o",
        "r=o.__ior__(Counter('az')) is o",
        "r=o.__isub__(Counter('az')) is o",
        "o['a']=-1\no._keep_positive()",
    ),
    "list(o.items())",
)
for setup in (
    "iter([1,2,3,4])",
    "iter((1,2,3,4))",
    "iter(range(1,5))",
    "iter(b'1234')",
    "reversed([4,3,2,1])",
):
    kind(
        setup,
        ("o.__setstate__(2)", "next(o)\no.__setstate__(0)", "o.__setstate__(9)"),
        "list(o)",
    )
kind("itertools.chain([1],[2,3])", ("o.__setstate__((iter([(7,8)]),))",), "list(o)")
kind("islice([1,2,3,4],3)", ("o.__setstate__(1)",), "list(o)")
kind("itertools.accumulate([1,2,3])", ("o.__setstate__(5)",), "list(o)")
kind("itertools.takewhile(abs,[1,2,3])", ("o.__setstate__(1)",), "list(o)")
kind("zip([1,2],[3,4])", ("o.__next__()", "o.__setstate__(1)"), "list(o)")
kind("enumerate([1,2])", ("o.__next__()",), "list(o)")
kind(
    "io.StringIO('abc')",
    ("o.__setstate__(('xy','\\n',1,None))", "r=o.__next__()", "r=o.readlines()"),
    "(o.closed, o.closed or (o.getvalue(),o.tell()))",
)
kind(
    "io.StringIO('abc')",
    (
        "with o: o.write('z')",
        "o.__enter__()",
        "o.__exit__(None,None,None)",
        "o.flush()",
    ),
    "o.closed",
)
kind(
    "io.BytesIO(b'abc')",
    (
        "o.__setstate__((b'xy',1,None))",
        "r=o.__next__()",
        "r=o.readlines()",
        "r=o.readline()",
        "r=o.read1(1)",
        "r=o.readinto1(bytearray(1))",
        "o.writelines([b'z'])",
        "o.flush()",
    ),
    "(o.closed, o.closed or (o.getvalue(),o.tell()))",
)
kind(
    "io.BytesIO(b'abc')",
    ("with o: o.write(b'z')", "o.__enter__()", "o.__exit__(None,None,None)"),
    "o.closed",
)
kind(
    "threading.Lock()",
    (
        "r=o.__enter__()\no.release()",
        "o.acquire()\no.__exit__(None,None,None)",
        "r=o.acquire_lock(False)",
        "o.acquire()\no.release_lock()",
        "o.acquire()\no._at_fork_reinit()",
    ),
    "o.locked()",
)
# Attributes that all exceptions have, of those whose content is more.
for setup in (
    "ExceptionGroup('g',[ValueError(1),KeyError(2)])",
    "StopIteration(4)",
    "OSError(1,'x','f')",
    "SystemExit(3)",
):
    kind(
        setup,
        (
            "o.__cause__ = KeyError()",
            "o.__context__ = KeyError()",
            "o.__suppress_context__ = True",
            "o.__traceback__ = None",
            "o.with_traceback(None)",
            "o.args = (5,)",
            "o.add_note('n')",
            "o.__setstate__({'z': 3})",
        ),
        EXCEPTION,
    )
kind(
    "BlockingIOError(1,'x')",
    (
        "o.characters_written = 3",
        "o.filename2 = 'b'",
        "o.filename2 = 'b'\ndel o.filename2",
    ),
    EXCEPTION + ",getattr(o,'characters_written',None),o.filename2",
)
kind("itertools.product([1,2],[3])", ("o.__setstate__((1,0))",), "list(o)")
kind(
    "itertools.permutations([1,2,3],2)",
    ("next(o)\no.__setstate__(([2,1,0],[2,1]))",),
    "list(o)",
)
kind("itertools.combinations([1,2,3],2)", ("o.__setstate__((1,2))",), "list(o)")
kind("itertools.zip_longest([1,2],[3])", ("o.__setstate__(7)",), "list(o)")
kind("itertools.groupby([1,1,2])", ("o.__setstate__((1,2,3))",), "[k for k,_ in o]")
kind(
    "itertools.cycle([1,2])",
    ("next(o)\no.__setstate__(([5,6],1))",),
    "list(islice(o,5))",
)
kind("types.MappingProxyType({'a':1})", ("o.__ior__({'b':2})",), "dict(o)")
kind("memoryview(bytearray(b'abcd'))", ("o.__delitem__(0)",), "bytes(o)")
