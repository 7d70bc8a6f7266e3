"""Comparison of embedders: the same runs as `run` makes, and the facts of each embedder in every output."""

from __future__ import annotations

import numpy as np
import pytest

import ragauge
from ragauge.core.errors import BadInput

DATA = "synthetic:needles(documents=60, queries=20)"


class LimitedEmbedder:
    """Embedder that counts letters and reads five words."""

    name = "letters"
    limit = 5
    parameters = 26
    trained = False

    def tokens(self, texts):
        return [len(text.split()) for text in texts]

    def embed(self, texts):
        return np.array([[text.lower().count(chr(97 + i)) + 0.1 for i in range(26)] for text in texts], np.float32)


def test_compare_embedders_scores_equal_those_of_run():
    compared = ragauge.compare_embedders(DATA, {"few": "words(dimensions=16)"}, measures=["ndcg@10"])
    run = ragauge.run(DATA, {"few": "dense(embedder=words(dimensions=16), store=exact)"}, measures=["ndcg@10"])
    assert list(compared.scores) == ["bm25", "few"]
    assert compared.baseline == "bm25"
    assert compared.scores["few"].values["ndcg@10"].tolist() == run.scores["few"].values["ndcg@10"].tolist()


def test_compare_embedders_manifest_has_size_and_truncated_share():
    data = ragauge.load(DATA)
    compared = ragauge.compare_embedders(data, LimitedEmbedder(), measures=["recall@5"])
    lengths = [len(document.whole.split()) for document in data.documents]
    assert compared.runs["letters"].manifest["evidence"]["embedding"] == {
        "dimension": 26,
        "bytes_per_vector": 104,
        "parameters": 26,
        "trained": False,
        "limit": 5,
        "truncated": np.mean([length > 5 for length in lengths]),
    }


def test_compare_embedders_report_has_facts_in_table_and_csv(tmp_path):
    compared = ragauge.compare_embedders(DATA, LimitedEmbedder(), measures=["recall@5"])
    overview = ragauge.report(compared, [tmp_path / "page.md", tmp_path / "wide.csv"][:1], audited=False)
    assert "| letters | 26 | 104 | 26 | no | 5 |" in (tmp_path / "page.md").read_text().replace(" B ", " ")
    ragauge.report(compared, tmp_path / "wide.csv", format="wide", audited=False)
    header, bm25, letters = ((tmp_path / "wide.csv").read_text().splitlines())[:3]
    values = dict(zip(header.split(","), letters.split(","), strict=True))
    assert (values["dimension"], values["bytes_per_vector"], values["parameters"]) == ("26", "104", "26")
    assert dict(zip(header.split(","), bm25.split(","), strict=True))["dimension"] == ""
    assert overview.entries["bm25"].embedding == {}


@pytest.mark.parametrize(
    ("embedders", "message"),
    [
        (["minilm", "minilm"], "embedder `minilm` appears more than once"),
        ([], "no embedder given"),
        (LimitedEmbedder, "LimitedEmbedder is not an embedder"),
        ({"mine": 3}, "int is not an embedder"),
    ],
)
def test_compare_embedders_invalid_embedders_raise(embedders, message):
    with pytest.raises(BadInput, match=message):
        ragauge.compare_embedders(DATA, embedders)
