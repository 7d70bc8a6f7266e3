"""Register each result type with its command and its report builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ragauge.ages import Freshness
from ragauge.findings import Lint
from ragauge.lineups import Lineup, Tokenizers
from ragauge.ordeals import Ordeal
from ragauge.overviews import Told
from ragauge.reports import freshness, gains, graphs, lineups, lints, novelties, ordeals, tokenizings
from ragauge.reports.accounts import Account
from ragauge.webs import Web
from ragauge.worths import Gain, Novelty


class Form(NamedTuple):
    """Result type with the functions that report it."""

    noun: type[Any]
    account: Callable[[Any], Account]
    csv: Callable[[Any], str]
    derived: Sequence[str] = ()
    """Properties that are written to the JSON in addition to the fields."""
    joint: Callable[[Sequence[Any]], Account] | None = None
    """Builder of a report that compares several results of this type."""


FORMS: Mapping[str, Form] = {
    "lint": Form(Lint, lints.account, lints.csv),
    "novelty": Form(Novelty, novelties.account, novelties.csv),
    "gain": Form(Gain, gains.account, gains.csv),
    "freshness": Form(Freshness, freshness.account, freshness.csv, freshness.DERIVED, freshness.compared),
    "stress": Form(Ordeal, ordeals.account, ordeals.csv, ("read_back", "measures"), ordeals.compared),
    "embedders": Form(Lineup, lineups.account, lineups.csv),
    "tokenizers": Form(Tokenizers, tokenizings.account, tokenizings.csv),
    "graph": Form(Web, graphs.account, graphs.csv),
}
"""Report builders by the command that produces the result."""


def verb_of(told: Told) -> str:
    """Return the name of the command that produced a result."""
    return next(verb for verb, form in FORMS.items() if isinstance(told, form.noun))


def account(told: Told) -> Account:
    """Build the report of a result."""
    return FORMS[verb_of(told)].account(told)


def joint(several: Sequence[Told]) -> list[Account]:
    """Build a comparing report for each result type with several results."""
    found = []
    for form in FORMS.values():
        mine = [one for one in several if isinstance(one, form.noun)]
        if form.joint is not None and len(mine) > 1:
            found.append(form.joint(mine))
    return found


def accounts_of(several: Sequence[Told]) -> list[Account]:
    """Build the reports of results, comparing ones first."""
    return [*joint(several), *map(account, several)]
