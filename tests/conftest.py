"""Shared by all tests: one event loop kind, no real network, no waiting."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
