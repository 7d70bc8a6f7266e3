"""Relations and question templates of the dataset `synthetic:graph`.

Documents and questions share names and types, but no other content words: they describe a relation with different
words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class GraphRelation(NamedTuple):
    """Relation from entities of type `source` ({a}) to entities of type `target` ({b}), with the number of targets."""

    source: str
    target: str
    min_targets: int
    max_targets: int
    sentences: tuple[str, ...]


class QuestionPath(NamedTuple):
    """Question over one to three relations; a step prefixed with `<` goes from target to source."""

    steps: tuple[str, ...]
    questions: tuple[str, ...]


GRAPH_RELATIONS: Mapping[str, GraphRelation] = {
    "works at": GraphRelation(
        "researcher",
        "lab",
        1,
        1,
        (
            "{a} has a desk at {b}.",
            "{a} joined the staff of {b}.",
            "{b} counts {a} among its staff.",
            "On the payroll of {b} stands {a}.",
        ),
    ),
    "comes from": GraphRelation(
        "researcher",
        "place",
        1,
        1,
        (
            "{a} grew up in {b}.",
            "{b} is where {a} went to school.",
            "The parents of {a} still live in {b}.",
            "{b} sent {a} into the world.",
        ),
    ),
    "stands in": GraphRelation(
        "lab",
        "place",
        1,
        1,
        (
            "{a} stands in {b}.",
            "The roofs of {a} rise over {b}.",
            "{b} lent its old mill to {a}.",
            "From {b} a path leads up to the gate of {a}.",
        ),
    ),
    "kept at": GraphRelation(
        "instrument",
        "lab",
        1,
        1,
        (
            "{a} is kept at {b}.",
            "The key to {a} hangs in {b}.",
            "{b} looks after {a}.",
            "A whole floor of {b} is reserved for {a}.",
        ),
    ),
    "built at": GraphRelation(
        "instrument",
        "lab",
        1,
        1,
        (
            "{a} left the workshop of {b}.",
            "The workshop of {b} put {a} together.",
            "Every screw of {a} was turned at {b}.",
            "{b} still has the drawings of {a}.",
        ),
    ),
    "written by": GraphRelation(
        "paper",
        "researcher",
        1,
        3,
        (
            "{a} carries the name of {b} on its cover.",
            "{b} signed {a}.",
            "{b} spent two winters on {a}.",
            "The wording of {a} owes much to {b}.",
        ),
    ),
    "measured with": GraphRelation(
        "paper",
        "instrument",
        1,
        2,
        (
            "The readings in {a} come from {b}.",
            "Without {b} the tables of {a} would be empty.",
            "{b} supplied the readings behind {a}.",
            "{a} thanks the crew of {b}.",
        ),
    ),
    "applies": GraphRelation(
        "paper",
        "method",
        1,
        2,
        (
            "{a} leans on {b}.",
            "{b} carries the argument of {a}.",
            "The second half of {a} follows {b} step by step.",
            "{a} is a fine exercise in {b}.",
        ),
    ),
    "devised by": GraphRelation(
        "method",
        "researcher",
        1,
        2,
        (
            "{b} thought up {a}.",
            "{a} was an idea of {b}.",
            "The first sketch of {a} is in the hand of {b}.",
            "{a} came to {b} on a train.",
        ),
    ),
    "replies to": GraphRelation(
        "paper",
        "paper",
        0,
        2,
        (
            "{a} picks up where {b} stopped.",
            "{a} argues against {b}.",
            "{b} provoked {a}.",
            "A footnote in {a} quarrels with {b}.",
        ),
    ),
    "pupil of": GraphRelation(
        "researcher",
        "researcher",
        0,
        1,
        (
            "{a} learned the trade from {b}.",
            "{b} took {a} on as a pupil.",
            "As a pupil {a} swept the floor for {b}.",
            "{a} still sends drafts to {b}.",
        ),
    ),
    "allied with": GraphRelation(
        "lab",
        "lab",
        0,
        1,
        (
            "{a} and {b} share a budget.",
            "A treaty binds {a} and {b}.",
            "{a} lends books to {b}.",
            "{b} and {a} hold a yearly feast.",
        ),
    ),
    "refines": GraphRelation(
        "method",
        "method",
        0,
        1,
        (
            "{a} mends a weakness of {b}.",
            "{b} was too slow, which led to {a}.",
            "{a} is what became of {b}.",
            "{b} is contained in {a}.",
        ),
    ),
}
"""Relations by name. No question is about the last two, so that not every link leads to a relevant document."""

QUESTION_PATHS = (
    QuestionPath(("works at",), ("Which lab employs {who}?", "By which lab is {who} employed?")),
    QuestionPath(
        ("<works at",), ("Which researchers are employed by {who}?", "Which researchers are employees of {who}?")
    ),
    QuestionPath(
        ("<comes from",), ("Which researchers are natives of {who}?", "Which researchers were born at {who}?")
    ),
    QuestionPath(("<stands in",), ("Which labs are located at {who}?", "What labs does {who} host?")),
    QuestionPath(("<kept at",), ("Which instruments does {who} house?", "What instruments belong to {who}?")),
    QuestionPath(
        ("<built at",), ("Which instruments did {who} construct?", "What instruments were manufactured by {who}?")
    ),
    QuestionPath(
        ("written by",), ("Which researchers are the authors of {who}?", "Which researchers published {who}?")
    ),
    QuestionPath(("<written by",), ("Which papers have {who} as an author?", "What papers has {who} published?")),
    QuestionPath(
        ("measured with",), ("Which instruments delivered data for {who}?", "What instruments does {who} rely upon?")
    ),
    QuestionPath(
        ("<measured with",), ("Which papers rely upon data of {who}?", "What papers were published with data of {who}?")
    ),
    QuestionPath(("applies",), ("Which methods does {who} use?", "What methods are used by {who}?")),
    QuestionPath(("<applies",), ("Which papers use {who}?", "What papers were published using {who}?")),
    QuestionPath(("<devised by",), ("Which methods did {who} invent?", "Of which methods is {who} the inventor?")),
    QuestionPath(("<replies to",), ("Which papers cite {who}?", "By what other papers is {who} cited?")),
    QuestionPath(("built at", "<works at"), ("Which researchers are employed where {who} was constructed?",)),
    QuestionPath(("kept at", "<works at"), ("Which researchers are employees of the lab that houses {who}?",)),
    QuestionPath(("kept at", "stands in"), ("In what place is the lab located that houses {who}?",)),
    QuestionPath(("works at", "<kept at"), ("Which instruments does the employer of {who} house?",)),
    QuestionPath(("works at", "stands in"), ("In what place is the employer of {who} located?",)),
    QuestionPath(("<written by", "measured with"), ("Which instruments delivered data for papers authored by {who}?",)),
    QuestionPath(
        ("<written by", "written by"),
        ("Which researchers have published together with {who}?", "Which researchers are co-authors of {who}?"),
    ),
    QuestionPath(("<devised by", "<applies"), ("Which papers use a method that {who} invented?",)),
    QuestionPath(("applies", "devised by"), ("Which researchers invented the methods that {who} uses?",)),
    QuestionPath(("measured with", "kept at"), ("Which labs house the instruments that delivered data for {who}?",)),
    QuestionPath(
        ("<measured with", "written by"), ("Which researchers are the authors of papers with data of {who}?",)
    ),
    QuestionPath(("<measured with", "applies"), ("Which methods are used upon data of {who}?",)),
    QuestionPath(("<stands in", "<kept at"), ("Which instruments are housed by labs located at {who}?",)),
    QuestionPath(("<comes from", "<written by"), ("Which papers have authors born at {who}?",)),
    QuestionPath(("<applies", "measured with"), ("Which instruments delivered data for papers that use {who}?",)),
    QuestionPath(("<replies to", "written by"), ("Which researchers are the authors of papers that cite {who}?",)),
    QuestionPath(("<pupil of", "<written by"), ("What papers were published by researchers whom {who} supervised?",)),
    QuestionPath(("<works at", "comes from"), ("In what places were the employees of {who} born?",)),
    QuestionPath(
        ("works at", "<kept at", "<measured with"),
        ("Which papers rely upon data of instruments that the employer of {who} houses?",),
    ),
    QuestionPath(
        ("applies", "devised by", "works at"),
        ("Which labs employ the inventors of the methods that {who} uses?",),
    ),
    QuestionPath(
        ("built at", "<works at", "<devised by"),
        ("Which methods were invented by researchers employed where {who} was constructed?",),
    ),
    QuestionPath(
        ("kept at", "<works at", "comes from"),
        ("In what places were the researchers born whose employer houses {who}?",),
    ),
    QuestionPath(
        ("<devised by", "<applies", "measured with"),
        ("Which instruments delivered data for papers that use a method that {who} invented?",),
    ),
    QuestionPath(
        ("<devised by", "<applies", "written by"),
        ("Which researchers are the authors of papers that use a method that {who} invented?",),
    ),
    QuestionPath(
        ("<measured with", "written by", "works at"),
        ("Which labs employ authors of papers with data of {who}?",),
    ),
    QuestionPath(
        ("<stands in", "<works at", "<devised by"),
        ("Which methods were invented by employees of labs located at {who}?",),
    ),
    QuestionPath(
        ("measured with", "kept at", "<works at"),
        ("Which researchers are employed where the instruments are housed that delivered data for {who}?",),
    ),
    QuestionPath(
        ("<applies", "written by", "comes from"), ("In what places were the authors born whose papers use {who}?",)
    ),
    QuestionPath(
        ("<written by", "<replies to", "written by"),
        ("Which researchers are the authors of papers that cite papers of {who}?",),
    ),
)
"""Questions, each written for its path."""
