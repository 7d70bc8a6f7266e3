"""Link documents that name each other or share names, without a model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ragauge.core import graphs
from ragauge.core.documents import Document
from ragauge.core.protocols import Vectors
from ragauge.core.settings import check_int
from ragauge.systems.graph_links import check_weight, describe_linker, group_pairs

TOKEN_PATTERN = re.compile(r"\n|\w+(?:\.\w+)*|[^\w\s]")
"""Word, words joined by dots as in `json.dumps`, punctuation mark, or end of line."""
IDENTIFIER_PATTERN = re.compile(
    r"(?=.*[^\W\d_]{2}).*\w[._]+\w|.*[a-z][A-Z]|.*[A-Z]{2}[a-z]{2}|(?=\w{3}).*(?:[A-Z]\w*\d|\d\w*[A-Z])"
)
"""Start of an identifier, which is no ordinary word: `json.dumps`, `read_text`, `OrderedDict`, `HTTPServer`, `T1059`.
"""
SENTENCE_START_MARKS = frozenset("\n.!?:;*#>|•\"'“‘`([{-–—")  # noqa: RUF001 - quotes and dashes as they are printed
"""Marks after which a capital letter is no sign of a name, because a sentence, an item or a quotation may begin."""


class EntityLinks:
    """Linker of documents that name each other (`mentions`) or share names (`shared`).

    A document is named by its id or title. An identifier (with a dot or `_` inside, in CamelCase, or of capitals and
    digits) must match exactly; a name of at least two words matches in any case. An id with dots is also named by its
    last part, if that is an identifier and no other id: `OrderedDict` for `collections.OrderedDict`. Of names with dots
    the longest known one counts: `json.dumps.x` names `json.dumps`. A link has the weight `rarity / n`, where n is
    the number of documents with that name. There is no link if more than `most` documents have the name, or more than
    `common` name it.

    Shared names are identifiers, and words that are capitalised inside sentences in more documents than they are in
    lower case. A name in 2 to `most` documents links every two of them, with the weight `rarity`.

    The rarity of a name in `m` of `n` documents is `ln(n / m) / ln(n / 2)`, at most 1: 1 for two documents, 0 for all.
    For two documents the heaviest link counts, multiplied by `weight`.
    """

    def __init__(
        self, *, mentions: bool = True, shared: bool = True, most: int = 10, common: int = 50, weight: float = 1.0
    ) -> None:
        self._mentions, self._shared = mentions, shared
        self._most = check_int("entities: most", most, 2)
        self._common = check_int("entities: common", common)
        self._weight = check_weight("entities", weight)
        self.name = describe_linker(
            "entities",
            type(self),
            {"mentions": mentions, "shared": shared, "most": most, "common": common, "weight": weight},
        )

    def link(self, documents: Sequence[Document], vectors: Vectors) -> graphs.LinkArrays:  # noqa: ARG002 - not by nearness
        """Return the links of both kinds; every text is read once."""
        names = _DocumentNames(documents)
        shared_names = _SharedNames()
        rows_by_name: dict[str, list[int]] = {}
        for row, document in enumerate(documents):
            tokens = TOKEN_PATTERN.findall(document.whole)
            if self._mentions:
                for name in names.find_names(tokens, row):
                    rows_by_name.setdefault(name, []).append(row)
            if self._shared:
                shared_names.read(tokens)
        first_rows, second_rows, weights = [], [], []
        for name, rows in rows_by_name.items():
            named_rows = names.rows_by_name[name]
            if len(named_rows) <= self._most and len(rows) <= self._common:
                first_rows += [row for row in rows for _ in named_rows]
                second_rows += [named_row for _ in rows for named_row in named_rows]
                weights += [_name_rarity(len(rows), len(documents)) / len(named_rows)] * (len(rows) * len(named_rows))
        groups = shared_names.shared(self._most)
        rarities = np.array([_name_rarity(len(rows), len(documents)) for rows in groups])
        first, second, group_numbers = group_pairs(groups)
        link_weights = np.concatenate([np.array(weights), rarities[group_numbers]]) * self._weight
        has_weight = link_weights > 0  # A name in all documents links none.
        sources = np.concatenate([np.array(first_rows, np.int64), first])[has_weight]
        targets = np.concatenate([np.array(second_rows, np.int64), second])[has_weight]
        return graphs.LinkArrays(sources, targets, link_weights[has_weight])


class _DocumentNames:
    def __init__(self, documents: Sequence[Document]) -> None:
        self.rows_by_name: dict[str, list[int]] = {}
        self._lengths: dict[str, list[int]] = {}
        by_last_part: dict[str, list[int]] = {}
        for row, document in enumerate(documents):
            for name in {document.id, document.title}:
                tokens = _without_line_ends(TOKEN_PATTERN.findall(name))
                if len(tokens) == 1 and IDENTIFIER_PATTERN.match(tokens[0]):
                    _add_row(self.rows_by_name, tokens[0], row)
                    if IDENTIFIER_PATTERN.match(last_part := tokens[0].rpartition(".")[2]):
                        _add_row(by_last_part, last_part, row)
                elif sum(token[0].isalnum() for token in tokens) > 1:
                    folded = [token.casefold() for token in tokens]
                    _add_row(self.rows_by_name, " ".join(folded), row)
                    self._lengths.setdefault(folded[0], []).append(len(folded))
        # A full name takes precedence over the last part of another.
        self.rows_by_name = by_last_part | self.rows_by_name
        self._lengths = {first: sorted(set(sizes), reverse=True) for first, sizes in self._lengths.items()}

    def find_names(self, tokens: Sequence[str], row: int) -> set[str]:
        """Return the names of other documents in the text of a document."""
        words = _without_line_ends(tokens)
        names = {name for word in set(words) if (name := self._find_identifier(word, row))}
        folded = [word.casefold() for word in words]
        next_free = 0
        for at, word in enumerate(folded):
            if at >= next_free and word in self._lengths:
                for length in self._lengths[word]:
                    if self._is_other_document(name := " ".join(folded[at : at + length]), row):
                        names.add(name)
                        next_free = at + length
                        break
        return names

    def _find_identifier(self, word: str, row: int) -> str:
        """Return the longest name of another document that a word equals or starts with."""
        while word and not self._is_other_document(word, row):
            word = word.rpartition(".")[0]
        return word

    def _is_other_document(self, name: str, row: int) -> bool:
        """Return whether a name belongs to another document."""
        return self.rows_by_name.get(name, [row]) != [row]


class _SharedNames:
    """Words that may be names, and the documents that contain them."""

    def __init__(self) -> None:
        self._documents = 0
        self._rows: dict[str, list[int]] = {}
        self._plain: Counter[str] = Counter()
        """Number of documents that contain a word in lower case."""
        self._inside: Counter[str] = Counter()
        """Number of documents that contain it capitalised inside a sentence."""

    def read(self, tokens: Sequence[str]) -> None:
        """Add the next document."""
        previous = "\n"
        inside = set()
        for token in tokens:
            if token[0].isupper() and previous not in SENTENCE_START_MARKS:
                inside.add(token)
            previous = token
        for token in set(tokens):
            if IDENTIFIER_PATTERN.match(token) or (token[0].isupper() and token.isalpha() and len(token) > 1):
                _add_row(self._rows, token, self._documents)
        self._plain.update({token for token in set(tokens) if token[0].islower()})
        self._inside.update(inside)
        self._documents += 1

    def shared(self, max_documents: int) -> list[list[int]]:
        """Return the documents of each name that 2 to `max_documents` documents contain."""
        return [
            rows
            for word, rows in self._rows.items()
            if 1 < len(rows) <= max_documents
            and (IDENTIFIER_PATTERN.match(word) or self._inside[word] > self._plain[word.lower()])
        ]


def _add_row(rows_by_name: dict[str, list[int]], name: str, row: int) -> None:
    """Add a document to the rows of a name, once."""
    rows = rows_by_name.setdefault(name, [])
    if not rows or rows[-1] != row:
        rows.append(row)


def _without_line_ends(tokens: Sequence[str]) -> list[str]:
    """Remove line ends, because a name may span two lines."""
    return [token for token in tokens if not token.isspace()]


def _name_rarity(naming: int, documents: int) -> float:
    return 1.0 if naming <= 2 else math.log(documents / naming) / math.log(documents / 2)
