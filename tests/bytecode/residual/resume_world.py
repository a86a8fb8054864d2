"""What the functions of resume_corpus.py use: it says what is done with it."""

import sys

LOG = []


def say(*values):
    LOG.append(values)
    return values[0] if values else None


def fail(text="fail", kind=ValueError):
    LOG.append(("fail", text))
    raise kind(text)


class Manager:
    def __init__(self, name, swallow=False, bad_enter=False, bad_exit=False):
        self.name, self.swallow = name, swallow
        self.bad_enter, self.bad_exit = bad_enter, bad_exit

    def __enter__(self):
        say("enter", self.name)
        if self.bad_enter:
            raise KeyError("enter")
        return self.name

    def __exit__(self, kind, value, traceback):
        say(
            "exit",
            self.name,
            kind and kind.__name__,
            repr(value),
            repr(sys.exc_info()[1]),
        )
        if self.bad_exit:
            raise IndexError("exit")
        return self.swallow


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __repr__(self):
        return f"Point({self.x}, {self.y})"

    def __add__(self, other):
        say("add")
        return Point(self.x + other.x, self.y + other.y)

    def scaled(self, by, *, plus=0):
        say("scaled", by)
        return Point(self.x * by + plus, self.y * by + plus)

    @property
    def risky(self):
        say("risky")
        if self.x < 0:
            raise AttributeError("negative")
        return self.x

    def __getattr__(self, name):
        say("getattr", name)
        if name == "method":
            return lambda *a: ("method", a)
        raise AttributeError(name)


class Truth:
    def __init__(self, value):
        self.value = value

    def __bool__(self):
        say("bool", self.value)
        if self.value == "bad":
            raise TypeError("no truth")
        return bool(self.value)
