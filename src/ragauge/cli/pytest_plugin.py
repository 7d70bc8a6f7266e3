"""pytest fixture: `def test_retrieval(ragauge_gate): ragauge_gate("runs/docs/dense", "gate.toml")`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ragauge.gates.results import Gate


@pytest.fixture
def ragauge_gate() -> Callable[..., Gate]:
    """Return a variant of `ragauge.gate` that fails the test unless every rule passes."""

    def hold(run: Any, rules: Any, **settings: Any) -> Gate:
        __tracebackhide__ = True
        from ragauge.gates.gate import gate  # imported on use: pytest loads this plugin at every start

        result = gate(run, rules, **settings)
        result.raise_if_failed()
        return result

    return hold
