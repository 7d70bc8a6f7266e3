"""Costs of judging: calls, tokens, prices and estimates, and budgets that are checked before each request."""

from __future__ import annotations

import pytest

from ragauge.core.errors import BadInput
from ragauge.core.protocols import Reply
from ragauge.judging.costs import Budget, CostLedger, Price, estimate_tokens, find_price, parse_prices
from ragauge.judging.reply_cache import CachedReply, TotalUsage
from ragauge.models.chats.calls import BudgetReached


def make_cached_reply(prompt=1000, completion=100, seconds=0.5, attempts=1, cached=0):
    return CachedReply(Reply("", prompt, completion, cached), seconds, attempts)


def test_cost_ledger_steps_sum_calls_tokens_and_cost():
    ledger = CostLedger(Price(1.0, 10.0))
    ledger.record_reply("claims", "one", make_cached_reply(seconds=0.1), fresh=True)
    ledger.record_reply("claims", "two", make_cached_reply(seconds=0.3, attempts=3), fresh=False)
    ledger.record_reply("claims", "two", make_cached_reply(), fresh=False)
    ledger.record_unreadable("claims", "one")
    ledger.record_unreadable("claims", "one")
    (row,) = ledger.steps()
    assert row[:8] == ("claims", 2, 1, 2, 1, 2000, 200, 0)
    assert row.seconds == pytest.approx(0.4)
    assert row.p50 == pytest.approx(200)
    assert row.p95 == pytest.approx(290)
    assert row.cost == pytest.approx((2000 * 1 + 200 * 10) / 1e6)


def test_cost_ledger_without_price_has_no_cost():
    ledger = CostLedger()
    ledger.record_reply("useful", "one", make_cached_reply(), fresh=True)
    assert ledger.steps()[0].cost is None


def test_price_cached_tokens_cost_less():
    assert Price(1, 2, 0.1).of(1000, 0, 400) == pytest.approx((600 + 40) / 1e6)
    assert Price(1, 2).of(1000, 0, 400) == pytest.approx(1000 / 1e6)


def test_cost_ledger_reserve_beyond_call_limit_raises():
    ledger = CostLedger(limits=Budget(calls=2))
    ledger.reserve(lambda: (1, 1))
    ledger.reserve(lambda: (1, 1))
    with pytest.raises(BudgetReached, match="limit of 2 requests"):
        ledger.reserve(lambda: (1, 1))


def test_cost_ledger_earlier_usage_counts_towards_limits():
    with pytest.raises(BudgetReached):
        CostLedger(limits=Budget(calls=3), before=TotalUsage(3)).reserve(lambda: (1, 1))
    ledger = CostLedger(Price(1, 0), Budget(cost=1.0), TotalUsage(3, 900_000))
    assert ledger.spent == pytest.approx(0.9)
    with pytest.raises(BudgetReached):
        ledger.reserve(lambda: (200_000, 0))


def test_cost_ledger_empty_reply_counts_as_call():
    ledger = CostLedger(limits=Budget(calls=1))
    ledger.settle(ledger.reserve(lambda: (1, 1)), Reply(""))
    with pytest.raises(BudgetReached):
        ledger.reserve(lambda: (1, 1))


def test_cost_ledger_pending_reservations_count_as_spent():
    ledger = CostLedger(Price(1, 0), Budget(cost=1.0))
    ledger.reserve(lambda: (600_000, 0))
    with pytest.raises(BudgetReached, match="limit of 1 is reached"):
        ledger.reserve(lambda: (600_000, 0))


def test_cost_ledger_paid_replaces_reserved_estimate():
    ledger = CostLedger(Price(1, 0), Budget(cost=1.0))
    ledger.settle(ledger.reserve(lambda: (600_000, 0)), Reply("", 100_000))
    assert ledger.spent == pytest.approx(0.1)
    ledger.reserve(lambda: (600_000, 0))


def test_cost_ledger_cost_limit_without_price_raises():
    with pytest.raises(BadInput, match="price"):
        CostLedger(limits=Budget(cost=1))
    with pytest.raises(BadInput, match="-1"):
        Budget(calls=-1)


def test_find_price_prefers_exact_name_over_pattern():
    prices = parse_prices({"gpt-4o-mini": (1, 2), "gpt-4o*": (3, 4), "*": (5, 6)})
    assert [find_price(name, prices) for name in ("gpt-4o-mini", "gpt-4o-2026", "llama")] == [
        Price(1, 2), Price(3, 4), Price(5, 6),
    ]  # fmt: skip
    assert find_price("llama", {}) is None


def test_parse_prices_reads_toml_file(tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text('["small"]\ninput = 0.15\noutput = 0.6\ncached = 0.075\n')
    assert parse_prices(str(file)) == {"small": Price(0.15, 0.6, 0.075)}
    assert parse_prices(None) == {}


@pytest.mark.parametrize(
    "price",
    [{"input": 1}, {"input": 1, "output": 2, "more": 3}, (1,), "free", {"input": "1", "output": 2}, (True, 1), (-1, 1)],
)
def test_parse_prices_invalid_value_raises(price):
    with pytest.raises(BadInput, match="`small`"):
        parse_prices({"small": price})


def test_estimate_tokens_depends_on_script():
    assert estimate_tokens("") == 0
    assert estimate_tokens("a" * 400) == 100
    assert estimate_tokens("日本語のテキスト") == round(8 / 1.5)


def test_cost_ledger_underestimated_calls_increase_next_estimate():
    ledger = CostLedger(Price(1, 0), Budget(cost=1.0))
    assert ledger.has_unknown_cost
    ledger.settle(ledger.reserve(lambda: (100_000, 0)), Reply("", 300_000))
    assert not ledger.has_unknown_cost
    assert ledger.reserve(lambda: (100_000, 0)) == pytest.approx(0.3)


def test_cost_ledger_free_calls_end_uncertainty():
    ledger = CostLedger(Price(0, 0), Budget(cost=1.0))
    ledger.settle(ledger.reserve(lambda: (100, 100)), Reply("", 100, 100))
    assert not ledger.has_unknown_cost
