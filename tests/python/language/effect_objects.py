"""What the rows of effect_rows.py are made of."""

# ruff: noqa: E701, E702, F401
import abc
import bisect
import collections
import contextlib
import contextvars
import copy
import csv
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import hashlib
import heapq
import io
import itertools
import json
import logging
import os
import queue
import random
import re
import string
import struct
import sys
import threading
import types
import warnings
import weakref
import xml.etree.ElementTree as xml
import zlib
from array import array
from collections import ChainMap, Counter, UserDict, UserList, deque
from collections import OrderedDict as OD
from collections import defaultdict as DD
from itertools import islice

import numpy as np
import torch
from torch import nn


class L(list):
    pass


class S(set):
    pass


class DQS(deque):
    pass


class MOD(OD):
    pass


class GI:
    def __init__(s):
        s.n = 0

    def __iter__(s):
        return s

    def __next__(s):
        s.n += 1
        if s.n > 4:
            raise StopIteration
        return s.n


def gen():
    try:
        yield 1
        yield 2
        yield 3
    except ValueError:
        yield 7


async def coro():
    return 4


def mkfun():
    def foo(a=1, *, b=2):
        return a * 10 + b

    return foo


def mkclosure():
    c = 3

    def inner():
        return c

    return inner


class P:
    cls = 1

    def __init__(s):
        s.a = 1
        s.lst = [1]

    @property
    def prop(s):
        return s.a

    @prop.setter
    def prop(s, v):
        s.a = v


class Q(P):
    pass


class SL:
    __slots__ = ("a", "b")

    def __init__(s):
        s.a = 1


class SL2:
    __slots__ = ("a", "b")


class B1:
    pass


class B2:
    pass


def mkclass():
    class C(B1):
        a = 1
        lst = [1]

        def f(s):
            return 1

    C.__annotations__
    C.lst = [1]
    return C


class Meta(type):
    log = []

    def __setattr__(c, k, v):
        Meta.log.append(k)
        super().__setattr__(k, v)


class MT(types.ModuleType):
    pass


class PS(property):
    pass


def lru():
    @functools.lru_cache(2)
    def sq(v):
        return v

    return sq


def lru_used():
    f = lru()
    f(1)
    f(2)
    return f


def probe(o, v):
    h = o.cache_info().hits
    o(v)
    return o.cache_info().hits - h


def lruU():
    @functools.lru_cache(None)
    def sq(v):
        return v

    return sq


class CP:
    @functools.cached_property
    def v(s):
        return 5


cvv = contextvars.ContextVar("cvv", default=0)


def cv():
    v = contextvars.ContextVar("v")
    v.set(1)
    return v


def heap():
    return [1, 3, 2, 7]


class K:
    pass


KEEP = K()
KEEP2 = K()


class WR(weakref.ref):
    pass


@dataclasses.dataclass
class DC:
    a: int
    b: list


@dataclasses.dataclass(frozen=True)
class FDC:
    a: int


def mkenum():
    class E(enum.Enum):
        A = 1
        B = 2

    return E


NT = collections.namedtuple("NT", "a b")
DBACK = {"a": 1}


class CSt(ctypes.Structure):
    _fields_ = [("a", ctypes.c_int)]


CSVB = io.StringIO()


def csvw():
    return csv.writer(CSVB)


HND = logging.NullHandler()


def tb():
    try:
        (lambda: 1 / 0)()
    except ZeroDivisionError as e:
        return e.__traceback__


def frm():
    g = gen()
    next(g)
    FR.append(g)
    return g.gi_frame


FR = []


def abcm():
    class A(abc.ABC):
        pass

    return A


def sdisp():
    @functools.singledispatch
    def f(v):
        return 1

    return f


class CB:
    def __init__(s):
        s.log = []

    def __enter__(s):
        s.log.append(1)
        return s

    def __exit__(s, *a):
        s.log.append(a[0])


LOGL = []


class LinSub(nn.Linear):
    pass


def try_(f):
    try:
        return f()
    except Exception as e:
        return repr(e)
