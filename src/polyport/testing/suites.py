"""What every store must do, as tests: subclass a suite, give it a `store` fixture, and pytest does the rest.

    class TestMySessions(SessionStoreSuite):
        @pytest.fixture
        async def store(self, seams):
            store = MySessions(seams=seams)
            yield store
            await store.aclose()

`seams` is a clock that only moves when a test moves it, and ids that count. Each test is named after the rules it checks.
For readable failures: `pytest.register_assert_rewrite("polyport.testing.session_suite", "polyport.testing.artifact_suite")`.
"""

from polyport.testing.artifact_suite import ArtifactStoreSuite, MemoryStoreSuite
from polyport.testing.session_suite import SessionStoreSuite

__all__ = ["ArtifactStoreSuite", "MemoryStoreSuite", "SessionStoreSuite"]
