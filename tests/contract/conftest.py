"""Readable failures in the shipped suites."""

import pytest

pytest.register_assert_rewrite(
    "polyport.testing.session_suite",
    "polyport.testing.artifact_suite",
    "polyport.testing.task_suite",
    "polyport.testing.push_suite",
    "polyport.testing.trigger_suite",
)
