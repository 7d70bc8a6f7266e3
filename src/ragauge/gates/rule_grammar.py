"""Grammar of gate rules: `ndcg@10 >= 0.40`, `recall@100 drop <= 1%`, `mrr not worse by topic`.

A rule is an indicator, a condition, and optionally the queries that it applies to. Case and blanks do not matter.
Text in brackets belongs to the indicator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from ragauge.core.errors import BadInput, UnknownName
from ragauge.evaluation.indicators import Indicator
from ragauge.files.serialization import read_settings
from ragauge.gates.results import TESTED_CONDITIONS, Rule

NUMBER_REGEX = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.I)
SIGN_REGEX = re.compile(r"[<>=!≥≤]+")
CONDITION_REGEX = re.compile(r"(?<![\w-])(?:drops?|rises?|not\s+worse|better|non[-\s]?inferior)(?![\w-])", re.I)
CONDITION_START_REGEX = re.compile(f"{SIGN_REGEX.pattern}|{CONDITION_REGEX.pattern}", re.I)
SIGN_SPELLINGS = {">=": ">=", "≥": ">=", ">": ">", "<=": "<=", "≤": "<=", "<": "<"}
CONDITION_HINT = ">= x, > x, <= x, < x, drop <= x, rise <= x, not worse, better or non-inferior by x"
TABLE_CONDITIONS = {
    "at_least": ">=",
    "above": ">",
    "at_most": "<=",
    "below": "<",
    "drop": "drop <=",
    "rise": "rise <=",
    "noninferior": "non-inferior by",
}
TABLE_FLAGS = {"not_worse": "not worse", "better": "better"}
TABLE_SCOPES = ("in", "by")


class _RuleParser:
    """Text of a rule with the position of the parser."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.understood = text, 0, ""

    def take(self, pattern: re.Pattern[str]) -> str | None:
        """Consume and return the next token if it matches a pattern, else None."""
        blanks = len(self.text) - len(self.text[self.at :].lstrip())
        match = pattern.match(self.text, blanks)
        if match is None:
            return None
        self.at = match.end()
        self.understood = self.text[: self.at].strip()
        return match[0]

    @property
    def rest(self) -> str:
        """The text that is not parsed yet."""
        return self.text[self.at :].strip()

    def refuse(self, expected: str) -> NoReturn:
        """Raise BadInput with the parsed part and what is expected next."""
        where = f"from `{self.rest}` on" if self.rest else "to its end"
        raise BadInput(
            f"the rule `{self.text.strip()}` cannot be read {where}",
            hint=(f"after `{self.understood}` comes " if self.understood else "") + expected,
        )


def parse_rule(text: str, find_indicator: Callable[[str], Indicator]) -> Rule:
    """Parse a rule.

    >>> from ragauge.measures.conventions import PRESETS
    >>> from ragauge.evaluation.indicators import find_indicator as find
    >>> read = lambda text: str(parse_rule(text, lambda name: find(name, PRESETS["default"])))
    >>> read("nDCG@10>=.40"), read("p95_ms RISE <= 10 % in topic = files")
    ('ndcg@10 >= 0.4', 'p95_ms rise <= 10% in topic=files')
    """
    written = _RuleParser(text)
    hidden = re.sub(r"\([^()]*\)", lambda match: "_" * len(match[0]), text)
    begins = CONDITION_START_REGEX.search(hidden)
    name = text[: begins.start()] if begins else text
    if not name.strip():
        written.refuse("a rule begins with an indicator, as in `ndcg@10 >= 0.4`")
    indicator = find_indicator(name.strip())
    written.at, written.understood = len(name), name.strip()
    kind, sign, limit, percent = _parse_condition(written)
    _check_no_margin(written, indicator, kind)
    tag, value = _parse_scope(written)
    rule = Rule(indicator, kind, sign, limit, percent, tag, value)
    _check_rule_is_sensible(rule)
    return rule


def _parse_condition(written: _RuleParser) -> tuple[str, str, float, bool]:
    """Parse the kind, the sign, the number, and whether it is a percentage."""
    before = written.at
    sign = written.take(SIGN_REGEX)
    if sign is not None:
        if sign not in SIGN_SPELLINGS:
            written.at, written.understood = before, written.text[:before].strip()
            written.refuse(CONDITION_HINT)
        return "limit", SIGN_SPELLINGS[sign], *_parse_number(written)
    word = written.take(CONDITION_REGEX)
    if word is None:
        written.refuse(CONDITION_HINT)
    kind = re.sub(r"\s+", " ", word.lower())
    if kind in ("not worse", "better"):
        return kind, "", 0.0, False
    if kind.startswith("non"):
        _check_no_baseline(written)
        if written.take(re.compile(r"by\b", re.I)) is None:
            written.refuse("`by` and the margin, as in `non-inferior by 0.02` or `by 2%`")
        return "non-inferior", "", *_parse_number(written)
    sign = written.take(re.compile(r"<=|≤|<"))
    if sign is None:
        written.refuse("<= and a number, as in `drop <= 0.01` or `drop <= 2%`")
    return kind.removesuffix("s"), SIGN_SPELLINGS[sign], *_parse_number(written)


def _check_no_baseline(written: _RuleParser) -> None:
    """Raise BadInput for a baseline in the rule, such as `not worse than bm25`."""
    named = re.match(r"(?:than|from|to|against|vs\.?)\s+(.+)", written.rest, re.I)
    if named:
        name = re.sub(r"\s+(?:by|in)\s.*", "", named[1])
        written.refuse(f"no baseline in the rule; name it with `--baseline {name}` (-b) or baseline=")


def _check_no_margin(written: _RuleParser, indicator: Indicator, kind: str) -> None:
    """Raise BadInput for a baseline or a forbidden margin: `not worse by 0.02`."""
    _check_no_baseline(written)
    match = re.match(rf"by\s+({NUMBER_REGEX.pattern}\s*%?(?:\s.*)?)$", written.rest, re.I)
    if match is None or kind not in ("not worse", "better"):
        return
    change, name, margin = "rise" if indicator.lower_is_better else "drop", indicator.name, match[1].lstrip("+-")
    raise BadInput(
        f"the rule `{written.text.strip()}` has a margin, but `{kind}` takes none",
        hint=f"`{name} non-inferior by {margin}`"
        if kind == "not worse"
        else f"`{name} {change} <= -{margin}` requires a mean that is better by {margin}, `{name} better` a test",
    )


def _parse_number(written: _RuleParser) -> tuple[float, bool]:
    number = written.take(NUMBER_REGEX)
    if number is None or not math.isfinite(float(number)):
        written.refuse("a number, as in 0.4")
    return float(number), written.take(re.compile("%")) is not None


def _parse_scope(written: _RuleParser) -> tuple[str, str | None]:
    """Parse the tag and its value; None for every value."""
    word = written.take(re.compile(r"(?:in|by)\b", re.I))
    if word is None:
        if written.rest:
            written.refuse("the end, `in TAG=VALUE`, or `by TAG`")
        return "", None
    tag, equals, value = (part.strip() for part in written.rest.partition("="))
    if not tag or (word.lower() == "in") != bool(equals and value):
        written.refuse("a tag, as in `by topic`" if word.lower() == "by" else "TAG=VALUE, as in `in topic=files`")
    return tag, value if equals else None


def _check_rule_is_sensible(rule: Rule) -> None:
    """Raise BadInput for a rule that can be parsed but makes no sense."""
    indicator, name = rule.indicator, rule.indicator.name
    if rule.needs_baseline and not indicator.direction_known:
        raise BadInput(
            f"rule `{rule}`: the direction of `{name}` is unknown",
            hint=f"add `--lower-is-better {name}` or `--higher-is-better {name}` (in Python `lower_is_better=[...]`), "
            "or a column `lower_is_better` (true or false) to the table",
        )
    wrong = "rise" if not indicator.lower_is_better else "drop"
    if rule.kind == wrong:
        right, better = ("rise", "lower") if indicator.lower_is_better else ("drop", "higher")
        number = str(rule).removeprefix(f"{name} {wrong} ")
        raise BadInput(
            f"the rule `{rule}` limits an improvement: {name} is a {better}-is-better measure",
            hint=f"`{name} {right} {number}`",
        )
    if rule.percent and rule.kind == "limit" and (indicator.source != "count" or name == "queries"):
        raise BadInput(
            f"rule `{rule}`: a percentage needs a change (drop, rise) or a count",
            hint=f"write `{name} {rule.sign} {rule.limit / 100:g}`",
        )
    if rule.kind == "non-inferior" and not rule.limit > 0:
        raise BadInput(
            f"rule `{rule}`: the margin must be above 0", hint="use the largest loss that you accept as margin"
        )
    if rule.kind in TESTED_CONDITIONS and not indicator.paired:
        raise BadInput(
            f"the rule `{rule}` cannot be tested: {name} is not a mean of values per query",
            hint=f"`{name} {'rise' if indicator.lower_is_better else 'drop'} <= 5%`",
        )
    if rule.tag and not indicator.splits:
        raise BadInput(
            f"the rule `{rule}` splits {name}, which is known only for the whole run", hint=f"`{replace(rule, tag='')}`"
        )


def rule_texts(rules: Any) -> list[str]:
    """Return the texts of rules given as one text, several, or a table.

    A table has the form `{indicator: {"at_least": 0.4, "drop": "2%"}}`.
    """
    if isinstance(rules, str):
        return [rules]
    if isinstance(rules, Mapping):
        return [text for name, table in rules.items() for text in _table_rule_texts(str(name), table)]
    texts: list[Any] = list(rules) if isinstance(rules, Iterable) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise BadInput(f"rules cannot be read from {type(rules).__name__}", hint='["ndcg@10 >= 0.4", "mrr not worse"]')
    return texts


def _table_rule_texts(name: str, table: Any) -> list[str]:
    if not isinstance(table, Mapping):
        raise BadInput(f"the rules of `{name}` must be a table, got {table!r}", hint="{at_least = 0.4, drop = 0.01}")
    known_keys = [*TABLE_CONDITIONS, *TABLE_FLAGS, *TABLE_SCOPES]
    where = "".join(f" {word} {table[word]}" for word in TABLE_SCOPES if word in table)
    texts = []
    for key, value in table.items():
        if key not in known_keys:
            raise UnknownName("rule", str(key), known_keys, of=f"`{name}`")
        if key in TABLE_FLAGS:
            if value is not True:
                raise BadInput(f"`{key}` of `{name}` must be true, got {value!r}", hint="remove the key")
            texts.append(f"{name} {TABLE_FLAGS[key]}{where}")
        elif key in TABLE_CONDITIONS:
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise BadInput(f"`{key}` of `{name}` must be a number, got {value!r}", hint=f'{key} = 0.4, or "2%"')
            texts.append(f"{name} {TABLE_CONDITIONS[key]} {value}{where}")
    if not texts:
        raise BadInput(f"no condition for `{name}`", hint="at_least = 0.4")
    return texts


GATE_FILE_TYPES: dict[str, tuple[type, ...]] = {
    "rules": (list,),
    "measures": (dict,),
    "baseline": (str,),
    "alpha": (int, float),
    "correction": (str,),
    "min_queries": (int,),
    "convention": (str,),
    "tags": (str,),
    "targets": (str,),
    "lower_is_better": (list,),
    "higher_is_better": (list,),
    "allow_changed_corpus": (bool,),
}
GATE_FILE_PATHS = ("baseline", "tags", "targets")


def read_gate_file(path: str) -> dict[str, Any]:
    """Read the arguments of `gate` from a file.

    `measures` is a table per indicator and is converted to rules. Paths may be relative to the file.
    """
    data = read_settings(path, GATE_FILE_TYPES)
    try:
        rules = [*rule_texts(data.get("rules", [])), *rule_texts(data.pop("measures", {}))]
    except BadInput as error:
        raise BadInput(error.message, file=path, hint=error.hint) from None
    for key in GATE_FILE_PATHS:
        if key in data and (Path(path).parent / data[key]).exists():
            data[key] = str(Path(path).parent / data[key])
    return {**data, "rules": rules}
