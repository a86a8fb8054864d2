"""Checks of the assembler and the stack analysis, for test_assembler.cpp."""

# ruff: noqa: E402, F821  (`fj` is the module under test)
import os
import sys

sys.path.insert(0, os.path.dirname(sys._getframe().f_code.co_filename))
from library_code import library_code

sys.path.pop(0)
GENERATOR = 0x20 | 0x80 | 0x200


def place(code):
    return f"{code.co_filename}:{code.co_firstlineno} {code.co_name}"


def remakes_library():
    count = wide = 0
    for code in library_code():
        raw, handlers, lines = fj.reassemble(code)
        # 3.13 sizes a jump by the number of its label at first, and so keeps a
        # needless EXTENDED_ARG once in some 10,000 code objects.
        if len(raw) < len(code.co_code) and wide < count / 5000:
            wide += 1
            continue
        if raw != code.co_code:
            return "code of " + place(code)
        if handlers != code.co_exceptiontable:
            return "exception table of " + place(code)
        if lines != code.co_linetable:
            return "location table of " + place(code)
        count += 1
    return None if count > 1000 else f"only {count}"


def stack_depths():
    for code in library_code():
        if code.co_flags & GENERATOR:
            continue  # never analysed: there are no breaks in them
        depths = fj.analyze(code)
        if depths is None:
            return "cannot analyse " + place(code)
        if max(depths.values()) > code.co_stacksize:
            return "too deep: " + place(code)
    return None
