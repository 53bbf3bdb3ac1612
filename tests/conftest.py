"""Shared by all tests: one event loop kind, no real network, no waiting."""

import signal

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background of a script: children would inherit that Ctrl-C means nothing, and tests of Ctrl-C would wait.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
