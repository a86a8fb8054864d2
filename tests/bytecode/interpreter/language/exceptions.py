# ruff: noqa
# try, raise, with, and what leaves a frame.

# ==== try, except, else and finally
# args: (1,)
# args: (0,)
# args: ("s",)
log = []
def f(v):
    try:
        r = 10 / v
    except ZeroDivisionError as e:
        r = "zero", str(e)
    except (TypeError, ValueError):
        r = "type"
    else:
        r = "fine", r
    finally:
        log.append(v)
    return r

# ==== tensors around a raising call
# args: (fake.tensor([1], [1.]), 0)
# args: (fake.tensor([1], [1.]), 1)
def g(n):
    if n:
        raise ValueError(n)
    return 5

def f(x, n):
    x = x + 1.0
    try:
        x = x * g(n)
    except ValueError as e:
        x = x - e.args[0]
    return x * 2.0

# ==== nested handlers
# args: (0,)
# args: (1,)
# args: (2,)
def f(v):
    out = []
    try:
        raise ValueError("outer")
    except ValueError as first:
        out.append(str(first))
        try:
            raise KeyError("inner")
        except KeyError as second:
            out.append(repr(second.__context__))
            if v == 1:
                try:
                    raise
                except KeyError as third:
                    out.append(third is second)
        out.append(str(first))
        if v == 2:
            try:
                raise RuntimeError("third")
            except RuntimeError as e:
                out.append(repr(e.__context__))
    return out

# ==== raise from
# args: (0,)
# args: (1,)
# args: (2,)
def f(v):
    try:
        try:
            raise ValueError("one")
        except ValueError as e:
            if v == 0:
                raise KeyError("two") from e
            if v == 1:
                raise KeyError("two") from None
            raise KeyError("two") from RuntimeError
    except KeyError as e:
        return repr(e), repr(e.__cause__), repr(e.__context__), e.__suppress_context__

# ==== bare raise goes to the outer handler
# args: ()
def f():
    out = []
    try:
        try:
            raise ValueError("v")
        except ValueError:
            out.append("first")
            raise
    except Exception as e:
        out.append(str(e))
    return out

# ==== raise of classes and of what cannot be raised
# args: ()
def f():
    out = []
    for step in range(4):
        try:
            if step == 0:
                raise ValueError
            if step == 1:
                raise 5
            if step == 2:
                raise ValueError from 5
            raise Exception("a", 1)
        except (ValueError, TypeError) as e:
            out.append((type(e).__name__, str(e)))
        except Exception as e:
            out.append(e.args)
    return out

# ==== except with what is no class
# args: ()
def f():
    try:
        try:
            raise ValueError("v")
        except 5:
            return "caught"
    except TypeError as e:
        return str(e)

# ==== the name of a handler goes
# args: ()
def f():
    e = "kept"
    try:
        raise ValueError("x")
    except ValueError as e:
        pass
    try:
        return e
    except UnboundLocalError as u:
        return str(u)

# ==== finally on every way out
# args: (0,)
# args: (1,)
# args: (2,)
# args: (3,)
log = []
def f(how):
    for i in range(3):
        try:
            log.append(("body", i))
            if how == 0:
                continue
            if how == 1:
                break
            if how == 2:
                return "returned", i
        finally:
            log.append(("finally", i))
    return "end", i

# ==== finally that returns over an exception
# args: ()
def f():
    try:
        raise ValueError("lost")
    finally:
        return "over"

# ==== finally in nested functions
# args: (1,)
# args: (0,)
log = []
def g(v):
    try:
        return 1 / v
    finally:
        log.append("g")

def f(v):
    try:
        return g(v)
    except ZeroDivisionError as e:
        return str(e)
    finally:
        log.append("f")

# ==== try in a loop
# args: ([3, 0, "x", None, 1],)
def f(values):
    out = []
    for v in values:
        try:
            out.append(6 / v)
        except ZeroDivisionError:
            out.append("zero")
            continue
        except TypeError:
            extra = "type"
            if v is None:
                break
        else:
            out.append("else")
        finally:
            out.append("finally")
    return out, extra

# ==== exceptions through inlined frames
# args: (fake.tensor([1], [1.]),)
class Mine(Exception):
    def __init__(self, code, *rest):
        super().__init__(code, *rest)
        self.code = code

def deep(n):
    if n == 0:
        raise Mine(7, "rest")
    return deep(n - 1)

def f(x):
    try:
        deep(3)
    except Mine as e:
        return x * e.code, e.args, isinstance(e, Exception)

# ==== exceptions of native code
# args: ({}, [])
def f(d, l):
    out = []
    try:
        d["k"]
    except KeyError as e:
        out.append(e.args)
    try:
        l[0]
    except IndexError as e:
        out.append(str(e))
    try:
        l.missing
    except AttributeError as e:
        out.append(str(e))
    try:
        int("x")
    except ValueError as e:
        out.append(str(e))
    try:
        next(iter([]))
    except StopIteration as e:
        out.append(e.value)
    try:
        1 + "a"
    except TypeError as e:
        out.append(str(e))
    try:
        None()
    except TypeError as e:
        out.append(str(e))
    return out

# ==== an exception leaves the function
# args: (fake.tensor([1], [1.]), [])
# expect: FJ406
def f(x, l):
    l.append(1)
    y = x + 1.0
    l.append(y)
    raise ValueError("out", 3)

# ==== an exception of a callee leaves the function
# args: ({"n": 0},)
# expect: FJ406
log = []
def g(d):
    d["n"] += 1
    try:
        raise KeyError("gone")
    finally:
        log.append("left")

def f(d):
    d["before"] = 1
    g(d)
    d["after"] = 1

# ==== with
# args: (fake.tensor([1], [1.]),)
log = []
class M:
    def __init__(self, name):
        self.name = name
    def __enter__(self):
        log.append(("enter", self.name))
        return self.name
    def __exit__(self, *e):
        log.append(("exit", self.name, e[0]))
        return False

def f(x):
    with M("a") as a, M("b") as b:
        x = x * 2.0
        with M("c"):
            x = x + 1.0
    return x, a, b

# ==== with that swallows
# args: (True,)
# args: (False,)
class M:
    def __init__(self, swallow):
        self.swallow = swallow
    def __enter__(self):
        return self
    def __exit__(self, kind, value, traceback):
        self.seen = kind.__name__, str(value)
        return self.swallow

def f(swallow):
    m = M(swallow)
    try:
        with m:
            raise ValueError("in")
        out = "behind"
    except ValueError as e:
        out = str(e)
    return out, m.seen

# ==== with left by return, continue and break
# args: (0,)
# args: (1,)
# args: (2,)
log = []
class M:
    def __init__(self, n):
        self.n = n
    def __enter__(self):
        return self.n
    def __exit__(self, *e):
        log.append(self.n)

def f(v):
    for i in range(3):
        with M(i) as n:
            if n == 1:
                if v == 0:
                    return "return", i
                if v == 1:
                    continue
                break
        log.append("behind")
    return "end", i

# ==== failures of managers
# args: (0,)
# args: (1,)
# args: (2,)
log = []
class M:
    def __init__(self, name, bad_enter=False, bad_exit=False):
        self.name, self.bad_enter, self.bad_exit = name, bad_enter, bad_exit
    def __enter__(self):
        log.append(("enter", self.name))
        if self.bad_enter:
            raise KeyError("enter")
    def __exit__(self, *e):
        log.append(("exit", self.name, e[0]))
        if self.bad_exit:
            raise IndexError("exit")

def f(v):
    try:
        with M("outer"):
            with M("x", bad_enter=v == 1, bad_exit=v == 2), M("y"):
                log.append("body")
            log.append("after")
    except LookupError as e:
        return repr(e), repr(e.__context__)
    return v

# ==== what is no manager
# args: ()
class Half:
    def __enter__(self):
        pass

def f():
    out = []
    for m in (5, Half()):
        try:
            with m:
                pass
        except TypeError as e:
            out.append(str(e))
    return out

# ==== contextlib
# args: (fake.tensor([1], [1.]),)
import contextlib
log = []
@contextlib.contextmanager
def manager(v):
    log.append("in")
    try:
        yield v
    except ValueError as e:
        log.append(str(e))
    finally:
        log.append("out")

def f(x):
    with manager(2.0) as v:
        x = x * v
    with manager(1), contextlib.nullcontext(3.0) as w:
        x = x + w
        raise ValueError("inside")
    with contextlib.suppress(KeyError):
        {}["k"]
    return x

# ==== grad mode regions
# args: (fake.tensor([2], [1., 2.], True),)
def f(x):
    y = x * 2.0
    with fake.no_grad():
        z = y + 1.0
        a = fake.is_grad_enabled()
    return z, a, fake.is_grad_enabled(), y.requires_grad, z.requires_grad

# ==== sys.exc_info inside handlers
# args: ()
import sys
def f():
    out = [sys.exc_info()[0]]
    try:
        raise ValueError("v")
    except ValueError:
        out.append(sys.exc_info()[0].__name__)
    out.append(sys.exc_info()[0])
    return out

# ==== except* takes a group apart
# args: (0,)
# expect: FJ204 FJ406
# args: (1,)
# expect: FJ406
# args: (2,)
def f(k):
    r = []
    try:
        if k == 0:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
        if k == 1:
            raise ValueError("plain")
        r.append("none")
    except* ValueError as g:
        r.append(("value", [str(e) for e in g.exceptions]))
    except* TypeError as g:
        r.append(("type", [str(e) for e in g.exceptions]))
    return r

# ==== notes and attributes of exceptions
# args: ()
def f():
    try:
        e = ValueError("v")
        e.code = 5
        e.add_note("note")
        raise e
    except ValueError as caught:
        return caught.code, caught.__notes__, caught is e

# ==== exception in a comprehension
# args: ([1, 0, 2],)
def f(values):
    try:
        return [1 / v for v in values]
    except ZeroDivisionError:
        return [v for v in values if v]

# ==== an exception in a with in a try in a loop
# args: ([1, 0],)
log = []
class M:
    def __enter__(self):
        return self
    def __exit__(self, kind, value, tb):
        log.append(kind)
        return False

def f(values):
    out = []
    for v in values:
        try:
            with M():
                out.append(1 / v)
        except ZeroDivisionError:
            out.append("zero")
        else:
            out.append("else")
    return out

# ==== raise inside finally and except
# args: (0,)
# args: (1,)
def f(v):
    try:
        try:
            try:
                raise ValueError("first")
            finally:
                if v:
                    raise KeyError("from finally")
        except ValueError:
            raise TypeError("from except")
    except Exception as e:
        chain = []
        while e is not None:
            chain.append((type(e).__name__, str(e)))
            e = e.__context__
        return chain

# ==== except with a tuple in a variable
# args: (KeyError,)
def f(extra):
    kinds = (ValueError, extra)
    out = []
    for text in ("v", "k", "t"):
        try:
            if text == "v":
                raise ValueError(text)
            if text == "k":
                raise KeyError(text)
            raise TypeError(text)
        except kinds as e:
            out.append(type(e).__name__)
        except TypeError:
            out.append("other")
    return out

# ==== finally with return, break and continue inside
# args: (0,)
# args: (1,)
# args: (2,)
def f(how):
    out = []
    for i in range(3):
        try:
            if i == 1:
                raise ValueError(i)
            out.append(i)
        finally:
            if how == 0:
                continue
            if how == 1 and i == 1:
                break
            if how == 2 and i == 1:
                return "swallowed", out
    return out

# ==== parenthesised with and manager that returns a tensor
# args: (fake.tensor([1], [3.]),)
log = []
class Scope:
    depth = 0
    def __init__(self, x):
        self.x = x
    def __enter__(self):
        Scope.depth += 1
        return self.x * Scope.depth
    def __exit__(self, *e):
        Scope.depth -= 1
        log.append(Scope.depth)

def f(x):
    with (
        Scope(x) as a,
        Scope(a + 1.0) as b,
        Scope(b) as (c),
    ):
        y = a + b + c
    return y, Scope.depth

# ==== with and generators that fail in their cleanup
# args: ()
import contextlib
log = []
@contextlib.contextmanager
def once(tag):
    try:
        yield tag
    finally:
        log.append(tag)

def f():
    out = []
    try:
        with once("a"), once("b"):
            raise KeyError("inside")
    except KeyError as e:
        out.append(str(e))
    with once("c") as c:
        out.append(c)
    for i in range(2):
        with once(i):
            if i == 0:
                continue
            return out, list(log)

# ==== AttributeError of a missing attribute and its default
# args: ()
class A:
    x = 1
    def __getattr__(self, name):
        if name == "lazy":
            self.lazy = 5
            return self.lazy
        raise AttributeError(f"no {name}")

def f():
    a = A()
    out = [getattr(a, "y", "default"), hasattr(a, "lazy"), a.lazy, vars(a)]
    try:
        a.z
    except AttributeError as e:
        out.append(str(e))
    return out

# ==== assertion with a message that is computed
# args: (0,)
# args: (5,)
def f(n):
    try:
        assert n > 3, f"{n} is too small"
        assert isinstance(n, int), n
    except AssertionError as e:
        return str(e), e.args
    return "passed"

# ==== StopIteration out of next
# args: ([1],)
def f(values):
    it = iter(values)
    out = [next(it)]
    try:
        next(it)
    except StopIteration as e:
        out.append(repr(e.value))
    try:
        raise StopIteration("mine")
    except StopIteration as e:
        out.append(e.value)
    return out
