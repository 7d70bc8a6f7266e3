"""Judging of samples: collect verdicts from a judge and compute scores from them.

Verdicts cost calls; scores can be recomputed from them without any.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from ragauge.compute.event_loops import run_coroutine
from ragauge.core.errors import BadInput, MissingEvidence
from ragauge.core.hashes import content_key
from ragauge.core.protocols import Chat
from ragauge.core.records import Scores
from ragauge.core.samples import LEXICAL_JUDGE, Sample
from ragauge.files.sample_fields import field_aliases, unread_fields
from ragauge.files.samples import samples_name
from ragauge.files.serialization import settings_from
from ragauge.files.workspace import hold_folder
from ragauge.judging.all_steps import describe_kinds, judge_sample, steps_of
from ragauge.judging.model_judge import ModelJudge
from ragauge.judging.prompt_injection import try_injections
from ragauge.judging.reply_cache import REPLIES_FILE
from ragauge.judging.results import CostEstimate, JudgedSamples
from ragauge.judging.results_folder import check_same_samples, read_judged_folder, write_judged_folder
from ragauge.judging.sample_loading import describe_contexts, load_samples
from ragauge.judging.session import DryRunJudge, JudgingOptions, JudgingSession, JudgingSettings
from ragauge.judging.tasks import Judge
from ragauge.measures.answers import (
    DEFAULT_ANSWER_MEASURES,
    AnswerMeasure,
    check_answer_inputs,
    missing_input,
    parse_answer_measures,
    required_tasks,
    score_answers,
)
from ragauge.measures.conventions import Convention, find_convention
from ragauge.measures.grounding import FIELD_NAMES
from ragauge.models.chats import open_chat
from ragauge.models.chats.calls import AdaptedChat
from ragauge.output.numbers import join_with_and
from ragauge.runs.folder import provenance, utc_now
from ragauge.stats.intervals import mean_intervals

MIN_VALUES_FOR_INTERVAL = 5
"""Minimum number of values for a confidence interval; they must not all be equal."""
MAX_NAMES_SHOWN = 6
"""Maximum number of unread field names listed in a note."""


def judge(
    samples: Any,
    measures: Sequence[str] | None = None,
    *,
    chat: str | Chat | Judge = LEXICAL_JUDGE,
    folder: str | Path | None = None,
    **settings: Unpack[JudgingOptions],
) -> JudgedSamples:
    """Judge samples and compute scores from the verdicts.

    `samples` is a file, a run folder, a list of Samples or mappings, or a dataset of ragas or DeepEval. `measures`
    defaults to the main measures (`MAIN`) for which the samples have the required fields. `chat` is `lexical`,
    `openai:MODEL@URL`, `local:FILE.gguf`, `replay:FILE`, or an object with `complete`. With a `folder`, every reply
    is saved there as it arrives, so that the same call resumes where the last one stopped. Verdicts, scores and a
    report are written there at the end. Further settings are those of `JudgingSettings`. Also works inside a running
    event loop; `judge_async` is the awaitable variant.
    """
    return run_coroutine(judge_async(samples, measures, chat=chat, folder=folder, **settings))


async def judge_async(
    samples: Any,
    measures: Sequence[str] | None = None,
    *,
    chat: str | Chat | Judge = LEXICAL_JUDGE,
    folder: str | Path | None = None,
    **settings: Unpack[JudgingOptions],
) -> JudgedSamples:
    """Judge samples and compute scores, as a coroutine.

    The arguments are those of `judge`.
    """
    with contextlib.nullcontext() if folder is None else hold_folder(folder):
        judged = await _judge_samples(
            samples, measures, chat, folder, settings_from(JudgingSettings, settings), written=folder is not None
        )
        if folder is None:
            return judged
        _, missing = await asyncio.to_thread(write_judged_folder, judged, folder)
    return replace(judged, notes=[*judged.notes, *missing])


def judge_unsaved(
    samples: Any,
    measures: Sequence[str] | None = None,
    *,
    chat: str | Chat | Judge = LEXICAL_JUDGE,
    folder: str | Path | None = None,
    written: bool = False,
    **settings: Unpack[JudgingOptions],
) -> JudgedSamples:
    """Judge samples without writing results; only replies are saved in the folder.

    With `written`, the caller writes the results there, so the folder must not hold those of other samples.
    """
    return run_coroutine(
        _judge_samples(samples, measures, chat, folder, settings_from(JudgingSettings, settings), written=written)
    )


def rescore(
    judged: JudgedSamples | str | Path,
    measures: Sequence[str] | None = None,
    *,
    convention: str | Convention | None = None,
    confidence: float | None = None,
) -> JudgedSamples:
    """Compute scores again from saved verdicts.

    Measures, depths and convention may differ. No judge is called. Raises MissingEvidence if a measure needs tasks
    that were not judged.
    """
    before = judged if isinstance(judged, JudgedSamples) else read_judged_folder(judged)
    rules = find_convention(before.convention if convention is None else convention)
    chosen = parse_answer_measures(before.scores.measures if measures is None else measures, rules)
    descriptions = describe_kinds()
    judged_tasks = {task for verdicts in before.verdicts.values() for task in verdicts.asked}
    for measure in chosen:
        if not measure.tasks <= judged_tasks:
            missing = join_with_and([descriptions[task] for task in sorted(measure.tasks - judged_tasks)])
            raise MissingEvidence(
                f"{measure} needs verdicts on {missing}, which this folder does not have",
                hint=f"judge the samples again, with `-m {measure}` among the measures",
            )
    scores = score_answers(before.samples, before.verdicts, chosen, rules, run=before.name, judge=before.judge)
    level = before.confidence if confidence is None else confidence
    return replace(before, scores=scores, intervals=_compute_intervals(scores, level), confidence=level)


def estimate_cost(
    samples: Any,
    measures: Sequence[str] | None = None,
    *,
    chat: str | Chat | Judge = LEXICAL_JUDGE,
    folder: str | Path | None = None,
    **settings: Unpack[JudgingOptions],
) -> list[CostEstimate]:
    """Estimate the calls, tokens and cost of judging by step, without cached replies.

    No model is called. Claims are unknown before judging, so each sentence counts as one; a token is four
    characters. The lexical judge makes no calls.
    """
    plan = settings_from(JudgingSettings, settings)
    sample_list, _ = _load_limited_samples(samples, plan)
    chosen, _ = _select_measures(measures, sample_list, find_convention(plan.convention), chat)
    reply_folder = folder if folder is not None and (Path(folder) / REPLIES_FILE).is_file() else None

    async def count_calls() -> list[CostEstimate]:
        async with JudgingSession(chat, reply_folder, plan) as session:
            if not isinstance(session.judge, ModelJudge):
                return []
            judge = DryRunJudge(session.judge, session.price, local=session.local)
            for sample in sample_list:
                await judge_sample(sample, judge, required_tasks(chosen), plan.questions)
            if plan.canaries:
                await try_injections(judge, plan.questions)
            return judge.estimates()

    return run_coroutine(count_calls())


def find_missing_key(chat: str, options: Mapping[str, Any]) -> str:
    """Return the unset environment variable of a chat model's key.

    Empty if no key is missing.
    """
    model = open_chat(chat, options) if chat.startswith("openai:") else None
    return "" if model is None else AdaptedChat(model).missing_key


async def _judge_samples(
    samples: Any,
    measures: Sequence[str] | None,
    chat: str | Chat | Judge,
    folder: str | Path | None,
    settings: JudgingSettings,
    *,
    written: bool,
) -> JudgedSamples:
    rules = find_convention(settings.convention)
    sample_list, limit_notes = _load_limited_samples(samples, settings)
    chosen, measure_notes = _select_measures(measures, sample_list, rules, chat)
    if written and folder is not None:
        check_same_samples(folder, sample_list)
    async with JudgingSession(chat, folder, settings) as session:
        verdicts = await session.verdicts(sample_list, required_tasks(chosen))
        attempts = await try_injections(session.judge, settings.questions) if settings.canaries else ()
        identity = session.identity(required_tasks(chosen))
        name = f"{session.judge.name} [{content_key(identity)[:8]}]"
        scores = score_answers(
            sample_list, verdicts, chosen, rules, run=settings.name or _samples_name(samples), judge=name
        )
        judged = JudgedSamples(
            name=scores.run,
            judge=name,
            identity=identity,
            samples=sample_list,
            verdicts=verdicts,
            scores=scores,
            intervals=_compute_intervals(scores, settings.confidence),
            confidence=settings.confidence,
            ledger=session.ledger.steps(),
            robustness=attempts,
            stopped=session.stopped,
            notes=[*scores.notes, *measure_notes, *session.notes, *limit_notes],
            provenance={"made": utc_now(), **provenance()},
            judge_name=session.judge.name,
            folder=None if folder is None else Path(folder),
        )
    if judged.unreadable and any(judged.scores.n.values()):
        return replace(judged, notes=["the judge gave no readable reply; the scores need none", *judged.notes])
    return judged


def _load_limited_samples(samples: Any, settings: JudgingSettings) -> tuple[list[Sample], list[str]]:
    """Load the samples, with notes if only the first ones are used, or whole documents as contexts."""
    all_samples = load_samples(samples, answers=settings.answers, k=settings.k)
    if not all_samples:
        raise BadInput("no samples given")
    first_samples = all_samples[: settings.max_samples]
    note = f"only the first {len(first_samples):,} of {len(all_samples):,} samples were judged"
    notes = [note] if len(first_samples) < len(all_samples) else []
    return first_samples, [*describe_contexts(samples, first_samples), *notes]


def _select_measures(
    measures: Sequence[str] | None, samples: Sequence[Sample], rules: Convention, chat: str | Chat | Judge
) -> tuple[list[AnswerMeasure], list[str]]:
    """Select the measures, with notes on default measures that are left out.

    A requested measure raises MissingEvidence if no sample has its required fields. Single samples may lack fields
    and are then unscored. Checked before any paid call.
    """
    candidates = parse_answer_measures(DEFAULT_ANSWER_MEASURES if measures is None else measures, rules)
    missing_fields = {
        str(measure): field_name for measure in candidates if (field_name := missing_input(measure, samples))
    }
    if measures is not None or len(missing_fields) == len(candidates):
        try:
            check_answer_inputs(candidates, samples)
        except MissingEvidence as error:
            error.hint = "; ".join([str(error.hint), *_unread_field_notes(list(missing_fields.values())[:1], samples)])
            raise
    notes = [f"{name} is left out: there are no {field_name}" for name, field_name in missing_fields.items()]
    notes += _unread_field_notes(list(missing_fields.values()), samples)
    chosen = [measure for measure in candidates if str(measure) not in missing_fields]
    if measures is None and chat == LEXICAL_JUDGE:
        model_tasks = {
            measure: step.model_task for measure in chosen for step in steps_of(measure.tasks) if step.model_task
        }
        notes += [
            f"{measure} is left out: it needs a model that {task} (--chat)" for measure, task in model_tasks.items()
        ]
        chosen = [measure for measure in chosen if measure not in model_tasks]
    return chosen, notes


def _unread_field_notes(missing_fields: Sequence[str], samples: Sequence[Sample]) -> list[str]:
    """Name the fields that were not read, and the accepted names of missing fields."""
    unread = list(unread_fields(samples))
    if not unread or not missing_fields:
        return []
    names = ", ".join(unread[:MAX_NAMES_SHOWN]) + (", …" if len(unread) > MAX_NAMES_SHOWN else "")
    fields = [field for field, field_name in FIELD_NAMES.items() if field_name in missing_fields]
    return [f"not read: {names}; {'; '.join(map(field_aliases, fields))}"]


def _compute_intervals(scores: Scores, confidence: float) -> dict[str, tuple[float, float]]:
    """Compute the confidence interval of each mean; none for few or equal values."""
    columns = {}
    for name, column in scores.values.items():
        known_values = column[~np.isnan(column)]
        if len(known_values) >= MIN_VALUES_FOR_INTERVAL and known_values.min() < known_values.max():
            columns[name] = column
    if not columns:
        return {}
    lows, highs = mean_intervals(np.column_stack(list(columns.values())), confidence).tolist()
    ends = zip(columns, lows, highs, strict=True)
    return {name: (low, high) for name, low, high in ends if not math.isnan(low)}


def _samples_name(samples: Any) -> str:
    return samples_name(samples) if isinstance(samples, str | Path) else "answers"
