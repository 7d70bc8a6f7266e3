"""Judge samples with another tool, in an environment of its own.

`python judges_peers.py ragas|deepeval URL SAMPLES.jsonl CONCURRENCY` prints a line of JSON: wall-clock seconds, CPU
seconds, and for each measure the mean and the number of scored samples. Libraries are imported before the timing
starts. `judges.py` starts this script.
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


def judge_with_ragas(url: str, samples: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """Judge with the four classic metrics of ragas.

    The client is that of LangChain, as in the documentation of ragas.
    """
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
                "user_input": sample["question"],
                "response": sample["answer"],
                "retrieved_contexts": sample["contexts"],
                "reference": sample["reference"],
            }
            for sample in samples
        ]
    )
    metrics = [Faithfulness(), LLMContextPrecisionWithReference(), LLMContextRecall(), ResponseRelevancy()]
    start, cpu = time.perf_counter(), time.process_time()
    result = evaluate(
        data,
        metrics,
        llm=llm,
        embeddings=embeddings,
        run_config=RunConfig(max_workers=concurrency, max_retries=2, max_wait=1),
        show_progress=False,
        raise_exceptions=False,
    )
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    columns = result.to_pandas()
    means = {}
    for metric in metrics:
        values = [float(value) for value in columns[metric.name] if not math.isnan(value)]
        means[metric.name] = [sum(values) / len(values) if values else None, len(values)]
    return {"seconds": seconds, "cpu": cpu, "means": means}


def judge_with_deepeval(url: str, samples: list[dict[str, Any]], concurrency: int) -> dict[str, Any]:
    """Judge with the four corresponding metrics of DeepEval.

    Reasons are off, because each needs one more call.
    """
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
    metric_types = (FaithfulnessMetric, ContextualPrecisionMetric, ContextualRecallMetric, AnswerRelevancyMetric)
    cases = [
        LLMTestCase(
            input=sample["question"],
            actual_output=sample["answer"],
            expected_output=sample["reference"],
            retrieval_context=sample["contexts"],
        )
        for sample in samples
    ]
    start, cpu = time.perf_counter(), time.process_time()
    result = evaluate(
        cases,
        [metric_type(model=model, include_reason=False, async_mode=True) for metric_type in metric_types],
        async_config=AsyncConfig(run_async=True, max_concurrent=concurrency),
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False, use_cache=False),
        error_config=ErrorConfig(ignore_errors=True),
    )
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    scores: dict[str, list[float]] = {}
    for test_result in result.test_results:
        for metric in test_result.metrics_data or []:
            scores.setdefault(metric.name, [])
            if metric.score is not None and not math.isnan(metric.score) and metric.error is None:
                scores[metric.name].append(metric.score)
    means = {name: [sum(values) / len(values) if values else None, len(values)] for name, values in scores.items()}
    return {"seconds": seconds, "cpu": cpu, "means": means}


if __name__ == "__main__":
    tool, url, path, concurrency = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        samples = [json.loads(line) for line in file]
    judge = {"ragas": judge_with_ragas, "deepeval": judge_with_deepeval}[tool]
    stdout = os.dup(1)
    os.dup2(2, 1)  # redirect the output of the library to standard error
    result = judge(url, samples, int(concurrency))
    os.write(stdout, (json.dumps(result) + "\n").encode())
