"""Registry of the corpus checks.

To add a check, write its function and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping

from ragauge.evaluation.checks import Check, Requirement
from ragauge.knowledge.lint import checks_characters, checks_entries, checks_texts
from ragauge.knowledge.lint.lint_input import LintInput

DOCUMENTS = Requirement[LintInput](
    "documents", lambda lint_input: len(lint_input.corpus) > 0, "the corpus has no documents"
)
AN_EMBEDDER = Requirement[LintInput](
    "an embedder",
    lambda lint_input: lint_input.tokens is not None,
    "no embedder given; add --embedder minilm, or --tokenizer FILE --token-limit N",
)
JUDGMENTS = Requirement[LintInput](
    "judgments", lambda lint_input: bool(lint_input.judgments), "no judgments given; add --qrels FILE"
)

LINT_CHECKS: Mapping[str, Check[LintInput]] = {
    check.name: check
    for check in (
        Check("readable", "entries that cannot be read", checks_entries.check_readable),
        Check("encoding", "bytes that are not UTF-8", checks_entries.check_encoding),
        Check("ids", "missing ids, duplicate ids, ids with white space", checks_entries.check_ids, (DOCUMENTS,)),
        Check("empty", "documents without text", checks_entries.check_empty, (DOCUMENTS,)),
        Check("tiny", "very short texts", checks_texts.check_tiny, (DOCUMENTS,)),
        Check("giant", "very long texts", checks_texts.check_giant, (DOCUMENTS,)),
        Check(
            "tokens",
            "texts longer than the embedder's token limit",
            checks_texts.check_tokens,
            (DOCUMENTS, AN_EMBEDDER),
        ),
        Check("duplicates", "documents with the same text", checks_texts.check_duplicates, (DOCUMENTS,)),
        Check(
            "near-duplicates", "documents with nearly the same text", checks_texts.check_near_duplicates, (DOCUMENTS,)
        ),
        Check(
            "characters",
            "control, invisible and replacement characters",
            checks_characters.check_characters,
            (DOCUMENTS,),
        ),
        Check("mojibake", "texts decoded with the wrong encoding", checks_characters.check_mojibake, (DOCUMENTS,)),
        Check("markup", "HTML tags and entities", checks_characters.check_markup, (DOCUMENTS,)),
        Check(
            "boilerplate",
            "lines that are repeated in many documents",
            checks_characters.check_boilerplate,
            (DOCUMENTS,),
        ),
        Check("language", "documents in another language", checks_texts.check_language, (DOCUMENTS,)),
        Check(
            "orphans",
            "judgments of documents that are not in the corpus",
            checks_entries.check_orphans,
            (DOCUMENTS, JUDGMENTS),
        ),
    )
}
