"""Whether compared runs had equal conditions, and the scores of one run under every preset."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.audits.audit_input import AuditInput
from ragauge.core.errors import MissingEvidence, RagaugeError
from ragauge.core.findings import Finding, FindingTable
from ragauge.evaluation.evaluate import with_target_map
from ragauge.measures.conventions import PRESETS, Convention
from ragauge.measures.names import Measure, make_measure
from ragauge.output.numbers import format_change, join_names, pluralise
from ragauge.runs.results import iterate_parts

CONVENTIONS_FINDING = "conventions"
REFUSED_CELL = "refused"


def restate_measure(measure: Measure, convention: Convention, other: Convention) -> Measure:
    """Translate a measure from one convention to another.

    Options set by the first convention become those of the other. Options chosen for this measure are kept.

    >>> from ragauge.measures.names import parse_measure as parse
    >>> str(restate_measure(parse("ndcg@10"), PRESETS["default"], PRESETS["rig"]))
    'ndcg(gain=exp)@10'
    """
    cutoff = measure.cutoff
    if measure.spec.name == "mrr" and cutoff == convention.mrr_depth:
        cutoff = None
    usual = {"rel": convention.rel, **dict(make_measure(measure.spec, measure.cutoff, {}, convention).options)}
    chosen = {name: value for name, value in measure.options if value != usual[name]}
    rel = {"rel": chosen.pop("rel")} if "rel" in chosen else {}
    restated = make_measure(measure.spec, cutoff, chosen, other)
    if not rel or "rel" not in dict(restated.options):  # The other convention may use a gain without a minimum grade.
        return restated
    return make_measure(measure.spec, cutoff, chosen | rel, other)


@dataclass(frozen=True)
class PresetScores:
    """Means of a run under one preset, by measure, or the reasons for missing ones."""

    values: tuple[float | None, ...]
    reasons: tuple[str, ...]

    def agrees(self, other: PresetScores) -> bool:
        """Return whether two presets give the same scores to four decimals.

        The reasons for missing scores must be equal too.
        """
        pairs = zip(self.values, other.values, strict=True)
        return self.reasons == other.reasons and all(
            _format_preset_score(a) == _format_preset_score(b) for a, b in pairs
        )


def _format_preset_score(value: float | None) -> str:
    return REFUSED_CELL if value is None else f"{value:.4f}"


def score_under_preset(
    audit_input: AuditInput, run: str, preset: Convention, measures: Sequence[Measure]
) -> PresetScores:
    """Score a run under a preset.

    A measure that the preset rejects gets its reason instead.
    """
    values: list[float | None] = []
    reasons: list[str] = []
    for measure in measures:
        try:
            restated = restate_measure(measure, audit_input.convention, preset)
            mean = next(iter(audit_input.scores(run, convention=preset, measures=[restated]).means.values()))
            values.append(None if math.isnan(mean) else mean)
            reasons.append("no query was scored" if math.isnan(mean) else "")
        except RagaugeError as error:
            values.append(None)
            reasons.append(error.message)
    return PresetScores(tuple(values), tuple(reasons))


def check_conventions(audit_input: AuditInput) -> Iterator[Finding]:
    """Score every run under every preset; presets with equal scores share a row.

    With several runs, only the first measure is scored. A minimum relevant grade that the user chose applies to every
    preset. If the judgments have several relevant grades, a row uses
    the second of them as the minimum relevant grade. Never a problem.
    """
    measures = list(audit_input.measures if len(audit_input.runs) == 1 else audit_input.measures[:1])
    higher = _higher_rel_convention(audit_input, measures)
    overrides = {"rel": audit_input.convention.rel} if audit_input.convention.rel_stated else {}
    presets = {
        name: with_target_map(preset.but(**overrides), audit_input.judgments) for name, preset in PRESETS.items()
    }
    presets |= higher
    conventions = {
        run: {name: score_under_preset(audit_input, run, convention, measures) for name, convention in presets.items()}
        for run in audit_input.runs
    }
    for name in higher:
        if all(rows[name].agrees(rows["default"]) for rows in conventions.values()):
            del presets[name]
            conventions = {
                run: {convention: row for convention, row in rows.items() if convention != name}
                for run, rows in conventions.items()
            }
    groups = _group_equal_presets(list(conventions.values()))
    heads = [group[0] for group in groups]
    if len(conventions) == 1:
        rows = next(iter(conventions.values()))
        table = [[", ".join(group), *_preset_cells(rows[group[0]])] for group in groups]
        grid = FindingTable(["convention", *map(str, measures)], table)
        subject = next(iter(conventions))
    else:
        table = [[run, *(_preset_cells(rows[head])[0] for head in heads)] for run, rows in conventions.items()]
        grid = FindingTable([f"{measures[0]} of", *heads], table)
        subject = "all runs"
    equal = [" = ".join(group) for group in groups if len(group) > 1]
    same = f": {', '.join(equal)}" if equal and len(conventions) > 1 else ""
    first = [row.values[0] for rows in conventions.values() for row in rows.values()]
    yield Finding(
        subject,
        CONVENTIONS_FINDING,
        problem=False,
        count=len(groups),
        message=(
            f"{len(presets)} conventions give {pluralise(len(groups), 'set')} of scores{same}"
            f"{_refusal_text(conventions)}"
        ),
        effect=_convention_effect(str(measures[0]), [value for value in first if value is not None])
        if len(conventions) == 1
        else "",
        table=grid,
    )


def _higher_rel_convention(audit_input: AuditInput, measures: Sequence[Measure]) -> dict[str, Convention]:
    """Return the default convention with a higher minimum relevant grade, by name.

    Empty if that changes no measure.
    """
    grades = sorted({grade for docs in audit_input.judgments.nested.values() for grade in docs.values() if grade >= 1})
    if (
        audit_input.convention.rel != 1
        or len(grades) < 2
        or not any("rel" in dict(measure.options) for measure in measures)
    ):
        return {}
    higher = PRESETS["default"].but(rel=grades[1])
    return {f"default, rel={grades[1]:g}": higher}


def _group_equal_presets(runs: Sequence[Mapping[str, PresetScores]]) -> list[list[str]]:
    """Group the presets that agree on every run, in their given order."""
    groups: list[list[str]] = []
    for name in runs[0]:
        for group in groups:
            if all(rows[name].agrees(rows[group[0]]) for rows in runs):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _preset_cells(row: PresetScores) -> list[str | float | None]:
    return [REFUSED_CELL if value is None else value for value in row.values]


def _refusal_text(scores_by_run: Mapping[str, Mapping[str, PresetScores]]) -> str:
    """Describe which presets reject the run, with each reason given once."""
    presets_by_reason: dict[str, list[str]] = {}
    for rows in scores_by_run.values():
        for name, row in rows.items():
            for reason in dict.fromkeys(filter(None, row.reasons)):
                presets = presets_by_reason.setdefault(reason, [])
                if name not in presets:
                    presets.append(name)
    if not presets_by_reason:
        return ""
    return "; refused: " + "; ".join(f"{', '.join(names)} ({reason})" for reason, names in presets_by_reason.items())


def _convention_effect(measure: str, values: Sequence[float]) -> str:
    return format_change(measure, min(values), max(values)) if values else ""


RunFacts = Mapping[str, str]
DATA_FACTS = ("documents", "queries")
OPTIONAL_FACTS = {"seeds": "seeds", "links of a node": "most_links"}
"""Facts that only some graph walkers have, with their keys in the run's evidence.

A walker without such a fact does not count as different.
"""
WALKER_FACTS = ("embedder", "graph", "prior", *OPTIONAL_FACTS)
"""Facts that determine what a graph walker sees: embedder, graph, preferred metadata field, and limits on them."""
COMPARED_FACTS = (*DATA_FACTS, "depth", "repeats", *WALKER_FACTS, "budget")
"""All compared facts, in the order in which they are reported."""


def check_comparability(audit_input: AuditInput) -> Iterator[Finding]:
    """Check that runs used the same data, depth, repeats, budget and resources.

    A problem if documents or queries differ. Also a problem if runs that walk a graph differ in what they see: the
    embedder, the graph (by its fingerprint), the preferred metadata field, the number of seeds, or the number of
    links per node. Other differences are reported but are not problems: BM25 has no embedder, and a deeper run is
    legitimate. Only facts in the manifests are compared. A single run gives no finding.
    """
    facts_by_run = {
        name: facts_from_manifest(run.manifest) for name, run in audit_input.runs.items() if run.manifest.get("plan")
    }
    if len(audit_input.runs) < 2:
        return
    if len(facts_by_run) < 2:
        raise MissingEvidence(
            "the provenance of the runs is unknown", hint="folders written by `ragauge run` contain it"
        )
    differing_data = differing_facts(facts_by_run, DATA_FACTS)
    if differing_data:
        text = f"the runs do not use the same {' and '.join(differing_data)}"
        yield Finding(
            "all runs",
            "other data",
            problem=True,
            count=len(facts_by_run),
            message=text,
            table=_facts_grid(facts_by_run, differing_data),
        )
    walkers = {name: facts for name, facts in facts_by_run.items() if facts["graph"]}
    unlike = differing_facts(walkers, WALKER_FACTS)
    if unlike:
        text = f"{join_names(list(walkers))} are graph retrievers with different inputs: {_join_with_and(unlike)}"
        grid = _facts_grid(walkers, unlike)
        yield Finding(
            "all runs",
            "comparability",
            problem=True,
            count=len(walkers),
            message=text,
            table=grid,
            remedy=_comparability_remedy(unlike),
        )
    unequal = [name for name in differing_facts(facts_by_run, COMPARED_FACTS) if name not in (*differing_data, *unlike)]
    if unequal:
        has_same_inputs = len(walkers) > 1 and not unlike
        text = f"all {pluralise(len(walkers), 'run')} of graph retrievers have the same inputs; " * has_same_inputs
        text += (
            f"the runs differ in {_join_with_and(unequal)}, so a difference in scores is the effect of all of these "
            f"together"
        )
        yield Finding(
            "all runs",
            "comparability",
            problem=False,
            count=len(facts_by_run),
            message=text,
            table=_facts_grid(facts_by_run, unequal),
        )
    if not (differing_data or unlike or unequal):
        same = [name for name in COMPARED_FACTS if next(iter(facts_by_run.values()))[name]]
        yield Finding(
            "all runs",
            "comparability",
            problem=False,
            count=0,
            message=f"all {pluralise(len(facts_by_run), 'run')} have the same {_join_with_and(same)}",
        )


def facts_from_manifest(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Extract the compared facts from a manifest as comparable texts.

    Empty if a fact is missing.
    """
    plan, data = manifest.get("plan") or {}, manifest.get("dataset") or {}
    parts = list(iterate_parts(manifest.get("evidence") or {}))
    graphs = [part["graph"] for part in parts if isinstance(part.get("graph"), Mapping)]
    steps = [int(part["steps"]) for part in parts if isinstance(part.get("steps"), int)]
    return {
        "documents": _count_with_hash(data, "documents"),
        "queries": _count_with_hash(data, "queries"),
        "depth": str(plan.get("k") or ""),
        "repeats": str(plan.get("repeats") or ""),
        "embedder": _join_unique(str(part.get("embedder") or "") for part in parts),
        "graph": _join_unique(
            f"{pluralise(int(graph.get('links') or 0), 'link')} ({graph.get('fingerprint')})" for graph in graphs
        ),
        "prior": _join_unique(metadata_priors(manifest)),
        **{name: _join_unique(str(part.get(key) or "") for part in parts) for name, key in OPTIONAL_FACTS.items()},
        "budget": f"{sum(steps):,}" if steps else "",
    }


def differing_facts(facts_by_run: Mapping[str, RunFacts], names: Sequence[str]) -> list[str]:
    """Return the names of the facts in which some runs differ."""
    facts = {name: {run_facts[name] for run_facts in facts_by_run.values()} for name in names}
    return [name for name, values in facts.items() if len(values - {""} if name in OPTIONAL_FACTS else values) > 1]


def metadata_priors(manifest: Mapping[str, Any]) -> set[str]:
    """Return the metadata fields by which a run preferred documents."""
    return {str(part["prior"]) for part in iterate_parts(manifest.get("evidence") or {}) if part.get("prior")}


def _comparability_remedy(unlike: Sequence[str]) -> str:
    """Return the remedy if walkers differ in a preferred field, else an empty text.

    A shared prior is only fair if the field does not leak.
    """
    if "prior" not in unlike:
        return ""
    same = [name for name in unlike if name != "prior"]
    also = f"give all graph retrievers the same {_join_with_and(same)}, and " if same else ""
    return (
        f"{also}run all systems without a prior (a shared prior is fair only if the check `predictors` finds no "
        f"leak), or report it as a comparison of whole systems"
    )


def _count_with_hash(data: Mapping[str, Any], noun: str) -> str:
    return f"{data.get(noun)} ({str(data[f'{noun}_hash'])[:10]})" if data.get(f"{noun}_hash") else ""


def _join_unique(texts: Iterable[str]) -> str:
    return " + ".join(sorted(set(filter(None, texts))))


def _join_with_and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _facts_grid(facts_by_run: Mapping[str, RunFacts], names: Sequence[str]) -> FindingTable:
    return FindingTable(
        ["run", *names], [[run, *(facts[name] or None for name in names)] for run, facts in facts_by_run.items()]
    )
