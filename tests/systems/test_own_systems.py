"""User classes on the command line: they receive the parts that they declare, and invalid options are reported."""

from __future__ import annotations

import json

from command import command_in

OWN = """
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ragauge import Document
from ragauge.core.plugin_parameters import Part
from ragauge.core.protocols import Embedder, Store


@dataclass(frozen=True)
class Ranking:
    reverse: bool = False


class Search:
    def __init__(
        self,
        documents: Sequence[Document],
        embedder: Annotated[Embedder, Part("words")],
        store: Annotated[Store, Part("exact")],
        ranking: Ranking = Ranking(),
    ) -> None:
        self.embedder, self.store, self.ranking = embedder, store, ranking
        store.add([one.id for one in documents], embedder.embed([one.whole for one in documents]))

    def search(self, query: str, k: int) -> list[str]:
        (ids,), _ = self.store.search(self.embedder.embed([query]), k)
        found = [name for name in ids if name is not None]
        return found[::-1] if self.ranking.reverse else found


def search(query: str, k: int) -> list[str]:
    return []
"""


def test_cli_run_user_class_receives_embedder_and_store(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    run = command_in(tmp_path, "run", "synthetic:needles(documents=20, queries=4)", "-k", "5", "-m", "mrr")
    systems = ("-s", "a=own:Search(embedder=words(dimensions=512))", "-s", "b=own:Search(reverse=true)")
    systems += ("-s", "c=dense(embedder=words(dimensions=512))", "-s", "d=hybrid(of=a+bm25)")
    done = run(*systems, "-o", "x", "--json")
    scores = {name: system["means"]["mrr"]["value"] for name, system in json.loads(done.stdout)["systems"].items()}
    assert scores["a"] == scores["c"] > scores["b"]
    manifest = json.loads((tmp_path / "x" / "a" / "manifest.json").read_text())
    assert manifest["system"]["description"] == "own:Search(embedder=words(dimensions=512))"
    assert manifest["system"]["code"]


def test_cli_run_user_class_invalid_option_prints_error(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    run = command_in(tmp_path, "run", "synthetic:needles(documents=20, queries=4)", "-o", "x")
    assert "`own:Search` has no option `stor`" in run("-s", "a=own:Search(stor=exact)", code=2).stderr
    assert "unknown store `fais`" in run("-s", "a=own:Search(store=fais)", code=2).stderr
    assert "`own:search` has no option `limit`" in run("-s", "a=own:search(limit=3)", code=2).stderr
    (tmp_path / "file.toml").write_text('dataset = "synthetic:needles"\n[systems.a]\nkind = "own:Search"\n')
    failed = command_in(tmp_path, "run")("file.toml", code=2)
    assert "unknown retriever `own:Search`" in failed.stderr, "a TOML file must not name user code"
