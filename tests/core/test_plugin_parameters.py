"""Parameters of plug-ins: settings dataclasses and typed keywords become options, and annotated parts are supplied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

import pytest

from ragauge.core.documents import Document
from ragauge.core.errors import BadInput
from ragauge.core.plugin_parameters import DocumentEmbedder, OtherOptions, Part, PluginPart, read_parameters
from ragauge.core.protocols import Embedder, GraphBuilder, Retriever, Store
from ragauge.core.settings import AtLeast, check_settings
from ragauge.core.specs import Spec

if TYPE_CHECKING:
    from somewhere import OnlyForTheChecker


@dataclass(frozen=True)
class WalkSettings:
    agents: Annotated[int, AtLeast(1)] = 20
    leap: float = 0.0
    tops: Sequence[int] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        check_settings(self)


class KeywordOptions(TypedDict, total=False):
    lists: int
    table: str


class WithSettings:
    def __init__(
        self, *, name: str = "x", walks: WalkSettings = WalkSettings(agents=5), **keywords: Unpack[KeywordOptions]
    ) -> None:
        self.name, self.walks, self.keywords = name, walks, keywords


def test_read_parameters_lists_settings_fields_and_keywords():
    parameters = read_parameters(WithSettings)
    assert parameters.options_with_defaults == [
        ("name", "x"),
        ("agents", 5),
        ("leap", 0.0),
        ("tops", ()),
        ("lists", None),
        ("table", None),
    ]
    instance = parameters.call({"leap": 0.5, "tops": 3, "table": "t"})
    assert instance.walks == WalkSettings(agents=5, leap=0.5, tops=[3])
    assert instance.keywords == {"table": "t"}
    assert parameters.call({}).walks == WalkSettings(agents=5)
    assert parameters.call({"walks": WalkSettings(1)}).walks == WalkSettings(1), "a settings object is accepted"


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"agent": 3}, "`ws` has no option `agent`", "did you mean `agents`? Options: name, agents, leap"),
        ({"agents": "many"}, "`ws(agents=many)`: agents must be a number, got many", None),
        ({"agents": True}, "agents must be a number, got True", None),
    ],
)
def test_parameters_check_unknown_option_or_type_raises(options, message, hint):
    with pytest.raises(BadInput) as error:
        read_parameters(WithSettings).check(options, "ws", safe_spec=str(Spec("ws", options)))
    assert message in error.value.message
    assert hint is None or error.value.hint.startswith(hint)


def test_parameters_call_out_of_bounds_raises():
    with pytest.raises(BadInput, match="agents must be at least 1, got 0"):
        read_parameters(WithSettings).call({"agents": 0})


@dataclass(frozen=True)
class RequiredSettings:
    size: int
    shape: str = "round"


class WithRequiredField:
    def __init__(self, needed: RequiredSettings) -> None:
        self.needed = needed


def test_parameters_check_missing_required_field_raises():
    parameters = read_parameters(WithRequiredField)
    with pytest.raises(BadInput, match="`made` needs the option `size`"):
        parameters.check({"shape": "flat"}, "made")
    parameters.check({"size": 3}, "made")
    assert parameters.call({"size": 3}).needed == RequiredSettings(3)


def make_walks(walks: WalkSettings | None = None) -> Any:
    return walks


def test_parameters_call_optional_settings_default_to_none():
    assert read_parameters(make_walks).call({}) is None
    assert read_parameters(make_walks).call({"agents": 2}) == WalkSettings(2)
    assert read_parameters(partial(make_walks, walks=WalkSettings(7))).call({"leap": 1.0}) == WalkSettings(7, 1.0)


class WithDocuments:
    def __init__(
        self,
        documents: Sequence[Document],
        embedder: Annotated[Embedder, Part("words")],
        graph: Annotated[Sequence[GraphBuilder], Part("links+knn(neighbours=4)")],
        *,
        scale: float = 1.0,
    ) -> None:
        pass


class WithParts:
    def __init__(
        self,
        linked: Annotated[WithDocuments, Part()],
        inner: Annotated[Sequence[Retriever], Part("bm25", option="of")],
        store: Store,
        extra: Annotated[Embedder | None, Part()] = None,
        document_embedder: Annotated[Embedder | None, DocumentEmbedder("extra")] = None,
        unread: OnlyForTheChecker = None,
        *,
        where: Annotated[Mapping[str, Any], OtherOptions("NAME=VALUE", "with_parts(lang=de)")],
    ) -> None:
        self.where = where


def test_read_parameters_reads_parts_from_annotations():
    parameters = read_parameters(WithParts)
    assert [(part.option, part.family, [str(spec) for spec in part.default]) for part in parameters.plugin_parts] == [
        ("embedder", "embedders", ["words"]),
        ("graph", "graphs", ["links", "knn(neighbours=4)"]),
        ("of", "retrievers", ["bm25"]),
        ("store", "stores", []),
        ("extra", "embedders", []),
    ]
    assert [part.accepts_several for part in parameters.plugin_parts] == [False, True, True, False, False]
    assert [part.option for part in parameters.plugin_parts if part.is_required] == ["store"]
    assert parameters.document_embedders == {"document_embedder": "extra"}
    assert [name for name, _ in parameters.options_with_defaults][5:] == ["NAME=VALUE", "scale", "unread"]
    assert read_parameters(WithDocuments).corpus == ["documents"]


def test_plugin_part_described_by_option_or_parameter_name():
    part: PluginPart = next(one for one in read_parameters(WithParts).parts if one.option == "of")
    assert part.select_specs({"of": "dense"}) == part.select_specs({"inner": ["dense"]}) == ["dense"]
    assert [str(one) for one in part.select_specs({})] == ["bm25"]


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"lang": "de"}, "`wp` needs the option `store`", "options: embedder, graph, of, store"),
        ({"store": "exact"}, "`wp` needs at least one option NAME=VALUE", "with_parts(lang=de)"),
        ({"store": ["exact", "null"], "lang": "de"}, "store must be one store, got 2", None),
        ({"store": "exact", "where": {"a": 1}, "lang": "de"}, "`wp` has no option `lang`", "options: "),
        ({"store": "exact", "lang": "de", "unread": 1}, None, None),
    ],
)
def test_parameters_check_missing_or_invalid_parts_raise(options, message, hint):
    parameters = read_parameters(WithParts)
    if message is None:
        parameters.check(options, "wp")
        supplied = {"linked": 1, "inner": [], "store": 2}
        assert parameters.call(options, supplied).where == {"lang": "de"}
        return
    with pytest.raises(BadInput) as error:
        parameters.check(options, "wp")
    assert message in error.value.message
    assert hint is None or error.value.hint.startswith(hint)


def test_parameters_check_unannotated_parameter_hints_annotation():
    def make(documents, k=3):
        pass

    with pytest.raises(BadInput, match="`mine` needs the option `documents`") as error:
        read_parameters(make).check({}, "mine")
    assert "annotate the parameter" in error.value.hint
