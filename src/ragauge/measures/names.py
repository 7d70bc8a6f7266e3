"""Names of ranking measures: parsing of accepted spellings, and the canonical name for output.

A name is `name(option=value, …)@cutoff`. The canonical form omits defaults, so that a name shows every difference
from them: `recall@10`, `recall(of=capped)@10`, `ndcg(gain=exp)@10`. Accepted are also the names of trec_eval
(`P_10`, `ndcg_cut.10`), ir_measures (`AP(rel=2)@100`), ranx (`ndcg_burges@10`, `map@100-l2`) and plain words (`Hit
Rate@5`). Case is ignored.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ragauge.core.errors import BadInput, UnknownName, add_suggestion
from ragauge.measures.conventions import PRESETS, Convention
from ragauge.measures.registry import MEASURE_REGISTRY, MeasureSpec, total

MEASURE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "official": (
        "num_ret",
        "num_rel",
        "num_rel_ret",
        "map",
        "gm_map",
        "Rprec",
        "bpref",
        "recip_rank",
        "iprec_at_recall",
        "P",
    ),
    "set": (
        "num_ret",
        "num_rel",
        "num_rel_ret",
        "utility",
        "set_P",
        "set_relative_P",
        "set_recall",
        "set_map",
        "set_F",
    ),
    "all_trec": (*(spec.trec for spec in MEASURE_REGISTRY.values() if spec.trec), "ndcg_cut", "map_cut"),
}
"""trec_eval's names for groups of measures."""

DEFAULT_CUTOFFS: Mapping[str, int] = {"diversity_count": 20}
"""Default cutoffs of measures that are defined at one depth, such as the swarm study's Diversity Count."""
_CUT_NAMES = {"ndcg_cut": "ndcg", "map_cut": "map"}
_PHRASE_ALIASES = {
    "ndcg_burges": ("ndcg", {"gain": "exp"}),
    "dcg_burges": ("dcg", {"gain": "exp"}),
    "context_precision": ("map", {"of": "found"}),
}
"""Names of ranx and RAGAS that stand for a measure with options."""


@dataclass(frozen=True)
class Measure:
    """Measure with its cutoff and options; `str()` gives its canonical name."""

    spec: MeasureSpec
    cutoff: float | None
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        changed_options = [f"{k}={_format_value(v)}" for k, v in self.options if v != self.spec.options[k]]
        option_text = f"({','.join(changed_options)})" if changed_options else ""
        return f"{self.spec.name}{option_text}" + ("" if self.cutoff is None else f"@{_format_value(self.cutoff)}")

    @property
    def bounds(self) -> tuple[float, float]:
        """Lowest and highest possible value."""
        if self.spec.name == "rbp" and dict(self.options)["gain"] in ("linear", "exp"):
            return 0.0, math.inf
        return self.spec.bounds

    @property
    def is_count(self) -> bool:
        """Whether it counts something over all queries, such as `num_ret`, instead of averaging values."""
        return self.spec.aggregate is total

    @property
    def trec_name(self) -> str:
        """Name in trec_eval; the canonical name if trec_eval has no such measure."""
        spec = self.spec
        if spec.name in ("ndcg", "map") and self.cutoff is not None:
            return f"{spec.name}_cut_{self.cutoff}"
        if not spec.trec:
            return str(self)
        if spec.cutoff == "level":
            return f"{spec.trec}_{self.cutoff:.2f}"
        return spec.trec if self.cutoff is None else f"{spec.trec}_{self.cutoff}"


def _format_value(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(_format_value(v) for v in value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_NAMES_BY_ALIAS: Mapping[str, str] = {
    alias: spec.name
    for spec in MEASURE_REGISTRY.values()
    for alias in (spec.name, *spec.aliases, spec.trec.lower())
    if alias
}
_NUMBER_PATTERN = r"-?(?:\d+\.?\d*|\.\d+)"
_NAME_PATTERN = re.compile(
    rf"(?P<name>[a-z0-9_ -]+?)\s*(?:\((?P<options>.*)\))?\s*(?:@\s*(?P<cutoff>{_NUMBER_PATTERN}))?(?:-l(?P<level>\d+))?"
)
MAX_NAME_CHARS = 1_000
"""Maximum number of characters of a name; longer ones would take too long to match."""
_COMMA_PATTERN, _BLANK_PATTERN = (re.compile(rf"{sign}(?![^(]*\))") for sign in (",", r"\s+"))
"""Separators of a list of measures, outside of parentheses."""
_TREC_NAME_PATTERN = re.compile(rf"(?P<name>[a-z0-9_]*[a-z])[_.](?P<cutoff>{_NUMBER_PATTERN})")


def parse_measure(text: str, convention: Convention = PRESETS["default"]) -> Measure:
    """Parse a measure by any of its names.

    Options that are not given come from the convention.

    >>> [str(parse_measure(name)) for name in ("nDCG@10", "P_5", "RR", "AP(rel=2)@100", "Hit Rate@3", "rbp.95")]
    ['ndcg@10', 'precision@5', 'mrr', 'map(rel=2)@100', 'hit_rate@3', 'rbp(p=0.95)']
    """
    stripped = text.strip()
    if len(stripped) > MAX_NAME_CHARS:
        raise UnknownName("measure", stripped, (), hint="list all with `ragauge measures`")
    lower = stripped.lower()
    rbp = re.fullmatch(r"rbp(\.\d+)", lower)
    if rbp:
        return make_measure(MEASURE_REGISTRY["rbp"], None, {"p": float(rbp[1])}, convention)
    name_match = _NAME_PATTERN.fullmatch(lower)
    # `P_10` has the form of a plain name; if that name is unknown, its suffix may be a cutoff.
    is_known_name = name_match is not None and _name_key(name_match["name"]) in (*_NAMES_BY_ALIAS, *_PHRASE_ALIASES)
    match = name_match if is_known_name else _TREC_NAME_PATTERN.fullmatch(lower) or name_match
    key, cutoff = (_name_key(match["name"]), match["cutoff"]) if match else (lower, None)
    base, options = _PHRASE_ALIASES.get(key, (key, {}))
    name = _NAMES_BY_ALIAS.get(base)
    if name is None:
        _check_cutoff_is_number(stripped, lower)
        _check_not_answer_measure(stripped)
        suggestions = [
            alias + (f"@{cutoff}" if cutoff and MEASURE_REGISTRY[real].cutoff else "")
            for alias, real in _NAMES_BY_ALIAS.items()
        ]
        suggestion = _suggest_with_at(lower)
        hint = add_suggestion(suggestion, "list all with `ragauge measures`")
        raise UnknownName("measure", stripped, () if suggestion else suggestions, hint=hint)
    spec = MEASURE_REGISTRY[name]
    chosen = {
        **options,
        **(_parse_options(spec, name_match["options"], stripped) if name_match and name_match["options"] else {}),
    }
    if name_match and name_match["level"]:
        chosen["rel"] = float(name_match["level"])
    return make_measure(spec, None if cutoff is None else float(cutoff), chosen, convention)


def _check_cutoff_is_number(text: str, lower: str) -> None:
    """Raise `BadInput` if a cutoff is not a number, as in `mrr@ten`."""
    head, at, cutoff = lower.partition("@")
    key = _name_key(re.sub(r"\(.*", "", head))
    name = _NAMES_BY_ALIAS.get(_PHRASE_ALIASES[key][0] if key in _PHRASE_ALIASES else key)
    if not at or name is None:
        return
    kind = MEASURE_REGISTRY[name].cutoff
    example = f"a cutoff is a number, as in {name}@{'0.5' if kind == 'level' else '10'}"
    raise BadInput(f"`{cutoff}` in `{text}` is not a cutoff", hint=example if kind else f"use {name}")


def _check_not_answer_measure(text: str) -> None:
    """Raise `BadInput` if the name is an answer measure."""
    from ragauge.measures.answers import is_answer_measure

    if is_answer_measure(text):
        raise BadInput(f"`{text}` is an answer measure, not a ranking measure", hint="compute it with `ragauge judge`")


def _suggest_with_at(lower: str) -> str | None:
    """Return `ndcg@10` for `ndcg10`.

    None if the text is not a measure with its cutoff.
    """
    for split in range(len(lower) - 1, 0, -1):
        name, cutoff = lower[:split].rstrip(" _-"), lower[split:]
        spec = MEASURE_REGISTRY.get(_NAMES_BY_ALIAS.get(_name_key(name), ""))
        if re.fullmatch(r"[1-9]\d*", cutoff) and spec is not None and spec.cutoff not in ("", "level"):
            return f"{name}@{cutoff}"
    return None


def _name_key(name: str) -> str:
    return re.sub(r"[ \-]+", "_", name.strip())


def make_measure(spec: MeasureSpec, cutoff: float | None, chosen: Mapping[str, Any], convention: Convention) -> Measure:
    """Build a measure and check its options.

    Options that are not chosen come from the convention.
    """
    options: dict[str, Any] = {}
    for option, default in spec.options.items():
        value = chosen.get(option, _convention_option(spec.name, option, convention, default))
        allowed = spec.choices.get(option)
        table = isinstance(value, str) and ":" in value and allowed is not None and "…:…" in allowed
        if allowed is not None and value not in allowed and not table:
            raise BadInput(f"`{option}` of {spec.name} cannot be `{value}`", hint=f"choose one of {', '.join(allowed)}")
        numbers = value if isinstance(value, tuple) else () if isinstance(value, str) else (value,)
        if not all(map(math.isfinite, numbers)):
            raise BadInput(f"`{option}` of {spec.name} must be a finite number, got {_format_value(value)}")
        options[option] = value
    for option in chosen:
        if option not in spec.options:
            raise UnknownName("option", option, spec.options, of=spec.name, hint=_options_hint(spec))
    if "rel" in options and (needed := _option_needed_by_rel(spec, options)):
        if "rel" in chosen:
            raise BadInput(
                f"`rel` has no effect on {spec.name} with these options",
                hint=f"add {needed}, or remove rel",
            )
        del options["rel"]
    if cutoff is None:
        cutoff = convention.mrr_depth if spec.name == "mrr" else DEFAULT_CUTOFFS.get(spec.name)
    _check_cutoff(spec, cutoff, convention.min_cutoff if spec.name == "precision" else 1)
    if "p" in options and not 0 < options["p"] < 1:
        raise BadInput(f"the p of {spec.name} must be between 0 and 1, got {options['p']:g}")
    if len(options.get("weights", "four")) != 4:
        raise BadInput(f"{spec.name} has four weights", hint="utility(weights=1/-1/0/0)")
    return Measure(spec, cutoff if cutoff is None or spec.cutoff == "level" else int(cutoff), tuple(options.items()))


def _option_needed_by_rel(spec: MeasureSpec, options: Mapping[str, Any]) -> str:
    """Return the option without which the minimum relevant grade has no effect; empty if it has one."""
    if spec.name != "rndcg" and options.get("gain", "binary") != "binary":
        return "gain=binary"
    return "of=relevant" if options.get("of") == "eps" else ""


def _options_hint(spec: MeasureSpec) -> str:
    return f"{spec.name} has {', '.join(spec.options) or 'no options'}"


def _check_cutoff(spec: MeasureSpec, cutoff: float | None, min_cutoff: int) -> None:
    if cutoff is None:
        if spec.cutoff in ("rank", "level"):
            example = "10" if spec.cutoff == "rank" else "0.5"
            raise BadInput(f"{spec.name} needs a cutoff", hint=f"use {spec.name}@{example}")
    elif not spec.cutoff:
        raise BadInput(f"{spec.name} has no cutoff", hint=f"use {spec.name}")
    elif spec.cutoff != "level" and (cutoff < min_cutoff or cutoff != int(cutoff)):
        raise BadInput(
            f"the cutoff of {spec.name} must be a whole number of at least {min_cutoff}, got {cutoff:g}",
            hint=f"use {spec.name}@10",
        )


def _convention_option(measure: str, option: str, convention: Convention, default: Any) -> Any:
    """Return the convention's value of an option.

    It is `recall_of` for the option `of` of recall, and `rel` for `rel` of all measures. A recall without an F1
    (`of=k`, `of=eps`) does not change F1.
    """
    specific_option = f"{measure.removeprefix('gm_')}_{option}"
    value = getattr(convention, specific_option if hasattr(convention, specific_option) else option, default)
    return default if option == "recall_of" and value not in ("relevant", "capped") else value


def _parse_options(spec: MeasureSpec, text: str, measure_name: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for assignment in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (x.strip() for x in assignment.partition("="))
        if not equals:  # a bare value is the first option that takes a number: rbp(0.8)
            name, value = next((k for k, v in spec.options.items() if isinstance(v, float) and k != "rel"), ""), name
        if name == "dcg":  # name of the gain in ir_measures
            name, value = "gain", {"exp-log2": "exp", "log2": "linear"}.get(value.strip("'\""), value)
        if name not in spec.options:
            raise UnknownName("option", name or value, spec.options, of=spec.name, hint=_options_hint(spec))
        default = spec.options[name]
        try:
            if isinstance(default, tuple):
                options[name] = tuple(float(v) for v in value.split("/"))
            else:
                options[name] = value.strip("'\"") if isinstance(default, str) else float(value)
        except ValueError:
            raise BadInput(f"`{value}` in `{measure_name}` is not a number") from None
    return options


def parse_measure_names(
    texts: Iterable[str], convention: Convention = PRESETS["default"], *, trec: bool = False
) -> list[Measure]:
    """Parse several measures without duplicates.

    Groups and lists of cutoffs are expanded. A text may be a list: measures separated by commas or blanks, and
    further cutoffs of the measure before them. `trec` reads names as trec_eval does: `P` is P at all its default
    cutoffs, `success.1,5` is two measures.

    >>> [str(m) for m in parse_measure_names(["ndcg_cut.5,10", "map"])]
    ['ndcg@5', 'ndcg@10', 'map']
    >>> [str(m) for m in parse_measure_names(["ndcg@5,10, Hit Rate@3", "nDCG@10 AP(rel=2)"])]
    ['ndcg@5', 'ndcg@10', 'hit_rate@3', 'map(rel=2)']
    """
    out: list[Measure] = []
    is_readable = partial(_can_parse, convention=convention)
    for text in [item for text_list in texts for item in split_measure_list(text_list, is_readable)]:
        for name in MEASURE_GROUPS.get(text.strip().lower(), (text,)):
            group = text.strip().lower() in MEASURE_GROUPS
            for measure in _expand_parameters(name, convention, trec=trec or group):
                if measure not in out:
                    out.append(measure)
    return sorted(out, key=_trec_print_order) if trec else out


def split_measure_list(text: str, is_readable: Callable[[str], bool]) -> list[str]:
    """Split a list of measures at commas and blanks outside of parentheses.

    A text that is a single measure is not split.
    """
    if is_readable(text):
        return [text]
    parts = [part.strip() for part in _COMMA_PATTERN.split(text) if part.strip()]
    if len(parts) > 1:
        names: list[str] = []
        for part in parts:
            name = names[-1].rpartition("@")[0] if names else ""
            names += [f"{name}@{part}"] if name and part.isdecimal() else split_measure_list(part, is_readable)
        return names
    words = _BLANK_PATTERN.split(text.strip())
    return words if len(words) > 1 and all(is_readable(word) for word in words) else [text]


def _can_parse(text: str, convention: Convention) -> bool:
    """Return whether a text can be parsed.

    It may be a measure, a group, or a measure with a trec_eval list of cutoffs.
    """
    if text.strip().lower() in MEASURE_GROUPS:
        return True
    try:
        _expand_parameters(text, convention, trec=True)
    except (BadInput, UnknownName):
        return False
    return True


def _expand_parameters(text: str, convention: Convention, *, trec: bool) -> list[Measure]:
    """Parse a name as trec_eval does, with parameters after the first dot."""
    name, dot, parameters = text.strip().partition(".")
    base = _NAMES_BY_ALIAS.get(_CUT_NAMES.get(name.lower(), name.lower()))
    if base is None or "@" in text or "(" in text or (dot and base == "rbp" and "=" not in parameters):
        return [parse_measure(text, convention)]
    spec = MEASURE_REGISTRY[base]
    values = [p for p in parameters.split(",") if p]
    for number in (v.partition("=")[2] or v for v in values):
        try:
            float(number)
        except ValueError:
            raise BadInput(f"`{number}` in `{text}` is not a number") from None
    if base == "utility" and values:
        return [make_measure(spec, None, {"weights": tuple(float(v) for v in values)}, convention)]
    if base == "11pt_avg" and values:
        return [make_measure(spec, None, {"levels": tuple(float(v) for v in values)}, convention)]
    if base == "set_f" and values:
        return [make_measure(spec, None, {"beta": float(values[0])}, convention)]
    if "=" in parameters:
        pairs = [v.partition("=")[::2] for v in values]
        chosen: dict[str, Any] = {k: float(v) for k, v in pairs if not k.lstrip("-").isdigit()}
        table = "/".join(f"{k}:{v}" for k, v in pairs if k.lstrip("-").isdigit())
        return [make_measure(spec, None, {**chosen, **({"gain": table} if table else {})}, convention)]
    if not values and trec and (spec.trec_cutoffs or name.lower() in _CUT_NAMES):
        values = [str(c) for c in spec.trec_cutoffs or MEASURE_REGISTRY["precision"].trec_cutoffs]
    if not values:
        return [parse_measure(text, convention)]
    cutoffs = sorted({float(v) if spec.cutoff == "level" else int(float(v)) for v in values})
    return [make_measure(spec, cutoff, {}, convention) for cutoff in cutoffs]


def _trec_print_order(measure: Measure) -> tuple[int, float]:
    """Return the position of a measure in the output of trec_eval, as a sort key."""
    names = list(MEASURE_REGISTRY)
    position = names.index(measure.spec.name) * 10
    if measure.cutoff is not None and measure.spec.name == "ndcg":
        position = names.index("rndcg") * 10 + 1
    if measure.cutoff is not None and measure.spec.name == "map":
        position = names.index("rndcg") * 10 + 2
    return position, measure.cutoff or 0.0
