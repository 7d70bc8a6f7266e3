"""All steps of a judge, found in the modules of `judging/steps`, and their tasks for one sample."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from ragauge.compute.event_loops import gather_or_cancel
from ragauge.core.errors import BackendFailed
from ragauge.core.samples import Sample, Verdicts
from ragauge.judging import steps
from ragauge.judging.step import Step
from ragauge.judging.tasks import Judge, JudgeTask, TaskResult


def find_steps() -> dict[str, Step]:
    """Return the steps by name, in order."""
    modules = [import_module(f"{steps.__name__}.{module.name}") for module in iter_modules(steps.__path__)]
    kinds: list[Any] = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    found = [kind() for kind in kinds if issubclass(kind, Step) and kind is not Step]
    return {step.name: step for step in sorted(found, key=lambda step: (step.position, step.name))}


STEPS = find_steps()
"""Steps by name, in order."""


def describe_kinds() -> dict[str, str]:
    """Return the descriptions of all kinds of tasks that a measure can require."""
    return {kind: text for step in STEPS.values() for kind, text in step.kinds.items()}


def steps_of(kinds: frozenset[str]) -> list[Step]:
    """Return the steps that some kinds of tasks require."""
    return [step for step in STEPS.values() if not kinds.isdisjoint(step.kinds)]


async def judge_sample(sample: Sample, judge: Judge, kinds: frozenset[str], n: int) -> Verdicts:
    """Run the tasks of one sample and return its verdicts; `n` is the number of questions to generate."""
    verdicts = Verdicts(sample.id)
    for round_steps in (
        [step for step in STEPS.values() if not step.follows],
        [step for step in STEPS.values() if step.follows],
    ):
        tasks = [(step, task) for step in round_steps for task in step.build_tasks(sample, verdicts, kinds, n)]
        results = await _run_tasks(judge, [task for _, task in tasks])
        for (step, task), result in zip(tasks, results, strict=True):
            verdicts = step.add_result(sample, verdicts, task, result)
    return verdicts


async def _run_tasks(judge: Judge, tasks: Sequence[JudgeTask]) -> list[TaskResult]:
    try:
        return await gather_or_cancel(judge.answer(task) for task in tasks)
    except RuntimeError as error:
        if "different event loop" not in str(error):
            raise
        raise BackendFailed(
            f"the judge {judge.name} uses an object of another event loop: {error}",
            hint="create a new judge for every call of `judge`, or create its locks and connections when it answers",
            fails_all_calls=True,
        ) from None
