"""`ragauge compare QRELS RUN… --baseline NAME`: how systems differ, and how sure one can be of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ragauge.cli import console
from ragauge.cli.evaluate import rules_of
from ragauge.comparing import compare as compare_scores
from ragauge.errors import BadInput
from ragauge.formats.rows import read_tags
from ragauge.formats.scores import holds_scores, read_scores
from ragauge.inputs import Given, gather, named, refuse_other_data, trials_in
from ragauge.measures.scoring import score
from ragauge.reports import comparisons as reports
from ragauge.verbs import count, judgments_for, read_measures

MEASURES = ("ndcg@10", "map", "mrr")


def compare(  # noqa: PLR0913 - each is an option of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="QRELS RUN...",
            help="As in evaluate, or folders that `run` wrote, without QRELS; NAME=RUN names a run, and the same name "
            "again is the same system again (seeds). Or tables of scores: run, query, measure, value.",
        ),
    ],
    baseline: Annotated[
        str | None,
        typer.Option("-b", "--baseline", help="Compare with this one, by name or file.  [dim]default every pair[/dim]"),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option("-m", "--measure", help=f"A measure; again for more.  [dim]default {' '.join(MEASURES)}[/dim]"),
    ] = None,
    test: Annotated[str, typer.Option(help="Whose p is corrected: t, wilcoxon, sign, randomisation.")] = "t",
    correction: Annotated[str, typer.Option(help="holm, bonferroni, bh, none.")] = "holm",
    family: Annotated[str, typer.Option(help="Corrected for all comparisons, or for those of a measure.")] = "all",
    confidence: Annotated[float, typer.Option(help="Of the interval; the tests' level is the rest.")] = 0.95,
    interval: Annotated[str, typer.Option(help="bca or percentile bootstrap.")] = "bca",
    rounds: Annotated[int, typer.Option(help="Resamples.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 0,
    margin: Annotated[
        float | None, typer.Option(help="Test non-inferiority and equivalence within this margin.")
    ] = None,
    detect: Annotated[float | None, typer.Option(help="How many queries would this difference need?")] = None,
    power: Annotated[float, typer.Option(help="With which chance it is to be found.")] = 0.8,
    by: Annotated[str | None, typer.Option(help="Also within strata: complexity, or a tag of the queries.")] = None,
    tags: Annotated[str | None, typer.Option(help="A table with a query column: its other columns are tags.")] = None,
    overlap: Annotated[bool, typer.Option("--overlap", help="Compare on the queries that all have.")] = False,
    count_missing: Annotated[
        bool, typer.Option("--count-missing", help="A query that a run lacks counts 0, as in evaluate.")
    ] = False,
    moved: Annotated[int, typer.Option(min=0, help="Show so many queries that rose most, and that fell most.")] = 3,
    convention: Annotated[str, typer.Option("-C", "--convention", help="As in evaluate.")] = "default",
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="OPTION=VALUE", help="One option of the convention.")
    ] = None,
    rel: Annotated[float | None, typer.Option("-l", "--rel", help="The least relevant grade.")] = None,
    depth: Annotated[int | None, typer.Option("-M", "--depth", help="Look at so many documents a query.")] = None,
    split: Annotated[str | None, typer.Option(help="Which judgments of a BEIR folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Markdown on standard output.")] = False,
) -> None:
    """Compare systems: differences with intervals, tests, effects, and the queries that moved.

    [dim]ragauge compare qrels.txt bm25.run dense.run -b bm25 -m ndcg@10 -m recall@100[/dim]

    [dim]ragauge compare runs/pydocs -b bm25 --by complexity[/dim]
    """
    texts: dict[str, str] = {}
    known: dict[str, Any] = {}
    tagged: dict[str, dict[str, str]] = {}
    names = measure
    if all(holds_scores(named(file)[1]) for file in files):
        for file in files:
            name, path = named(file)
            scores, more = read_scores(path)
            if name is not None and len(scores) == 1:
                scores = {name: next(iter(scores.values()))}
            baseline = next(iter(scores)) if baseline == file and len(scores) == 1 else baseline
            twice = next((name for name in scores if name in known), None)
            if twice is not None:
                raise BadInput(f"`{twice}` is in two files", file=file, hint="give each system a name of its own")
            known.update(scores)
            tagged.update(more)
    else:
        given, baseline = _with_baseline(files, baseline)
        refuse_other_data(given)
        rules = rules_of(convention, options or [], rel, depth)
        wanted = read_measures(measure or MEASURES, rules)
        names = [str(one) for one in wanted]
        judgments = judgments_for(wanted, given.qrels, split=split)
        texts.update(given.texts)
        tagged.update({query: dict(values) for query, values in given.tags.items()})
        for name, runs in given.runs.items():
            trials = [trial for run in runs for trial in trials_in(run)]
            found = [score(count(judgments, run, wanted, rules, name=name), wanted, rules) for run in trials]
            known[name] = found[0] if len(found) == 1 else found
    if tags is not None and by is None:
        raise BadInput("--tags does nothing without --by", hint="--by COLUMN")
    if tags is not None:
        for query, values in read_tags(tags).items():
            tagged.setdefault(query, {}).update(values)
    compared = compare_scores(
        known, baseline, measures=names, by=by, tags=tagged, overlap=overlap,
        count_missing=count_missing, test=test, correction=correction, family=family, confidence=confidence,
        interval=interval, rounds=rounds, seed=seed, margin=margin, detect=detect, power=power,
    )  # fmt: skip
    compared = replace(compared, texts=texts)
    if as_json:
        typer.echo(json.dumps(reports.as_data(compared, moved), indent=2, ensure_ascii=False, allow_nan=False))
    elif as_csv:
        typer.echo(reports.as_csv(compared), nl=False)
    elif as_markdown:
        typer.echo(reports.markdown(compared), nl=False)
    else:
        console.show(*reports.tables(compared, console.data().width, moved if len(known) == 2 else 0))
        console.talk(reports.about(compared))


def _with_baseline(files: list[str], baseline: str | None) -> tuple[Given, str | None]:
    """What is given, and the baseline's name: it may be named, or be a file, among the others or beside them."""
    given = gather(files)
    if baseline is None or baseline in given.runs:
        return given, baseline
    place = Path(baseline).resolve()
    if named(baseline)[0] is None and place.exists() and _name_of(given, place) is None:
        given = gather([*files, baseline])
    return given, _name_of(given, place) or baseline


def _name_of(given: Given, place: Path) -> str | None:
    return next((name for name, runs in given.runs.items() if place in [Path(run).resolve() for run in runs]), None)
