"""Costs of judging: tokens, cost and latency by step, and budgets that are checked before each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ragauge.core.errors import BadInput
from ragauge.core.protocols import Reply
from ragauge.core.settings import AtLeast, check_settings
from ragauge.core.summaries import percentiles
from ragauge.files.serialization import read_toml
from ragauge.judging.all_steps import STEPS
from ragauge.judging.reply_cache import CachedReply, TotalUsage
from ragauge.judging.results import CostStep
from ragauge.models.chats.calls import BudgetReached


@dataclass(frozen=True)
class Price:
    """Price of a million tokens, in US dollars."""

    input: float
    output: float
    cached: float | None = None
    """Price of prompt tokens cached by the endpoint; None uses the input price."""

    def of(self, prompt: int, completion: int, cached: int = 0) -> float:
        """Compute the cost of a number of tokens in US dollars.

        >>> Price(1.0, 4.0, 0.5).of(1_000_000, 250_000, 500_000)
        1.75
        """
        cached_price = self.input if self.cached is None else self.cached
        return ((prompt - cached) * self.input + cached * cached_price + completion * self.output) / 1e6


def find_price(model: str, prices: Mapping[str, Price]) -> Price | None:
    """Find the price of a model by name or pattern (`gpt-4o*`, `*`).

    The exact name comes first, then the first matching pattern. None if there is no match.
    """
    if model in prices:
        return prices[model]
    return next((price for pattern, price in prices.items() if fnmatch(model, pattern)), None)


@dataclass
class Budget:
    """Budget of all requests of a folder, over all sessions.

    Probes, retries and failures count.
    """

    calls: Annotated[int, AtLeast(0)] | None = None
    cost: Annotated[float, AtLeast(0)] | None = None

    def __post_init__(self) -> None:
        check_settings(self, "max_")


@dataclass
class _StepUsage:
    seconds: list[float] = field(default_factory=list)
    cached_calls: int = 0
    retries: int = 0
    unreadable_replies: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0


class CostLedger:
    """Ledger of requests and tokens that checks the budget before each request."""

    def __init__(
        self, price: Price | None = None, limits: Budget | None = None, before: TotalUsage | None = None
    ) -> None:
        self.limits = limits or Budget()
        self._price = price
        self._rows = {step: _StepUsage() for step in STEPS}
        self._tokens = list(before[1:]) if before is not None else [0, 0, 0]
        """Tokens used over all sessions: prompt, completion and cached prompt tokens."""
        self._calls = before.calls if before is not None else 0
        """Number of requests made or in flight, over all sessions."""
        self._reserved = 0.0
        self._seen: set[str] = set()
        self._unreadable: set[str] = set()
        self._cost_ratio = 1.0
        """Largest ratio of actual to expected cost of a request so far."""
        self.has_unknown_cost = self.limits.cost is not None
        """Whether a cost budget is set and no request has shown the actual cost yet."""
        if self.limits.cost is not None and price is None:
            raise BadInput(
                "a limit on the cost requires a known price",
                hint="add `--token-price IN,OUT` or `--prices FILE`",
            )

    @property
    def spent(self) -> float:
        """Cost of all requests so far, over all sessions, in US dollars."""
        return 0.0 if self._price is None else self._price.of(*self._tokens)

    def reserve(self, size: Callable[[], tuple[int, int]]) -> float:
        """Reserve a request before it is made, and return its expected cost.

        `size` estimates its tokens. Raises `BudgetReached` if the request exceeds the budget.
        """
        if self.limits.calls is not None and self._calls >= self.limits.calls:
            raise BudgetReached(
                f"the limit of {self.limits.calls:,} request{'s' * (self.limits.calls != 1)} is reached"
            )
        cost = 0.0
        if self._price is not None and self.limits.cost is not None:
            cost = self._cost_ratio * self._price.of(*size())
        if self.limits.cost is not None and self.spent + self._reserved + cost > self.limits.cost:
            raise BudgetReached(f"the limit of {self.limits.cost:g} is reached")
        self._calls += 1
        self._reserved += cost
        return cost

    def settle(self, reserved: float, reply: Reply) -> None:
        """Replace the reserved cost of a request by the tokens that it used."""
        self._reserved = max(0.0, self._reserved - reserved)
        tokens = (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens)
        self._tokens = [before + more for before, more in zip(self._tokens, tokens, strict=True)]
        self.has_unknown_cost = False
        if self._price is not None and reserved > 0:
            self._cost_ratio = max(self._cost_ratio, self._cost_ratio * self._price.of(*tokens) / reserved)

    def record_reply(self, step: str, key: str, cached_reply: CachedReply, *, fresh: bool) -> None:
        """Record the use of a reply, new (`fresh`) or cached; each reply is counted once."""
        if key in self._seen:
            return
        self._seen.add(key)
        row, reply = self._rows[step], cached_reply.reply
        row.seconds.append(cached_reply.seconds)
        row.retries += cached_reply.attempts - 1
        row.prompt += reply.prompt_tokens
        row.completion += reply.completion_tokens
        row.cached += reply.cached_tokens
        row.cached_calls += not fresh

    def record_unreadable(self, step: str, key: str) -> None:
        """Record a reply that could not be parsed completely."""
        self._rows[step].unreadable_replies += key not in self._unreadable
        self._unreadable.add(key)

    def record_failure(self, step: str, attempts: int) -> None:
        """Record a call that failed after `attempts` attempts."""
        self._rows[step].retries += attempts

    def steps(self) -> list[CostStep]:
        """Return one row per step with calls."""
        return [self._cost_step(name, row) for name, row in self._rows.items() if row.seconds or row.retries]

    def _cost_step(self, name: str, row: _StepUsage) -> CostStep:
        p50, p95 = percentiles(np.asarray(row.seconds) * 1000, (50, 95))
        cost = None if self._price is None else self._price.of(row.prompt, row.completion, row.cached)
        return CostStep(
            step=name,
            calls=len(row.seconds),
            cached_calls=row.cached_calls,
            retries=row.retries,
            unreadable_replies=row.unreadable_replies,
            prompt_tokens=row.prompt,
            completion_tokens=row.completion,
            cached_tokens=row.cached,
            seconds=sum(row.seconds),
            p50=p50,
            p95=p95,
            cost=cost,
        )


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text.

    A token is four characters, or 1.5 in scripts without spaces.

    >>> estimate_tokens("Twenty-four characters. ")
    6
    """
    wide = 0 if text.isascii() else sum(1 for character in text if character > "\u2e80")
    return round((len(text) - wide) / 4 + wide / 1.5)


_PRICE_HINT = '["gpt-4o-mini"] with input = 0.15, output = 0.6 and maybe cached = 0.075, for a million tokens'


def parse_prices(prices: Any) -> dict[str, Price]:
    """Parse prices by model; raises BadInput if a price is invalid.

    `prices` is `{model: (input, output)}`, `{model: {"input": …, "output": …}}`, or a TOML file of the latter.

    >>> parse_prices({"small": (0.15, 0.6)})["small"].output
    0.6
    """
    if prices is None:
        return {}
    file = str(prices) if isinstance(prices, str | Path) else None
    table = prices if file is None else read_toml(file)
    if not isinstance(table, Mapping):
        raise BadInput(f"prices are {prices!r}", hint=_PRICE_HINT)
    return {str(model): _parse_price(str(model), price, file) for model, price in table.items()}


def _parse_price(model: str, price: Any, file: str | None) -> Price:
    if isinstance(price, Price):
        return price
    parts = dict(price) if isinstance(price, Mapping) else None
    if isinstance(price, tuple | list) and len(price) in (2, 3):
        parts = dict(zip(("input", "output", "cached"), price, strict=False))
    if parts is None or not {"input", "output"} <= parts.keys() <= {"input", "output", "cached"}:
        raise BadInput(f"the price of `{model}` is {price!r}", file=file, hint=_PRICE_HINT)
    for name, value in parts.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise BadInput(f"the {name} price of `{model}` is {value!r}, not a number", file=file, hint=_PRICE_HINT)
    return Price(**parts)
