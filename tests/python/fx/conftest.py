"""Asserts of the helpers say what differed."""

import pytest

pytest.register_assert_rewrite("fx.both")
