"""Lexical judge: decides every task by the words of the texts, without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.core.samples import LEXICAL_JUDGE, Unscored
from ragauge.judging.all_steps import STEPS
from ragauge.judging.tasks import JudgeTask, TaskResult
from ragauge.judging.word_matching import PreparedTexts

RULES_VERSION = "a43cbe9fdc3b"
"""Version of the rules, part of the judge's identity. Change it whenever a verdict changes, and only then."""


class LexicalJudge:
    """Judge that decides every task from the words of the texts."""

    name = LEXICAL_JUDGE

    def __init__(self) -> None:
        self._texts = PreparedTexts()

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that a verdict depends on."""
        return {"judge": self.name, "source": RULES_VERSION}

    async def answer(self, task: JudgeTask) -> TaskResult:
        """Return a verdict on every item; items without comparable words are unscored."""
        return self.judge_task(task)

    def judge_task(self, task: JudgeTask) -> TaskResult:
        """Return the verdicts synchronously."""
        step = STEPS[task.step]
        verdicts = {item: step.judge_lexically(task, item, self._texts) for item in task.items}
        unscored = {item: verdict for item, verdict in verdicts.items() if isinstance(verdict, Unscored)}
        return TaskResult({item: verdicts[item] for item in verdicts if item not in unscored}, unscored)
