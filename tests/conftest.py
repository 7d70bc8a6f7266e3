"""What tests share: where the real collections are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ragauge", deadline=None, max_examples=100)
settings.load_profile("ragauge")

DATA = Path(os.environ.get("RAGAUGE_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture
def shared():
    """A function from a name in the shared collections to its path; the test is skipped where it is absent."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"{name} is not in {DATA} (RAGAUGE_DATA says where the collections are)")
        return path

    return find
