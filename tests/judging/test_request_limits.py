"""`max_calls` and `max_cost` count every request: failed ones, retries and probes of the request format."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

import ragauge
from ragauge.core.errors import BackendFailed
from ragauge.core.samples import Sample
from ragauge.models.chats import open_chat
from ragauge.models.chats.recorded import Recording

SAMPLES = [Sample(f"s{i}", "q", f"it is high {i}. it is low {i}.", (f"it is high {i}",)) for i in range(12)]
FAULTS = [
    "nonsense", "error", "overloaded", "rate_limit", "drop", "cut", "broken_body", "empty", "truncated", "missing_ids",
    "stall", "gateway", "no_choices",
]  # fmt: skip


def judge_samples(server, folder=None, **settings):
    """Judge the samples; return the BackendFailed error if every request failed."""
    try:
        return ragauge.judge(
            SAMPLES,
            ["faithfulness"],
            chat=f"openai:m@{server.url}",
            folder=folder,
            timeout=5,
            **{"patience": 8, **settings},
        )
    except BackendFailed as failure:
        return failure


@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.slow
def test_max_calls_is_never_exceeded_by_retries(chat_server, fault, concurrency):
    chat_server.queue_faults(fault, times=500, after=0.01)
    found = judge_samples(chat_server, max_calls=7, workers=concurrency)
    assert 1 < chat_server.calls <= 7
    if not isinstance(found, BackendFailed):
        assert found.stopped == "the limit of 7 requests is reached"


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "traits", [["no_json_schema"], ["no_response_format", "no_temperature"], ["ignores_schema"], ["no_seed"]]
)
@pytest.mark.slow
def test_max_calls_counts_probes_of_the_request_format(chat_server, traits, limit):
    chat_server.traits = set(traits)
    judge_samples(chat_server, max_calls=limit, workers=16, options={"seed": 1})
    assert chat_server.calls == limit


@pytest.mark.slow
def test_max_calls_counts_requests_over_sessions(chat_server, tmp_path):
    chat_server.queue_faults("error", times=4)
    for limit in (5, 6, 9, 9):
        judge_samples(chat_server, tmp_path, max_calls=limit, workers=4)
        assert chat_server.calls == limit


def test_max_calls_counts_requests_through_a_recording(chat_server, tmp_path):
    chat_server.traits = {"no_response_format"}

    async def record():
        chat = Recording(open_chat(f"openai:m@{chat_server.url}"), tmp_path / "replies.jsonl")
        try:
            return await ragauge.judge_async(SAMPLES, ["faithfulness"], chat=chat, max_calls=6)
        finally:
            await chat.close()

    assert asyncio.run(record()).stopped
    assert chat_server.calls == 6


@pytest.mark.parametrize("fault", ["error", "nonsense", "cut", "broken_body", "missing_ids"])
@pytest.mark.slow
def test_max_cost_is_never_exceeded_by_retries(chat_server, fault):
    chat_server.queue_faults(fault, times=500)
    limit = 0.01
    judge_samples(chat_server, max_cost=limit, prices={"*": (1.0, 1.0)}, workers=16, retries=5)
    cost = (chat_server.prompt_tokens + chat_server.completion_tokens) / 1e6
    assert cost <= limit
    assert chat_server.calls < 500


@pytest.mark.slow
def test_max_calls_within_retries_keeps_failure_reason(chat_server):
    chat_server.queue_faults(*["exhausted"] * 1, after=0.0)
    chat_server.queue_faults("error", times=500)
    found = judge_samples(chat_server, max_calls=4, workers=1)
    assert chat_server.calls == 4
    assert found.stopped == "the limit of 4 requests is reached"
    reasons = Counter(missing.reason for verdicts in found.verdicts.values() for missing in verdicts.unscored.values())
    failed = [reason for reason in reasons if reason.startswith("the call failed")]
    assert [reason.endswith("(3 attempts, the limit of 4 requests is reached)") for reason in failed] == [True]


def test_max_calls_counts_interrupted_requests(chat_server, tmp_path):
    chat_server.latency = 60.0

    async def interrupt():
        judging = asyncio.create_task(
            ragauge.judge_async(
                SAMPLES, ["faithfulness"], chat=f"openai:m@{chat_server.url}", folder=tmp_path, max_calls=5, workers=2
            )
        )
        before = chat_server.calls
        while not judging.done() and chat_server.calls == before:
            await asyncio.sleep(0.01)
        judging.cancel()
        await asyncio.gather(judging, return_exceptions=True)

    for _ in range(5):
        asyncio.run(interrupt())
    chat_server.latency = 0.0
    found = judge_samples(chat_server, tmp_path, max_calls=6)
    assert chat_server.calls == 6
    assert found.stopped == "the limit of 6 requests is reached"
