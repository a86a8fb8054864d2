# Syntax of CPython 3.12 and 3.13.

# ==== type parameters of a function
# since: 3.12
# args: (3,)
# expect: FJ401
def f(n):
    def g[T](x: T) -> T:
        return x
    return g(n), g.__type_params__[0].__name__

# ==== bounded type parameters
# since: 3.12
# args: (3,)
# expect: FJ401
def f(n):
    def g[T: int, *Ts, **P, U: (int, str)](x: T) -> T:
        return x
    return g(n), len(g.__type_params__)

# ==== type alias
# since: 3.12
# args: (3,)
# expect: FJ401
def f(n):
    type Pair[T] = tuple[T, T]
    return Pair.__name__, n

# ==== generic class
# since: 3.12
# args: (3,)
# expect: FJ401
def f(n):
    class Box[T]:
        k = n
        def get(self, v: T) -> T:
            return v
    return Box().get(n), Box.k

# ==== defaults of type parameters
# since: 3.13
# args: (3,)
# expect: FJ401 FJ201
def f(n):
    def g[T = int](x: T) -> T:
        return x
    return g(n), g.__type_params__[0].has_default()

# ==== f-strings with any expression inside
# since: 3.12
# args: ({"k": [1, 2]},)
def f(d):
    return f"{d["k"][0]} {", ".join(f"{v:>{2}}" for v in d["k"])} {f"{f"{1 + 1}"}"}"
