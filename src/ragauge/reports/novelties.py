"""Report of novelty: documents, their nearest known passages, and their claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from ragauge.reports.accounts import Account, Part
from ragauge.reports.charts.novelties import drawn
from ragauge.reports.tables import Rows, counted, csv_text, number, one_line
from ragauge.worths import NEARER, THERE, Claim, DocumentNovelty, Nearest, Novelty

STATES = ("new", "known", "conflicting", "unscored")
FEW = 10
"""Maximum number of documents and claims shown at either end of a table."""
LONG = 240
"""Maximum number of characters of a passage."""


def account(told: Novelty) -> Account:
    """Build the report of novelty."""
    cut = f"chunks of at most {told.chunking.size:,} {told.chunking.unit}"
    cut += f" that share up to {told.chunking.overlap:,}" if told.chunking.overlap else ""
    about = [
        counted(len(told.documents), "document"),
        f"{counted(told.known, 'known document')} in {counted(told.known_chunks, 'chunk')}",
        cut,
        told.embedder,
        *([f"judged by {told.judge}"] if told.judge else []),
    ]
    parts = [*_documents(told), *_claims(told), *_passages(told)]
    unknown = [[one.id, one.why] for one in told.documents if one.why]
    if unknown:
        rows = Rows("", ["document", "why"], unknown, numbers=False)
        parts.append(Part("unscored", "Documents of which nothing can be told", "Unscored", rows=[rows]))
    return Account("novelty", "Novelty", about, headline(told), parts, _meanings(told), told.notes, told.circumstances)


def headline(told: Novelty) -> str:
    """Summarise the result in one sentence.

    >>> from ragauge.worths import Chunking
    >>> one = DocumentNovelty("a", 1, 0.4, 0.4, 0.9, percentile=70.0, claims=[Claim("x", "new"), Claim("y", "known")])
    >>> two = DocumentNovelty("b", 1, 0.0, 0.0, 0.0, percentile=0.0, contained=1.0)
    >>> headline(Novelty([one, two], 9, 9, "words", Chunking(1000)))
    '1 of 2 documents is new, 1 is there already; of 2 claims 1 is new, 1 is known.'
    """
    states = Counter(one.state for one in told.documents)
    n = len(told.documents)
    known = [one.mean for one in told.documents if not math.isnan(one.mean)]
    if states["new"] + states["near"] == 0 and states["there"] < len(known):
        of = counted(len(known), "document")
        text = f"The novelty of {of} is {sum(known) / len(known):.3f} in the mean"
        if states["there"]:
            text += f", {states['there']:,} {'is' if states['there'] == 1 else 'are'} there already"
        if told.compared_documents:
            text += f"; too few known documents ({told.compared_documents:,}) to tell what is near"
    elif not known:
        text = "Nothing can be told"
    else:
        be = "is" if states["new"] == 1 else "are"
        text = f"{states['new']:,} of {counted(n, 'document')} {be} new"
        for state, words in (("near", "near to a known one"), ("there", "there already")):
            if states[state]:
                text += f", {states[state]:,} {'is' if states[state] == 1 else 'are'} {words}"
        text += f", of {states['']:,} nothing can be told" if states[""] else ""
    claims = Counter(claim.state for one in told.documents for claim in one.claims)
    if claims:
        parts = [f"{claims[one]:,} {'is' if claims[one] == 1 else 'are'} {one}" for one in STATES if claims[one]]
        text += f"; of {counted(claims.total(), 'claim')} {', '.join(parts)}"
    return f"{text}."


def _meanings(told: Novelty) -> list[str]:
    """Define the states named in the summary."""
    if all(not one.state for one in told.documents):
        return []
    of = f"{told.compared_documents:,} known documents ({counted(told.compared, 'chunk')})"
    ranked = any(one.state in ("new", "near") for one in told.documents)
    near = f"near: nearer than {100 - NEARER:.0f}% of {of} are to the others; " if ranked else ""
    return [f"{near}there: one known document has {THERE:.0%} of its words, three at a time."]


def _documents(told: Novelty) -> list[Part]:
    ordered = sorted(told.documents, key=lambda one: (math.isnan(one.mean), -one.mean))
    text = (
        "mean: 1 - the highest cosine, over its chunks; least: of its nearest chunk; words: the part of its words, "
        "three at a time, that is not known; %: where that is among known documents."
    )
    header = ["document", "mean", "%", "least", "%", "words", "%", "chunks", "state", "nearest"]
    rows = [_row(one) for one in ordered]
    goes = (7, 4, 3, 6, 9)
    charts = drawn(told)
    if len(rows) <= 2 * FEW:
        return [
            Part(
                "documents",
                "Documents, the newest first",
                "Documents",
                text,
                [Rows("", header, rows, goes=goes)],
                charts,
            )
        ]
    return [
        Part(
            "documents",
            "Documents, the newest and the nearest",
            "Documents",
            text,
            [
                Rows(f"The {FEW} newest", header, rows[:FEW], goes=goes),
                Rows(f"The {FEW} nearest", header, rows[-FEW:], goes=goes),
            ],
            charts,
        ),
        Part(
            "all", f"All {len(rows):,} documents", "All documents", rows=[Rows("", header, rows, goes=goes)], long=True
        ),
    ]


def _row(one: DocumentNovelty) -> list[str]:
    pairs = ((one.mean, one.percentile), (one.least, one.least_percentile), (one.lexical, one.lexical_percentile))
    figures = [text for value, rank in pairs for text in (_figure(value), _rank(rank))]
    near = nearest(one)
    return [one.id, *figures, f"{one.chunks:,}", one.state or "-", near.document if near else "-"]


def nearest(one: DocumentNovelty) -> Nearest | None:
    """Return the chunk of a document that is most similar to a known one, or None."""
    found = [each for each in one.nearest if not math.isnan(each.similarity)]
    return max(found, key=lambda each: each.similarity) if found else None


def _figure(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _rank(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.0f}"


def _claims(told: Novelty) -> list[Part]:
    claims = [(one.id, claim) for one in told.documents for claim in one.claims]
    if not claims:
        return []
    parts = []
    counts = [
        [one.id, *(f"{Counter(each.state for each in one.claims)[state]:,}" for state in STATES)]
        for one in told.documents
        if one.claims
    ]
    parts.append(Part("claims", "Claims", "Claims", rows=[Rows("", ["document", *STATES], counts[: 2 * FEW])]))
    for state, title in (("conflicting", "What known documents contradict"), ("new", "What no known document says")):
        mine = [(name, claim) for name, claim in claims if claim.state == state]
        if mine:
            parts.append(Part(state, title, f"{state} claims".capitalize(), rows=[_told(mine[:FEW])]))
    parts.append(Part("all-claims", f"All {len(claims):,} claims", "All claims", rows=[_told(claims)], long=True))
    return parts


def _told(claims: Sequence[tuple[str, Claim]]) -> Rows:
    rows = [
        [name, shortened(claim.text), claim.state, ", ".join(claim.by) or "-", shortened(claim.why)]
        for name, claim in claims
    ]
    return Rows("", ["document", "claim", "state", "known from", "why"], rows, numbers=False)


def _passages(told: Novelty) -> list[Part]:
    pairs = [(one.id, near) for one in told.documents if (near := nearest(one)) and near.near]
    pairs.sort(key=lambda pair: -pair[1].similarity)
    if not pairs:
        return []
    title = "The nearest passages side by side"
    few = Part("passages", title, "Passages", rows=[_side_by_side(pairs[:3])])
    if len(pairs) <= 3:
        return [few]
    return [
        few,
        Part("all-passages", f"{title}, of all documents", "All passages", rows=[_side_by_side(pairs)], long=True),
    ]


def _side_by_side(pairs: Sequence[tuple[str, Nearest]]) -> Rows:
    rows = [
        [name, shortened(near.text), f"{near.similarity:.3f}", near.document, shortened(near.near)]
        for name, near in pairs
    ]
    return Rows("", ["document", "it says", "cosine", "known", "it says"], rows, numbers=False)


def shortened(text: str) -> str:
    """Return a passage on one line, cut to MAX_PASSAGE_CHARS."""
    line = one_line(text)
    return line if len(line) <= LONG else f"{line[: LONG - 1]}…"


def csv(told: Novelty) -> str:
    """Render one CSV row per document."""
    header = ["document", "chunks", "mean", "percentile", "least", "least_percentile", "lexical", "lexical_percentile"]
    header += ["contained", "container", "state", "nearest", *(f"{state}_claims" for state in STATES), "why"]
    rows = []
    for one in told.documents:
        near, states = nearest(one), Counter(claim.state for claim in one.claims)
        figures = (one.mean, one.percentile, one.least, one.least_percentile, one.lexical, one.lexical_percentile)
        rows.append(
            [
                one.id,
                str(one.chunks),
                *(number(value) for value in (*figures, one.contained)),
                one.container,
                one.state,
                near.document if near else "",
                *(str(states[state]) if one.claims else "" for state in STATES),
                one.why,
            ]
        )
    return csv_text(header, rows)
