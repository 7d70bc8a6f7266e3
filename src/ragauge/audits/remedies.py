"""Remedies by kind of finding. A finding whose remedy depends on its values brings its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ragauge.findings import Finding

REMEDIES: Mapping[str, str] = {
    "expected": "ask for the run file and the judgments behind the number, and count them here",
    "repetitions": "drop repetitions where the run is made; until then `evaluate --set duplicates=first` scores it",
    "ties": "return scores with enough digits, or state the tie rule; "
    "`evaluate --set ties=ranked` scores the order given",
    "score width": "say which width the number is of: `evaluate --set width=float32` counts as trec_eval 9 does",
    "survivorship": "run the missing queries, or count them 0 (`--set missing=zero`) and say how many there are",
    "ground truth": "judge more deeply, or cite no recall of these judgments; precision at small cutoffs suffers least",
    "ceiling": "report recall(of=capped) or a deeper cutoff beside it",
    "depth": "make the run again and deeper, or report the measure at the depth that it has",
    "unjudged": "judge these documents, or report unjudged@10 beside the score and `--set unjudged=condensed` too",
    "pool bias": "judge the top of both runs before comparing them, or compare with `--set unjudged=condensed`",
    "judged only": "search the whole collection, or call it reranking and compare it only with runs of its kind",
    "chance": "look for ids that do not match, scores in the wrong order, or a reranker that does nothing",
    "perfection": "look for judgments that the system has seen, and for questions made from their answers",
    "ordered by grade": "find out whether the grades went into the run; if so, throw it away",
    "all alike": "look at single queries (`evaluate -q`): a constant is no measurement",
    "same run": "find out which of the files is the copy, and leave it out",
    "other data": "run all of them on the same documents and queries",
    "footing": "give all walkers the same embedder and graph, or call it a comparison of whole systems",
    "repeats": "fix seeds and the order of equal scores, or ask three times or more (`run --repeats 3`), which reports "
    "average over",
    "few queries": "judge 25 queries or more, 50 if you can, before you call one system better",
    "enough queries": "judge more queries, or call the runs equal",
    "orphan documents": "mend the ids, or take these judgments out, and say so when you cite the score",
    "orphan queries": "mend the ids, or take these queries out, and say so when you cite the score",
    "duplicates": "keep one document of each text, or give all copies the same judgments",
    "contradictions": "judge these pairs again; until then the better grade is the safer one",
    "empty documents": "find their texts, or take them out of corpus and judgments",
    "near duplicates": "keep one document of each group, or give all of them the same judgments",
    "own documents": "drop each query's own document from its ranking before scoring",
    "shared ids": "score with `--set own=kept`, or give queries and documents different ids",
    "verbatim answers": "report the score without these queries beside the whole, or write them anew in other words",
    "leaking field": "take the field out of what systems can see, or collect judgments that do not depend on it",
    "leaking score": "find out what the score is made of: it must not come from the judgments or from their making",
}
"""Remedies by the name of the finding."""
LEAKING: Mapping[str, str] = {
    "chance": "mend the leak first: judgments that follow a leaking field do not follow the text, and a search by text "
    "can then be no better than chance",
}
"""Remedies that apply instead if judgments leak into the data."""


def with_remedy(one: Finding, *, leaking: bool = False) -> Finding:
    """Return a problem with its remedy.

    Other findings lose their remedy, except one that explains an expected score.
    """
    if one.problem and leaking and one.what in LEAKING:
        return replace(one, remedy=LEAKING[one.what])
    if one.problem:
        return one if one.remedy else replace(one, remedy=REMEDIES[one.what])
    return one if one.what == "expected" else replace(one, remedy="")
