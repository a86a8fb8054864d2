"""``framejit.fx`` is loaded when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import framejit

PROGRAM = """
import sys
import framejit
assert not [name for name in sys.modules if name.startswith("framejit.fx")]
assert framejit.fx.Graph().nodes is not None and framejit.fx is sys.modules["framejit.fx"]
"""


def test_framejit_alone_does_not_load_it():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_other_names_are_none():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        framejit.nothing


def test_all_is_there_and_described():
    from framejit import fx

    for name in fx.__all__:
        value = getattr(fx, name)
        assert name == "PH" or value.__doc__, name
        if isinstance(value, type):
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and callable(member):
                    assert getattr(value, attribute).__doc__, (name, attribute)
