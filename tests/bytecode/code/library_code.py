"""Code objects of standard library modules, for the checks beside this file."""

import os
import sysconfig
import types

SAMPLE = """argparse ast asyncio/base_events asyncio/tasks bdb collections/__init__
configparser contextlib copy csv dataclasses datetime decimal _pydecimal difflib
dis doctest email/message enum functools gzip heapq http/client inspect io
json/decoder json/encoder locale logging/__init__ mailbox optparse os pathlib
pdb pickle pickletools plistlib pydoc random re/_compiler shutil smtplib socket
statistics string subprocess tarfile tempfile textwrap threading tokenize
traceback turtle types typing unittest/mock urllib/request uuid warnings weakref
xml/etree/ElementTree zipfile""".split()


def nested(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from nested(const)


def library_code():
    """Every code object of the sample, of everything with FJ_WHOLE_LIBRARY."""
    root = sysconfig.get_paths()["stdlib"]
    if os.environ.get("FJ_WHOLE_LIBRARY"):
        paths = []
        for folder, dirs, names in os.walk(root):
            dirs[:] = [d for d in dirs if d not in ("site-packages", "lib2to3")]
            paths += [os.path.join(folder, n) for n in names if n.endswith(".py")]
    else:
        paths = [os.path.join(root, name + ".py") for name in SAMPLE]
    for path in sorted(paths):
        try:
            with open(path, encoding="utf-8") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
            continue
        yield from nested(code)
