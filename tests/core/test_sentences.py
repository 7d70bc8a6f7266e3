"""Splitting of text into sentences: boundaries, list items and wrapped lines, and no loss of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge.core.text import split_sentences

PIECES = (
    "Dr.",
    "U.S.",
    "e.g.",
    "3.5",
    "No.",
    "[1]",
    "\n",
    "\n\n",
    "- ",
    "1. ",
    "| a |",
    "。",
    "\uff01",
    "?",
    "!",
    "...",
    "…",
    '"',
    "(",
    ")",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. It pours.", ["It rains.", "It pours."]),
        ("Dr. J. R. Smith met Mrs. Jones. They left.", ["Dr. J. R. Smith met Mrs. Jones.", "They left."]),
        ("It costs 3.50 dollars. It is 1,000.5 m.", ["It costs 3.50 dollars.", "It is 1,000.5 m."]),
        ("She lives in the U.S. The house is old.", ["She lives in the U.S.", "The house is old."]),
        ("The U.S. Senate met.", ["The U.S. Senate met."]),
        (
            "See Fig. 3 and e.g. Apples etc. in No. 5. No. He did not.",
            ["See Fig. 3 and e.g. Apples etc. in No. 5.", "No.", "He did not."],
        ),
        ("It was so.[1] Then not [2]. And so.[3, 4] End", ["It was so.[1]", "Then not [2].", "And so.[3, 4]", "End"]),
        ("It was so. [1] Then not.", ["It was so. [1]", "Then not."]),
        ('"Really?" he asked. "Yes." She left.', ['"Really?" he asked.', '"Yes."', "She left."]),
        ("He left (in 1990.) She stayed.", ["He left (in 1990.)", "She stayed."]),
        ("a first . a second !", ["a first .", "a second !"]),
        ("all in small letters. still a sentence", ["all in small letters.", "still a sentence"]),
        (
            "It ended in the 19th century.First for Women is new.",
            ["It ended in the 19th century.", "First for Women is new."],
        ),
        ("Node.js reads http://a.com/B.Html well.", ["Node.js reads http://a.com/B.Html well."]),
        ("今天很好。我们去\uff01好吗\uff1f", ["今天很好。", "我们去\uff01", "好吗\uff1f"]),
        ("Wait... what? Yes!", ["Wait... what?", "Yes!"]),
        ("", []),
        (" \n\t ", []),
        ("...", ["..."]),
    ],
)
def test_split_sentences_by_hand(text, expected):
    assert split_sentences(text) == expected


def test_split_sentences_separates_items_rows_and_headings():
    text = "# Steps\nDo this:\n1. Log in.\n2. Go to Bots\n- one\n* two\n\n| a | b |\n| c | d |"
    assert split_sentences(text) == [
        "# Steps",
        "Do this:",
        "1. Log in.",
        "2. Go to Bots",
        "- one",
        "* two",
        "| a | b |",
        "| c | d |",
    ]


def test_split_sentences_inline_items_keep_numbers():
    assert split_sentences("To do so: 1. Log in. 2. Go.") == ["To do so: 1. Log in.", "2. Go."]


def test_split_sentences_joins_wrapped_but_not_short_lines():
    wrapped = "This is a line that somebody wrapped when it had come to the\nEnd of its column. Next."
    assert [" ".join(sentence.split()) for sentence in split_sentences(wrapped)] == [
        "This is a line that somebody wrapped when it had come to the End of its column.",
        "Next.",
    ]
    assert split_sentences("Monday\nTuesday") == ["Monday", "Tuesday"]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=20).map(" ".join) | st.text())
def test_split_sentences_loses_only_whitespace(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@given(st.text())
def test_split_sentences_of_single_sentence_keeps_text(text):
    for sentence in split_sentences(text):
        assert "".join("".join(split_sentences(sentence)).split()) == "".join(sentence.split())


def test_split_sentences_count_on_clapnq_is_close_to_labels(shared):
    import gzip
    import json

    path = shared("rag_clapnq_dev") / "clapnq_dev_answerable.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        passages = [json.loads(line)["passages"][0] for line in file]
    expected = sum(len(passage["sentences"]) for passage in passages)
    found = sum(len(split_sentences(passage["text"])) for passage in passages)
    assert found == pytest.approx(expected, rel=0.05)
