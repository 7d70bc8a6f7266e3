"""Dates of answers: when a run was made, and whether it was reused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class AnswerDate(NamedTuple):
    """When the answers of a run were made, and whether the last command that ran it reused them."""

    made: str
    """ISO 8601; of the oldest answers."""
    reused: bool = False

    @classmethod
    def find(cls, *manifests: Mapping[str, Any]) -> AnswerDate | None:
        """Return the date of the oldest answers of some runs by their manifests; None if none of them has a date.

        >>> AnswerDate.find({"made": "2026-11-18T03:46:18+00:00", "reused": True}, {"finished": "2026-11-19"})
        AnswerDate(made='2026-11-18T03:46:18+00:00', reused=True)
        """
        dates = [str(one.get("made") or one.get("finished") or "") for one in manifests]
        known = [date for date in dates if date]
        return cls(min(known), any(bool(one.get("reused")) for one in manifests)) if known else None


def describe_answers(answers: Mapping[str, AnswerDate]) -> list[str]:
    """Say when the answers of each system were made, and which ones were reused; nothing if no date is known.

    >>> describe_answers({"mine": AnswerDate("2026-11-18T03:46:18+00:00"), "old": AnswerDate("2026-11-10", True)})
    ['answers made: mine 2026-11-18T03:46:18+00:00; old 2026-11-10 (reused)']
    """
    told = (f"{name} {date.made}" + " (reused)" * date.reused for name, date in answers.items())
    return [" ".join(f"answers made: {'; '.join(told)}".split())] if answers else []
