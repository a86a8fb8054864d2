"""The pytest plugin: ``pytest --framejit-strict``.

With the flag, each test runs within `framejit.testing.strict`, and a test may
carry one of the marks

    @pytest.mark.framejit_no_recompile
    @pytest.mark.framejit_no_break
    @pytest.mark.framejit_graphs(n)

which hold with and without the flag. framejit (and with it torch) is imported
only for tests that need it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("framejit").addoption(
        "--framejit-strict",
        action="store_true",
        help="errors inside FrameJIT, and graphs that fall back, fail the test",
    )


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "framejit_no_recompile: nothing is compiled twice in this test",
        "framejit_no_break: no graph breaks in this test",
        "framejit_graphs(n): this test compiles n graphs",
    ):
        config.addinivalue_line("markers", line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with contextlib.ExitStack() as stack:
        for scope in _scopes(item):
            stack.enter_context(scope)
        return (yield)


def _scopes(item: pytest.Item) -> Iterator[Any]:
    strict = item.config.getoption("--framejit-strict")
    marks = {
        name: item.get_closest_marker(f"framejit_{name}")
        for name in ("no_recompile", "no_break", "graphs")
    }
    if not strict and not any(marks.values()):
        return
    from framejit import testing

    if strict:
        yield testing.strict()
    if marks["no_recompile"]:
        yield testing.no_recompile()
    if marks["no_break"]:
        yield testing.no_break()
    if marks["graphs"]:
        yield testing.count_graphs(marks["graphs"].args[0])
