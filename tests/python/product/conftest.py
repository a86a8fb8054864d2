"""What the tests of the product share."""

from __future__ import annotations

import logging

import pytest

import framejit


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts: dict[str, list[str]] = {}

    def emit(self, record):
        channel = record.name.removeprefix("framejit.")
        self.texts.setdefault(channel, []).append(record.getMessage())

    def first_lines(self, channel: str) -> list[str]:
        return [text.splitlines()[0] for text in self.texts.get(channel, [])]


@pytest.fixture
def records():
    """Switches channels on, and gives what comes of them."""
    handler = Records()
    logger = logging.getLogger("framejit")
    logger.addHandler(handler)

    def switch_on(channels: str) -> Records:
        framejit.set_logs(channels)
        return handler

    yield switch_on
    framejit.set_logs("")
    logger.removeHandler(handler)
