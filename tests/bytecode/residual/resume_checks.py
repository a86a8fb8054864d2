"""Runs functions in pieces and whole, and compares; for test_resume.cpp.

A run in pieces: prefix code (prefix_code.h) stops a function before an
instruction and gives its frame; residual code takes the frame over, runs the
instruction and returns a token; the resume function of the token goes on, to
the end or up to the next break.
"""

# ruff: noqa: E402, F821  (`fj` is the module under test)
import gc
import os
import random
import sys
import threading
import types
import weakref

HERE = os.path.dirname(sys._getframe().f_code.co_filename)
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import resume_corpus as corpus
import resume_world as world

sys.path.pop(0)
sys.setrecursionlimit(3000)
GLOBALS = vars(corpus)
PREFIX, UNSET = object(), object()
VALUE, NULL, MAYBE, LASTI = range(4)  # StackKind
STACK_VALUE, STACK_NULL, STACK_LASTI, STACK_SAVED = range(4)  # StackItemKind
FROM_SLOT, FROM_STACK, FROM_NOTHING = range(3)  # ResidualArg::From


def points(code):
    reached = fj.analyze(code) or ()
    return [o for o, name, why in fj.points(code) if why is None and o in reached]


def loops(code):
    reached = points(code)
    return [o for o in fj.loops(code) if o in reached]


def is_token(result, mark):
    return type(result) is tuple and result and result[0] is mark


class Stopped:
    """A frame before the instruction at `offset` of `code`."""

    def __init__(self, code, offset, kinds, units, values):
        count = (
            len(code.co_varnames)
            + len(code.co_freevars)
            + len(set(code.co_cellvars) - set(code.co_varnames))
        )
        self.code, self.offset = code, offset
        self.slots, self.items = list(values[1 : count + 1]), values[count + 1 :]
        self.stack = []
        known = fj.stack_kinds(code, offset)
        assert len(known) == len(kinds)
        for kind, says, item in zip(kinds, known, self.items):
            if item is UNSET:
                assert kind in (NULL, MAYBE), kind
                self.stack.append((STACK_NULL, 0))
            elif says == LASTI:
                # Raised in the prefix code, or a constant of the prologue.
                self.stack.append((STACK_LASTI, units[item] if kind == LASTI else item))
            else:
                self.stack.append((STACK_VALUE, 0))

    def residual(self, loop=False):
        bound = [v is not UNSET for v in self.slots]
        code, sources, resumes = fj.residual(
            self.code, self.offset, bound, self.stack, loop
        )
        args = [
            self.slots[i]
            if f == FROM_SLOT
            else self.items[i]
            if f == FROM_STACK
            else None
            for f, i in sources
        ]
        return code, args, resumes


def stop(function, args, offset):
    """Runs up to `offset`: a Stopped, or the result when it is not reached."""
    code = function.__code__
    prefix, kinds, units = fj.prefix(code, offset, PREFIX, UNSET)
    if function.__closure__ or not code.co_freevars:
        stopper = types.FunctionType(
            prefix,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        stopper.__kwdefaults__ = function.__kwdefaults__
    else:
        stopper = fj.function(prefix, function.__globals__)
    result = stopper(*args)
    if is_token(result, PREFIX):
        return Stopped(code, offset, kinds, units, result)
    return result


def run_in_pieces(function, args, offset, choose, loop=False):
    """choose(code) gives the offset of the next break, or None; with `loop` it is
    that of a loop to be run whole."""
    while True:
        stopped = stop(function, args, offset)
        if not isinstance(stopped, Stopped):
            return stopped
        code, args, resumes = stopped.residual(loop)
        assert fj.kind(code) == "residual"
        result = fj.function(code, GLOBALS)(*args)
        if not is_token(result, fj.marker):
            return result
        function, args = result[1], result[2:]
        assert function.__code__ in resumes
        assert fj.kind(function.__code__) == "resume"
        assert len(args) == function.__code__.co_argcount
        offset = choose(function.__code__)
        if offset is None:
            return function(*args)


# ---- comparing


def plain(value, depth=0):
    if depth > 6:
        return "..."
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(v, depth + 1) for v in value]
    if isinstance(value, (set, frozenset)):
        return "set", sorted(repr(v) for v in value)
    if isinstance(value, dict):
        return [(plain(k, depth + 1), plain(v, depth + 1)) for k, v in value.items()]
    if isinstance(value, BaseException):
        return type(value).__name__, plain(value.args, depth + 1)
    if isinstance(value, (type, types.FunctionType)):
        return value.__qualname__
    return repr(value) if not callable(value) else type(value).__name__


def frames(traceback):
    while traceback:
        code = traceback.tb_frame.f_code
        if not code.co_filename.endswith("resume_checks.py"):
            positions = list(code.co_positions())[traceback.tb_lasti // 2]
            yield code.co_qualname, traceback.tb_lineno, positions
        traceback = traceback.tb_next


def error(e, depth=0):
    if e is None or depth > 4:
        return None
    return (
        type(e).__name__,
        plain(e.args),
        list(frames(e.__traceback__)),
        error(e.__cause__, depth + 1),
        error(e.__context__, depth + 1),
    )


def outcome(function, args, runner):
    args = args() if callable(args) else args
    world.LOG.clear()
    if hasattr(function, "reset"):
        function.reset()
    try:
        result = "returned", plain(runner(args))
    except Exception as e:
        result = "raised", error(e)
        e.__traceback__ = None
    return result, [plain(x) for x in world.LOG], sys.exc_info()


def compare(choose_for, every=1, loop=False):
    runs = 0
    places = loops if loop else points
    for function, argument_sets in corpus.CASES:
        for args in argument_sets:
            want = outcome(function, args, lambda a: function(*a))
            for offset in places(function.__code__)[::every]:
                choose = choose_for(offset)
                got = outcome(
                    function,
                    args,
                    lambda a: run_in_pieces(function, a, offset, choose, loop),
                )
                runs += 1
                if got != want:
                    return (
                        f"{function.__name__}{args} at {offset}\n"
                        f"want {want}\ngot  {got}\n" + fj.dump(function.__code__)
                    )
    return None if runs > 100 or loop and runs > 30 else f"only {runs} runs"


def one_break():
    return compare(lambda offset: lambda code: None)


def loops_run_whole():
    return compare(lambda offset: lambda code: None, loop=True)


def chains_of_loops():
    """The next loop in each resume function, too."""

    def choose_for(offset):
        return lambda code: next(iter(loops(code)), None)

    return compare(choose_for, loop=True)


def variables_of_a_loop():
    """Bound or not behind it, as it went."""

    def f(n, v):
        for i in range(n):
            if v:
                found = i
            other = i
            if i == 3:
                del other
                break
        try:
            return i, found, other
        except UnboundLocalError as e:
            return str(e), sorted(locals())

    for n in 0, 2, 9:
        for v in False, True:
            [offset] = loops(f.__code__)
            want = f(n, v)
            seen = []
            got = run_in_pieces(f, (n, v), offset, lambda c: seen.append(c), loop=True)
            if got != want or len(seen) != 1:
                return n, v, want, got, len(seen)
    return None


def chains_of_breaks():
    rng = random.Random(7)

    def choose_for(offset):
        left = [3]

        def choose(code):
            left[0] -= 1
            return rng.choice(points(code)) if left[0] >= 0 else None

        return choose

    return compare(choose_for, every=3)


def break_everywhere():
    """Single-step: from each resume function to its very next instruction."""

    def choose_for(offset):
        left = [20]

        def choose(code):
            # The instruction the prologue jumps to.
            for op in fj.decode(code):
                if op[0] == "Jump":
                    target = fj.decode(code)[op[4]][5]
                    break
            left[0] -= 1
            return target if left[0] and target in points(code) else None

        return choose

    return compare(choose_for, every=40)


# ---- properties


def offset_of(function, name, nth=0):
    return [
        o for o, n, why in fj.points(function.__code__) if n == name and why is None
    ][nth]


def loop_comes_to_the_same_code():
    def loop(n):
        total = 0
        for i in range(n):
            total = total + i
        return total

    seen = []
    offset = offset_of(loop, "BINARY_OP")

    def choose(code):
        seen.append(code)
        # The same instruction again, in the resume function.
        return next(
            (o for o in points(code) if fj.original_offset(code, o) == offset), None
        )

    result = run_in_pieces(loop, (30,), offset, choose)
    if result != sum(range(30)):
        return result
    if len(seen) != 30 or len(set(map(id, seen))) != 1:
        return len(seen), len(set(map(id, seen)))
    count = fj.num_generated(loop.__code__)
    return None if count == 2 else f"{count} code objects"


def generated_code_is_freed():
    space = {}
    exec("def f(a, b):\n  c = a + b\n  return c * 2", space)
    function = space.pop("f")
    stopped = stop(function, (1, 2), offset_of(function, "BINARY_OP"))
    code, args, resumes = stopped.residual()
    resume = resumes[0]
    names = [weakref.ref(code), weakref.ref(resume), weakref.ref(function.__code__)]
    # A resume code outlives the user's code and can still break.
    del code, resumes, stopped, function
    gc.collect()
    if names[2]() is not None or names[0]() is not None:
        return "user or residual code kept alive"
    inner = fj.function(resume, {})
    again = stop(inner, (1, 2, 7, 3)[: resume.co_argcount], points(resume)[-1])
    code, args, resumes = again.residual()
    names += [weakref.ref(code)]
    if fj.function(code, {})(*args) is None:
        return "lost"
    del resume, inner, again, code, args, resumes
    gc.collect()
    left = [n() for n in names if n() is not None]
    return f"kept alive {left}" if left else None


def release_drops_code():
    def f(a, b):
        return [a + b]

    stopped = stop(f, (1, 2), offset_of(f, "BINARY_OP"))
    code, args, resumes = stopped.residual()
    ref = weakref.ref(code)
    if stopped.residual()[0] is not code:
        return "not cached"
    del code, resumes
    fj.release(f.__code__)
    if ref() is not None or fj.num_generated(f.__code__):
        return "kept"
    return None if stopped.residual()[0] else "gone"


def many_shapes_do_not_leak():
    import tracemalloc

    def make():
        space = {}
        exec(
            "def f(a, b=1):\n  try:\n    a = a + b\n  except TypeError:\n"
            "    a = b\n  return a * 2",
            space,
        )
        f = space["f"]
        offset = offset_of(f, "BINARY_OP")
        if run_in_pieces(f, (1,), offset, lambda code: None) != 4:
            raise AssertionError

    make()
    gc.collect()
    tracemalloc.start()
    for _ in range(20):
        make()
    grown = []
    for _ in range(3):
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(200):
            make()
        gc.collect()
        grown.append(tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
    # A table (of interned strings, say) may grow once; what leaks grows each time.
    return None if min(grown) < 20000 else f"{grown} bytes"


def impossible_frames_are_refused():
    def f(a, b):
        c = a + b
        return c

    offset = offset_of(f, "BINARY_OP")
    good = [True, True, False], [(STACK_VALUE, 0)] * 2
    fj.residual(f.__code__, offset, *good)
    bad = [
        ([True, True], good[1]),
        ([True, True, True], good[1]),
        ([False, True, False], good[1]),
        (good[0], good[1][:1]),
        (good[0], [(STACK_VALUE, 0), (STACK_NULL, 0)]),
        (good[0], [(STACK_VALUE, 0), (STACK_LASTI, 3)]),
    ]
    for bound, stack in bad:
        try:
            fj.residual(f.__code__, offset, bound, stack)
        except RuntimeError as e:
            if "FJ404" not in str(e):
                return str(e)
        else:
            return f"accepted {bound} {stack}"
    return None


def places_without_a_break():
    def generator():
        yield 1

    async def coroutine():
        pass

    def calls(a):
        return a(1, k=2)

    body = compile("class C:\n  x = 1", "f", "exec").co_consts[0]
    for code in generator.__code__, coroutine.__code__, body:
        if points(code):
            return code
    why = {name: why for o, name, why in fj.points(calls.__code__) if why}
    names = (
        {"KW_NAMES", "PRECALL"}
        if sys.version_info < (3, 12)
        else ({"KW_NAMES"} if sys.version_info < (3, 13) else set())
    )
    if set(why) != names:
        return why
    stopped = stop(calls, (lambda *a, **k: (a, k),), points(calls.__code__)[1])
    resume = stopped.residual()[2][0]
    if 0 in points(resume):
        return "break in a prologue"
    residual = stopped.residual()[0]
    return "break in residual code" if points(residual) else None


def handled_exception_of_another_thread():
    """The interpreter handles an exception that the thread does not: the
    residual code must make it the thread's."""

    def f(v):
        try:
            corpus.fail("inside")
        except ValueError:
            before = corpus.say(v)
            info = sys.exc_info()[1]
            if v:
                raise
        return before, str(info), sys.exc_info()

    line = f.__code__.co_firstlineno + 4
    lines = [p[0] for p in f.__code__.co_positions()]
    offset = next(
        o for o, n, w in fj.points(f.__code__) if n == "CALL" and lines[o // 2] == line
    )
    box = []
    for v in 0, 1:
        box.clear()

        def other():
            try:
                box.append(stop(f, (v,), offset))
                box.append(sys.exc_info()[1])
            except BaseException as e:
                box.append(e)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        stopped, handled = box
        if not isinstance(handled, ValueError):
            return repr(box)
        stopped.stack[0] = STACK_SAVED, 0
        stopped.items = (handled, *stopped.items[1:])
        code, args, resumes = stopped.residual()
        try:
            token = fj.function(code, globals())(*args)
            if sys.exc_info()[1] is not handled:
                return "not handled"
            result = token[1](*token[2:])
        except ValueError as e:
            if not v or e is not handled:
                return repr(e)
        else:
            if v or result != (0, "inside", (None, None, None)):
                return repr(result)
    return None


def names_and_lines_stay():
    def f(a):
        b = a + 1
        return corpus.say(b, sys._getframe(1).f_code.co_name)

    offset = offset_of(f, "BINARY_OP")
    stopped = stop(f, (1,), offset)
    residual, args, (resume,) = stopped.residual()
    for code in residual, resume:
        for field in "co_name co_qualname co_filename co_firstlineno".split():
            if getattr(code, field) != getattr(f.__code__, field):
                return field
        for op in fj.decode(code):
            line = list(code.co_positions())[op[5] // 2][0]
            if line is None or not 0 <= line - code.co_firstlineno <= 3:
                return line
    if resume.co_varnames[:2] != ("a", "b"):
        return resume.co_varnames
    token = fj.function(residual, globals())(*args)
    depths = []
    token[1](*token[2:])
    return None if world.LOG[-1][1] == "names_and_lines_stay" else world.LOG
