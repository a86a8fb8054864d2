"""``python -m framejit [options] script.py args...``: FRAMEJIT=1 with flags.

Runs a script, a module (``-m``), a string (``-c``), standard input (``-``), a
folder or a zip file as python itself would: same ``sys.argv``, ``sys.path``,
``__main__``, tracebacks and exit status.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import importlib.machinery
import io
import os
import runpy
import sys
import types
from typing import Any, NoReturn

import framejit
from framejit import _C, _kernels, _report, _script, _tracefile


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m framejit",
        usage="python -m framejit [options] "
        "(file | folder | zip | - | -m module | -c code) ...",
        description="Runs a program with every frame that does tensor work compiled.",
        allow_abbrev=False,
        epilog="Options in front of the program are for framejit, all else is its own.",
    )
    add = parser.add_argument
    add("--backend", metavar="NAME", help="native, aot_eager, eager, inductor, ...")
    add("--dynamic", choices=("auto", "true", "false"), default="auto")
    add("--fullgraph", action="store_true", help="raise where a graph breaks")
    add("--only", metavar="PATTERNS", help="as FRAMEJIT_ONLY")
    add("--log", metavar="CHANNELS", help="as FRAMEJIT_LOG")
    add("--trace", metavar="FOLDER", help="as FRAMEJIT_TRACE")
    add("--report", action="store_true", help="what was compiled, on stderr at exit")
    add("--kernels", metavar="TARGET", help="the CUDA kernels it would have (sm_90)")
    add("--off", action="store_true", help="run it plainly")
    add("--version", action="version", version=f"framejit {framejit.__version__}")
    return parser


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our own options, and the program with its arguments."""
    with_value = ("--backend", "--dynamic", "--only", "--log", "--trace", "--kernels")
    at = 0
    while at < len(argv) and argv[at].startswith("--"):
        if argv[at] == "--":
            return argv[:at], argv[at + 1 :]
        at += 2 if argv[at] in with_value else 1
    if at < len(argv) and argv[at] == "-h":
        return [*argv[:at], "-h"], []
    return argv[:at], argv[at:]


def _main_module(file: str | None, loader: Any) -> dict[str, Any]:
    """A new ``__main__``, as python sets it up."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    namespace = module.__dict__
    namespace.update(__builtins__=builtins, __loader__=loader)
    if file is not None:
        namespace.update(__file__=file, __cached__=None)
    return namespace


def _refuse(text: str) -> NoReturn:
    """The program cannot be run: said as python says it, with its exit status."""
    print(text, file=sys.stderr)
    sys.exit(2)


def _run_script(path: str) -> None:
    if os.path.isdir(path) or _is_zip(path):
        sys.path[0] = path
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    path = os.path.abspath(path)  # as python names it, wherever the script goes
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    namespace = _main_module(path, loader)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        why = f"[Errno {error.errno}] {error.strerror}"
        _refuse(f"{sys.orig_argv[0]}: can't open file {path!r}: {why}")
    exec(compile(source, path, "exec", dont_inherit=True), namespace)


def _run_text(source: str, name: str, file: str | None) -> None:
    sys.path[0] = ""
    namespace = _main_module(file, importlib.machinery.BuiltinImporter)
    exec(compile(source, name, "exec", dont_inherit=True), namespace)


def _is_zip(path: str) -> bool:
    import zipfile

    return not path.endswith(".py") and zipfile.is_zipfile(path)


def _run(program: list[str]) -> None:
    first, rest = program[0], program[1:]
    if first in ("-m", "-c"):
        if not rest:
            _refuse(f"python -m framejit: {first} needs an argument")
        sys.argv[:] = [first, *rest[1:]]
        if first == "-m":
            sys.path[0] = os.getcwd()
            runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        else:
            _run_text(rest[0], "<string>", None)
        return
    if first == "-":
        sys.argv[:] = program
        _run_text(sys.stdin.read(), "<stdin>", "<stdin>")
        return
    if first.startswith("-"):
        _refuse(f"python -m framejit: unknown option {first}")
    sys.argv[:] = program
    _run_script(first)


def _run_as_python(program: list[str]) -> None:
    """Uncaught exceptions are shown as python would, without our frames."""
    try:
        _run(program)
    except Exception as error:
        traceback = error.__traceback__
        own = (__file__, runpy.__file__)
        while traceback and (
            traceback.tb_frame.f_code.co_filename in own
            or traceback.tb_frame.f_code.co_filename.startswith("<frozen runpy")
        ):
            traceback = traceback.tb_next
        error = error.with_traceback(traceback)
        sys.last_type, sys.last_value = type(error), error
        sys.last_traceback = traceback
        sys.excepthook(type(error), error, traceback)
        sys.exit(1)


def main() -> None:
    own, program = _split(sys.argv[1:])
    parser = _parser()
    options = parser.parse_args(own)
    if not program:
        parser.error("no program to run")
    if options.log is not None:
        try:
            framejit.set_logs(options.log)
        except ValueError as error:
            parser.error(str(error))
    if options.trace:
        _C.set_option("trace", options.trace)
        try:
            _tracefile.set_folder(options.trace)
        except OSError as error:
            parser.error(f"--trace: {error}")
    if options.report:
        atexit.register(_report.print_report)
    if options.off or _script.environment() == "off":
        _script.stop()
    else:
        dynamic = {"auto": None, "true": True, "false": False}[options.dynamic]
        try:
            _script.start(
                options.backend,
                fullgraph=options.fullgraph,
                dynamic=dynamic,
                only=options.only,
            )
        except ValueError as error:
            parser.error(str(error))
    if options.kernels is None:
        _run_as_python(program)
        return
    try:
        _kernels.architecture_of(options.kernels)
    except ValueError as error:
        parser.error(f"--kernels: {error}")
    found: list[framejit.Kernels] = []
    atexit.register(lambda: print(*found, sep="\n", file=sys.stderr))
    _kernels.collect(options.kernels, lambda: _run_as_python(program), found)


if __name__ == "__main__":
    main()
