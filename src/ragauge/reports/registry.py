"""Write results to files in every output format, and read them back from JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ragauge.core.errors import BadInput
from ragauge.core.protocols import Result
from ragauge.embedder_study import report as embedder_study_report
from ragauge.embedder_study import tokenizer_report
from ragauge.embedder_study.report import long_csv
from ragauge.embedder_study.results import Lineup, Tokenizers
from ragauge.files.json_files import read_json
from ragauge.files.serialization import from_data, to_data
from ragauge.files.source import Source
from ragauge.knowledge.freshness import report
from ragauge.knowledge.freshness.results import Freshness
from ragauge.knowledge.gain import report as gain_report
from ragauge.knowledge.gain.results import Gain
from ragauge.knowledge.graph import report as graph_report
from ragauge.knowledge.graph.results import Web
from ragauge.knowledge.lint import report as lint_report
from ragauge.knowledge.lint.results import Lint
from ragauge.knowledge.novelty import report as novelty_report
from ragauge.knowledge.novelty.results import Novelty
from ragauge.output import report as output_report
from ragauge.output.formats import Kind, kind_of, write_charts, written
from ragauge.output.page import charts as drawn
from ragauge.output.page import page, vega
from ragauge.output.report import Account
from ragauge.reports.layouts import tokenization
from ragauge.store_stress import report as store_stress_report
from ragauge.store_stress.results import Ordeal

Told = Lint | Novelty | Gain | Freshness | Ordeal | Lineup | Tokenizers | Web
"""Results that can be reported together with an overview of systems."""


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
    "lint": Form(Lint, lint_report.account, lint_report.csv),
    "novelty": Form(Novelty, novelty_report.account, novelty_report.csv),
    "gain": Form(Gain, gain_report.account, gain_report.csv),
    "freshness": Form(Freshness, report.account, report.csv, report.DERIVED, report.compared),
    "stress": Form(
        Ordeal,
        store_stress_report.account,
        store_stress_report.csv,
        ("read_back", "measures"),
        store_stress_report.compared,
    ),
    "embedders": Form(Lineup, embedder_study_report.account, embedder_study_report.csv),
    "tokenizers": Form(Tokenizers, tokenizer_report.account, tokenizer_report.csv),
    "graph": Form(Web, graph_report.account, graph_report.csv),
}
"""Report builders by the command that produces the result."""


def verb_of(told: Result) -> str:
    """Return the name of the command that produced a result."""
    return next(verb for verb, form in FORMS.items() if isinstance(told, form.noun))


def account(told: Result) -> Account:
    """Build the report of a result."""
    return FORMS[verb_of(told)].account(told)


def joint(several: Sequence[Result]) -> list[Account]:
    """Build a comparing report for each result type with several results."""
    found = []
    for form in FORMS.values():
        mine = [one for one in several if isinstance(one, form.noun)]
        if form.joint is not None and len(mine) > 1:
            found.append(form.joint(mine))
    return found


def accounts_of(several: Sequence[Result]) -> list[Account]:
    """Build the reports of results, comparing ones first."""
    return [*joint(several), *map(account, several)]


Noun = TypeVar("Noun")
SCHEMA = "ragauge-{}/1"
"""Template of the `schema` field in the JSON of a command's result."""
HEAD = 200
"""Number of leading characters that are searched for the schema of a file."""


def as_data(told: Result) -> dict[str, Any]:
    """Convert a result to JSON-serialisable data: schema, fields and derived values."""
    verb = verb_of(told)
    derived = {name: to_data(getattr(told, name)) for name in FORMS[verb].derived}
    return {"schema": SCHEMA.format(verb), **to_data(told), **derived}


def as_json(told: Told | Sequence[Told]) -> str:
    """Return results as JSON text: an object for one result, a list for several."""
    several = _several(told)
    data = [as_data(one) for one in several]
    return json.dumps(data[0] if len(data) == 1 else data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(told: Told | Sequence[Told]) -> str:
    """Return the main table of results as CSV.

    Raises BadInput if the results are of different types or have different columns.
    """
    several = _several(told)
    verbs = sorted({verb_of(one) for one in several})
    if len(verbs) > 1:
        raise BadInput(f"one table cannot hold {' and '.join(verbs)}", hint="a page (.html) or Markdown (.md) can")
    first, *others = [FORMS[verbs[0]].csv(one) for one in several]
    header = first.partition("\n")[0]
    if any(one.partition("\n")[0] != header for one in others):
        raise BadInput("these results have different columns", hint="a table for each")
    return "".join([first, *(one.partition("\n")[2] for one in others)])


def _only(several: Sequence[Told], noun: type[Noun], form: str) -> Noun:
    """Return the only result, or raise BadInput if the format does not apply to it."""
    found = [one for one in several if isinstance(one, noun)]
    if len(found) != 1 or len(several) != 1:
        raise _not_for(form, noun)
    return found[0]


def refuse_form(form: str, noun: type[Told]) -> None:
    """Raise BadInput if a format exists only for another type of result."""
    wanted = ONLY.get(form, noun)
    if wanted is not noun:
        raise _not_for(form, wanted)


def _not_for(form: str, noun: type[Any]) -> BadInput:
    verb = next(verb for verb, one in FORMS.items() if one.noun is noun)
    return BadInput(f"the form `{form}` is for one result of `{verb}`", hint="--as json, --as csv, …")


ONLY: Mapping[str, type[Any]] = {"long": Lineup, "tokenization": Lineup, "tokenizer": Tokenizers}
"""Formats that exist for one type of result only, with that type."""
KINDS: Mapping[str, Kind[Sequence[Told]]] = {
    "html": Kind(".html", "one self-contained page", lambda several: page(accounts_of(several), vega())),
    "json": Kind(".json", "everything, to be read again", as_json),
    "csv": Kind(".csv", "a row for each document, query or finding", as_csv),
    "markdown": Kind(".md", "tables for a wiki", lambda several: output_report.markdown(accounts_of(several))),
    "long": Kind(
        ".csv",
        "of embedders, a row for each figure at each dimension, size and perturbation",
        lambda several: long_csv(_only(several, Lineup, "long")),
    ),
    "tokenization": Kind(
        ".csv",
        "of embedders, the tokenization study's table",
        lambda several: tokenization.write_study(_only(several, Lineup, "tokenization")),
    ),
    "tokenizer": Kind(
        ".csv",
        "of tokenizers, the tokenization study's table",
        lambda several: tokenization.write_tokenizers(_only(several, Tokenizers, "tokenizer")),
    ),
}
"""Output formats by name. If several share a file ending, the ending selects the first."""


def _several(told: Told | Sequence[Told]) -> Sequence[Told]:
    return list(told) if isinstance(told, Sequence) else [told]


def write(
    told: Told | Sequence[Told], files: Sequence[str], form: str | None = None, charts: str | Path | None = None
) -> None:
    """Write results to files in the format of `form` or of each file ending.

    If `charts` is given, also write every chart to that folder.
    """
    several = _several(told)
    kinds = {file: kind_of(file, form, KINDS) for file in files}
    for file, kind in kinds.items():
        written(several, KINDS[kind], file)
    if charts is not None:
        write_charts(drawn(accounts_of(several)), Path(charts))


def is_told(path: str | Path) -> bool:
    """Return whether a file is a JSON result of ragauge.

    Only its first characters are checked.
    """
    place = Path(path)
    if place.suffix != ".json" or not place.is_file():
        return False
    with place.open(encoding="utf-8", errors="replace") as file:
        head = file.read(HEAD)
    return any(f'"{SCHEMA.format(verb)}"' in head for verb in FORMS)


def read(path: str | Path) -> list[Told]:
    """Read the results in a JSON file, usually one.

    Raises BadInput if the file contains anything else.
    """
    data = read_json(Source(str(path)))
    found: list[Told] = []
    for one in data if isinstance(data, list) else [data]:
        schema = one.get("schema") if isinstance(one, dict) else None
        verb = next((verb for verb in FORMS if schema == SCHEMA.format(verb)), None)
        if verb is None:
            raise BadInput(f"this is no result of {', '.join(FORMS)}", file=str(path))
        found.append(from_data(FORMS[verb].noun, one, file=str(path)))
    return found
