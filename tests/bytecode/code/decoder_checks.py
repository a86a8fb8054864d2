"""Checks of the decoder (`fj.decode`), called by test_decoder.cpp."""

# ruff: noqa: E402, F821  (`fj` is the module under test)
import dis
import opcode
import os
import sys

sys.path.insert(0, os.path.dirname(sys._getframe().f_code.co_filename))
from library_code import library_code

sys.path.pop(0)
VERSION = sys.version_info[:2]
FOLDED = {"CACHE", "EXTENDED_ARG", "KW_NAMES", "PRECALL"}


def every_opcode_has_a_row():
    missing = [n for n, c in opcode.opmap.items() if c < 256 and fj.row_of(c) != n]
    return missing or None


def expected_ops(code):
    """(offset, opname, argval, jump target) without the folded ones."""
    for ins in dis.get_instructions(code):
        if ins.opname in FOLDED:
            continue
        is_jump = ins.opcode in dis.hasjrel or ins.opcode in dis.hasjabs
        yield ins.offset, ins.opname, ins.argval, (ins.argval if is_jump else None)


def forces_bool(code, offset):
    return VERSION >= (3, 13) and bool(code.co_code[offset + 1] & 16)


def check_code(code):
    ops = fj.decode(code)
    by_offset = {}
    for index, op in enumerate(ops):
        by_offset.setdefault(op[5], []).append((index, op))
    want = list(expected_ops(code))
    if sorted(by_offset) != [w[0] for w in want]:
        return "offsets differ"
    end = len(code.co_code)
    starts = [w[0] for w in want] + [end]
    for offset, name, value, jump in want:
        index, op = by_offset[offset][-1]
        kind, arg, arg2, obj, target = op[:5]
        if jump is not None:
            if name == "FOR_ITER":
                skip = {(3, 11): 0, (3, 12): 1, (3, 13): 2}[VERSION]
                at = starts.index(next(s for s in starts if s >= jump))
                jump = starts[at + skip]
            # dis gives the start, with EXTENDED_ARG and folded prefixes.
            behind = next(s for s in starts if s >= jump)
            if target is None or ops[target][5] != behind:
                return f"{name}@{offset}: target {target}, not {behind}"
            if ops[target - 1][5] == behind and len(by_offset[behind]) == 1:
                return f"{name}@{offset}: not the first of its target"
        elif name in ("LOAD_CONST", "RETURN_CONST"):
            if obj is not value:
                return f"{name}@{offset}: {obj!r} is not {value!r}"
        elif name in (
            "LOAD_NAME",
            "STORE_NAME",
            "LOAD_ATTR",
            "LOAD_METHOD",
            "STORE_ATTR",
            "LOAD_GLOBAL",
            "IMPORT_NAME",
            "IMPORT_FROM",
            "LOAD_SUPER_ATTR",
            "DELETE_ATTR",
        ):
            if obj != value:
                return f"{name}@{offset}: {obj!r} != {value!r}"
        elif name == "COMPARE_OP":
            got = ["<", "<=", "==", "!=", ">", ">="][arg]
            if got != value or bool(arg2) != forces_bool(code, offset):
                return f"{name}@{offset}: {got} {value}"
        elif name == "BINARY_OP":
            text = dict((i, s) for i, (n, s) in enumerate(opcode._nb_ops))
            raw = arg + (13 if arg2 else 0)
            if text[raw].endswith("=") != bool(arg2):
                return f"{name}@{offset}: in-place flag"
    for entry in dis._parse_exception_table(code):
        for op in ops:
            if entry.start <= op[5] < entry.end:
                target, depth, lasti = op[6]
                if (fj.index_at(code, entry.target), entry.depth, entry.lasti) != (
                    target,
                    depth,
                    bool(lasti),
                ):
                    return f"handler of @{op[5]}"
    return None


def agrees_with_dis():
    count = 0
    for code in library_code():
        why = check_code(code)
        if why:
            return f"{code.co_filename}:{code.co_firstlineno} {why}"
        count += 1
    return None if count > 1000 else f"only {count} code objects"


def _sample(f, x, *args, **kwargs):
    f(x, key=1)
    f(*args, **kwargs)
    x.method(1)
    for i in x:
        x += i
    y = x
    return f"{y!r:>5}"


def version_differences():
    names = [op[0].replace("CallKw", "Call") for op in fj.decode(_sample.__code__)]
    # The same sequence on every version, stack shuffling of calls aside.
    want = [
        "Call",
        "CallEx",
        "LoadMethod",
        "Call",
        "GetIter",
        "ForIter",
        "Binary",
        "Jump",
    ]
    got = [n for n in names if n in want]
    if got != want:
        return got
    ops = fj.decode(_sample.__code__)
    calls = [op for op in ops if op[0] in ("Call", "CallKw")]
    if calls[0][0] == "Call" and calls[0][3] != ("key",):
        return calls
    loop = next(op for op in ops if op[0] == "ForIter")
    if ops[loop[4]][0] in ("EndFor", "Pop"):
        return "the exit of a loop begins with END_FOR"
    return None


def cache_dies_with_code():
    import gc
    import weakref

    space = {}
    exec("def f(x):\n  return [i for i in x]", space)
    code = space["f"].__code__
    fj.decode(code)
    fj.decode(code)
    before = sys.getrefcount(code)
    fj.decode(code)
    if sys.getrefcount(code) != before:
        return "decoding takes a reference"
    ref = weakref.ref(code)
    del code, space
    gc.collect()
    return None if ref() is None else "kept alive"


def instrumented_code():
    """What CPython makes of code as it runs - specialised instructions, those
    that report to sys.monitoring, tracing - does not show in what is decoded."""

    def g(a, *rest, k=0):
        return a + k

    def f(n, values):
        total = 0
        for v in values:
            if v is None:
                continue
            total += g(v, k=1)
            total = total if v else g(*values, **{"k": 2})
        while n > 0:
            n -= 1
        return f"{total}", [x for x in values if x], n

    def shape(code):
        return [op[:3] + op[4:] for op in fj.decode(code)]

    plain = [shape(c) for c in (f.__code__, g.__code__)]
    copies = [f.__code__.replace(), g.__code__.replace()]
    f.__code__, g.__code__ = copies
    for _ in range(200):
        f(3, [1, 2, None, 0])
    # Decoded for the first time while they are specialised and instrumented.
    seen = []
    if VERSION >= (3, 12):
        monitoring = sys.monitoring
        monitoring.use_tool_id(3, "fj")
        names = "LINE INSTRUCTION CALL JUMP BRANCH PY_START PY_RETURN".split()
        events = [getattr(monitoring.events, name) for name in names]
        for event in events:
            monitoring.register_callback(3, event, lambda *a: seen.append(1))
        for code in copies:
            monitoring.set_local_events(3, code, sum(events))
    else:
        sys.settrace(lambda *a: seen.append(1))
    try:
        f(3, [1, 2, None, 0])
    finally:
        if VERSION < (3, 12):
            sys.settrace(None)
    raw = [c._co_code_adaptive != c.co_code for c in copies]
    got = [shape(c) for c in copies]
    if VERSION >= (3, 12):
        for code in copies:
            monitoring.set_local_events(3, code, 0)
        monitoring.free_tool_id(3)
    if not seen or not all(raw):
        return f"nothing was instrumented: {len(seen)} {raw}"
    return None if got == plain else "decoded differently"


def malformed_code():
    def f():
        return 1

    code = f.__code__
    resume = code.co_code[:2]
    bad = [
        bytes([opcode.opmap["LOAD_CONST"], 99]) + code.co_code,
        bytes([opcode.opmap["JUMP_FORWARD"], 200]) + code.co_code,
        bytes([opcode.opmap["EXTENDED_ARG"], 1]),
        bytes([255, 0]) + code.co_code,
        resume + bytes([opcode.opmap["LOAD_GLOBAL"], 0]),
    ]
    for raw in bad:
        try:
            broken = code.replace(co_code=raw)
        except ValueError:
            continue
        try:
            fj.decode(broken)
        except RuntimeError as error:
            if "FJ401" not in str(error):
                return str(error)
        else:
            return f"decoded {raw!r}"
    return None
