"""`ragauge k-range`: what is known about each k, an acceptable level, prices, and every output file."""

from __future__ import annotations

import json

import pytest

from command import command_in

N = 100


@pytest.fixture(scope="module")
def k_range(tmp_path_factory):
    """Run k-range in a folder with judgments, two equal runs and a dataset of 100 tokens per document."""
    folder = tmp_path_factory.mktemp("k-range")
    ranks = [11 if i % 50 == 49 else 5 if i % 25 == 0 else 1 for i in range(N)]  # 0.94 at 1 and 3, 0.98 at 5 and 10
    lines = [
        f"q{i} Q0 {f'd{i}' if place == rank else f'x{place}'} {place} {20 - place} run\n"
        for i, rank in enumerate(ranks)
        for place in range(1, 11)
    ]
    for name in ("a.run", "b.run"):
        (folder / name).write_text("".join(lines))
    (folder / "qrels.txt").write_text("".join(f"q{i} 0 d{i} 1\n" for i in range(N)))
    documents = [*(f"d{i}" for i in range(N)), *(f"x{i}" for i in range(1, 11))]
    (folder / "data/qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": name, "text": "four" * 100}) for name in documents]
    (folder / "data/corpus.jsonl").write_text("\n".join(rows))
    queries = [json.dumps({"_id": f"q{i}", "text": f"query {i}"}) for i in range(N)]
    (folder / "data/queries.jsonl").write_text("\n".join(queries))
    judgments = "".join(f"q{i}\td{i}\t1\n" for i in range(N))
    (folder / "data/qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgments}")
    return command_in(folder, "k-range", COLUMNS="200", NO_COLOR="1"), folder


def test_k_range_decides_about_each_k(k_range):
    run, _ = k_range
    done = run("qrels.txt", "a.run", "-k", "1,3,5,10")
    rows = [line.split() for line in done.stdout.splitlines()[1:5]]
    assert [row[-1] for row in rows] == ["undecided", "undecided", "undecided", "enough"]
    assert "k=1 is undecided with 100 queries: its loss is 0.0400" in done.stderr
    decided = json.loads(run("qrels.txt", "a.run", "-k", "1,10", "--tolerance", "0.2", "--json").stdout)
    assert [row["decision"] for row in decided["rows"]] == ["enough", "enough"]
    several = run("qrels.txt", "a.run", "b.run", "-k", "1,3,5", "--tolerance", "0.04", "--at-least", "0.9")
    assert [line.split()[4:] for line in several.stdout.splitlines()[1:]] == [["undecided", "-", "1"]] * 2
    assert "undecided: the queries cannot show whether a smaller k is enough (a, b)" in several.stderr


def test_k_range_at_least_and_token_price_answer_by_hand(k_range):
    run, _ = k_range
    options = ("--at-least", "0.9", "--dataset", "data", "--token-price", "3")
    done = run("qrels.txt", "a.run", "-k", "1,3,5,10", *options)
    assert "at least 0.9: k=1, hit_rate 0.9400 (95% interval 0.8740 to 0.9777)" in done.stderr
    assert "$/1,000 queries" in done.stdout
    # 0.04 more for 4 more documents of 100 tokens, at 3 dollars per million tokens
    price = "400 more tokens per query, 100 per 0.01, and for $1.2 more per 1,000 queries, $0.3 per 0.01"
    assert f"k=5 instead of 1 gains 0.0400 hit_rate for {price}" in done.stderr
    data = json.loads(run("qrels.txt", "a.run", "-k", "1,5", *options, "--json").stdout)
    assert data["at_least"]["k"] == 1
    assert data["rows"][1]["cost"] == pytest.approx(500 * 3 / 1e6)
    assert "requires the texts" in run("qrels.txt", "a.run", "--token-price", "3", code=2).stderr
    assert "must be above 0, got 0" in run("qrels.txt", "a.run", "--token-price", "0", code=2).stderr


def test_k_range_writes_every_output_file(k_range):
    run, folder = k_range
    endings = (".html", ".md", ".tex", ".json", ".csv")
    done = run("qrels.txt", "a.run", "-k", "1,5", *(f"--out=x{ending}" for ending in endings))
    assert [f"wrote x{ending}" in done.stderr for ending in endings] == [True] * 5
    for ending in (".html", ".md", ".tex", ".csv"):
        assert "undecided" in (folder / f"x{ending}").read_text()
    refused = run("qrels.txt", "a.run", "-o", "x.png", code=2)
    assert "expected a file that ends in .json, .csv, .html, .md, .tex, got `.png`" in refused.stderr
