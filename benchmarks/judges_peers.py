"""What another tool makes of the same samples and the same endpoint; run by `judges.py` in the peers' own environment.

`python judges_peers.py ragas|deepeval URL SAMPLES.jsonl CONCURRENCY` prints a line of JSON: seconds, processor seconds,
and the mean of each measure with how many samples it is over. Each imports its library before the clock starts.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from typing import Any

os.environ.update(
    OPENAI_API_KEY="x",
    DEEPEVAL_TELEMETRY_OPT_OUT="YES",
    RAGAS_DO_NOT_TRACK="true",
    DEEPEVAL_DISABLE_PROGRESS_BAR="YES",
    ERROR_REPORTING="NO",
    DEEPEVAL_PER_TASK_TIMEOUT_SECONDS_OVERRIDE="3000",
)


def with_ragas(url: str, rows: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """ragas: the four classic metrics, by LangChain's client, which is what its own documentation shows."""
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    from ragas import EvaluationDataset, RunConfig, evaluate
    from ragas.embeddings import LangchainEmbeddingsWrapper
    from ragas.llms import LangchainLLMWrapper
    from ragas.metrics import Faithfulness, LLMContextPrecisionWithReference, LLMContextRecall, ResponseRelevancy

    llm = LangchainLLMWrapper(ChatOpenAI(model="test", base_url=url, api_key="x", temperature=0))
    embeddings = LangchainEmbeddingsWrapper(
        OpenAIEmbeddings(model="test", base_url=url, api_key="x", check_embedding_ctx_length=False)
    )
    data = EvaluationDataset.from_list(
        [
            {
                "user_input": row["question"],
                "response": row["answer"],
                "retrieved_contexts": row["contexts"],
                "reference": row["reference"],
            }
            for row in rows
        ]
    )
    metrics = [Faithfulness(), LLMContextPrecisionWithReference(), LLMContextRecall(), ResponseRelevancy()]
    began, cpu = time.perf_counter(), time.process_time()
    found = evaluate(
        data,
        metrics,
        llm=llm,
        embeddings=embeddings,
        run_config=RunConfig(max_workers=concurrency, max_retries=2, max_wait=1),
        show_progress=False,
        raise_exceptions=False,
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    columns = found.to_pandas()
    means = {}
    for metric in metrics:
        values = [float(value) for value in columns[metric.name] if not math.isnan(value)]
        means[metric.name] = [sum(values) / len(values) if values else None, len(values)]
    return {"seconds": seconds, "cpu": cpu, "means": means}


def with_deepeval(url: str, rows: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """DeepEval: its four metrics of the same aim, without reasons, which would be one more call each."""
    from deepeval import evaluate
    from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig
    from deepeval.metrics import (
        AnswerRelevancyMetric,
        ContextualPrecisionMetric,
        ContextualRecallMetric,
        FaithfulnessMetric,
    )
    from deepeval.models import GPTModel
    from deepeval.test_case import LLMTestCase

    model = GPTModel(model="gpt-4o-mini", base_url=url, api_key="x", temperature=0)
    kinds = (FaithfulnessMetric, ContextualPrecisionMetric, ContextualRecallMetric, AnswerRelevancyMetric)
    cases = [
        LLMTestCase(
            input=row["question"],
            actual_output=row["answer"],
            expected_output=row["reference"],
            retrieval_context=row["contexts"],
        )
        for row in rows
    ]
    began, cpu = time.perf_counter(), time.process_time()
    found = evaluate(
        cases,
        [kind(model=model, include_reason=False, async_mode=True) for kind in kinds],
        async_config=AsyncConfig(run_async=True, max_concurrent=concurrency),
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False, use_cache=False),
        error_config=ErrorConfig(ignore_errors=True),
    )
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    values: dict[str, list[float]] = {}
    for result in found.test_results:
        for metric in result.metrics_data or []:
            values.setdefault(metric.name, [])
            if metric.score is not None and not math.isnan(metric.score) and metric.error is None:
                values[metric.name].append(metric.score)
    means = {name: [sum(some) / len(some) if some else None, len(some)] for name, some in values.items()}
    return {"seconds": seconds, "cpu": cpu, "means": means}


if __name__ == "__main__":
    which, url, path, concurrency = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    work = {"ragas": with_ragas, "deepeval": with_deepeval}[which]
    out = os.dup(1)
    os.dup2(2, 1)  # whatever the library prints goes to standard error
    result = work(url, rows, int(concurrency))
    os.write(out, (json.dumps(result) + "\n").encode())
