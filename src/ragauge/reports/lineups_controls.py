"""Sentences and control tables of an embedder study.

The tables show what differs, robustness, tokenizers and failures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ragauge.lineups import Entrant, Lineup, Shaken, Tokens
from ragauge.reports.lineups_rows import NONE, first, interval, many, ordered, percent, plain, signed, whole
from ragauge.reports.tables import Rows, counted, one_line, p_value

LONG = 60
"""Maximum number of characters of an error on a terminal."""


def trained(one: Entrant) -> str:
    """Describe where the weights were trained."""
    if one.trained is None:
        return NONE
    if not one.trained:
        return "not at all"
    return "elsewhere" if math.isnan(one.train_seconds) else "here"


def differing(found: Lineup) -> Rows:
    """Build the table of properties in which embedders differ."""
    header = ["embedder", "trained", "params", "dim", "reads tokens", "cut off", "tokenizer"]
    rows = [
        [
            one.name,
            trained(one),
            many(one.parameters),
            whole(one.dimension),
            whole(one.limit),
            percent(one.truncated),
            NONE if one.tokenizer is None else one.tokenizer.tokenizer,
        ]
        for one in ordered(found)
    ]
    return Rows("", header, rows, goes=(4,))


def unequal(found: Lineup) -> list[str]:
    """Return the properties that differ between embedders, in words."""
    several = [one for one in found.entrants if one.kind == "embedder"]
    told = []
    ways = list(dict.fromkeys(way for one in several if (way := trained(one)) != NONE))
    if len(ways) > 1:
        told.append(f"training ({', '.join(ways)})")
    figures = {
        "parameters": [one.parameters for one in several],
        "dimension": [one.dimension for one in several],
        "tokens that are read": [one.limit for one in several],
    }
    for name, values in figures.items():
        known = sorted({value for value in values if value is not None})
        if len(known) > 1:
            told.append(f"{name} ({many(known[0])} to {many(known[-1])})")
    cut = sorted({one.truncated for one in several if not math.isnan(one.truncated)})
    if len(cut) > 1:
        told.append(f"documents of which the end is not read ({percent(cut[0])} to {percent(cut[-1])})")
    if len({one.tokenizer.tokenizer for one in several if one.tokenizer is not None}) > 1:
        told.append("tokenizer")
    return told


Key = tuple[str, str]
"""Name and formatted rate of a perturbation; the rate is text because NaN is not equal to itself."""


def key_of(one: Shaken) -> Key:
    """Return the key of a perturbation."""
    return one.how, "" if math.isnan(one.rate) else f"{one.rate:g}"


def perturbations(found: Lineup) -> list[Key]:
    """Return the perturbations, largest mean loss first."""
    losses: dict[Key, list[float]] = {}
    for one in found.entrants:
        for shaken in one.shaken:
            losses.setdefault(key_of(shaken), []).append(shaken.gap.difference)
    means = {key: sum(known) / len(known) for key, several in losses.items() if (known := _known(several))}
    return sorted(losses, key=lambda key: means.get(key, math.inf))


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def called(found: Lineup, key: Key) -> str:
    """Return the name of a perturbation, with its rate if there are several."""
    rates = {rate for how, rate in perturbations(found) if how == key[0]}
    return key[0] if len(rates) == 1 else " ".join(key)


def robustness(found: Lineup) -> Rows | None:
    """Build the table of losses by perturbation and embedder.

    None if there are no perturbations.
    """
    keys = perturbations(found)
    if not keys:
        return None
    several = [one for one in ordered(found) if one.shaken]
    cells = {(one.name, *key_of(it)): it for one in several for it in one.shaken}
    rows = []
    for one in several:
        changes = [_loss(found, cells.get((one.name, *key))) for key in keys]
        rows.append([one.name, plain(first(found, one).value), _kept(found, one), *changes])
    header = ["embedder", "as asked", "kept", *(called(found, key) for key in keys)]
    return Rows("", header, rows, goes=tuple(range(len(header) - 1, 4, -1)))


def _kept(found: Lineup, one: Entrant) -> str:
    """Return the mean share of the quality that perturbations leave."""
    whole = first(found, one).value
    left = _known([1 + it.gap.difference / whole for it in one.shaken if whole > 0])
    return NONE if not left else f"{sum(left) / len(left):.0%}"


def sure(found: Lineup, p: float) -> bool:
    """Return whether a corrected p-value is below 1 minus the confidence level."""
    return p < round(1 - found.confidence, 12)


def _loss(found: Lineup, one: Shaken | None) -> str:
    if one is None or math.isnan(one.gap.difference):
        return NONE
    return f"{signed(one.gap.difference, 3)}{'*' if sure(found, one.gap.p_corrected) else ''}"


def every_perturbation(found: Lineup) -> Rows:
    """Build a table with one row per embedder and perturbation."""
    level = f"{found.confidence:.0%}"
    header = ["embedder", "perturbation", "rate", "queries changed", found.measures[0], level, "lost", f"{level} of it"]
    header += ["p", "corrected", "seeds"]
    rows = []
    for one in ordered(found):
        for it in one.shaken:
            gap = it.gap
            ends = NONE if math.isnan(gap.low) else f"{gap.low:+.4f} to {gap.high:+.4f}"
            told = [signed(gap.difference), ends, p_value(gap.p), p_value(gap.p_corrected), f"{it.seeds:,}"]
            how, rate = key_of(it)
            rows.append(
                [one.name, how, rate or NONE, percent(it.changed), plain(it.mean.value), interval(it.mean), *told]
            )
    return Rows("", header, rows)


def of_tokens(found: Lineup) -> list[Tokens]:
    """Return the tokenizers of the embedders without duplicates."""
    known = [one.tokenizer for one in ordered(found) if one.tokenizer is not None]
    return list({(one.tokenizer, one.limit): one for one in known}.values())


def probed(several: Sequence[Tokens]) -> list[Tokens]:
    """Return the tokenizers with the same probe texts as the first that has any."""
    texts = next(([probe.text for probe in one.probes] for one in several if one.probes), [])
    return [one for one in several if texts and [probe.text for probe in one.probes] == texts]


def bits(found: Lineup) -> Rows | None:
    """Build the table of bits per byte, fewest first.

    None if there is no language model.
    """
    models = {one.name: one for one in found.entrants if not math.isnan(one.bits_per_byte)}
    if not models:
        return None
    known = {**{name: one.bits_per_byte for name, one in models.items()}}
    others = {f"{name} (a compressor)": value for name, value in found.references.items()}
    rows = [
        [name, f"{value:.3f}", trained(models[name]) if name in models else NONE]
        for name, value in sorted([*known.items(), *others.items()], key=lambda pair: pair[1])
    ]
    return Rows("", ["model", "bits per byte", "trained"], rows)


def faulty(found: Lineup) -> Rows | None:
    """Build the table of texts without a vector, by embedder and reason.

    None if there are none.
    """
    rows = []
    for one in found.entrants:
        for what, count in one.faulty.items():
            kind, _, why = what.partition(" ")
            named = [fault.id for fault in one.faults if (fault.what, fault.why) == (kind, why)]
            some = ", ".join(named[:3]) + (", …" if count > 3 else "")
            rows.append([one.name, counted(count, kind, "queries" if kind == "query" else ""), why, some or NONE])
    return Rows("", ["embedder", "texts", "why", "such as"], rows, numbers=False) if rows else None


def faults(found: Lineup) -> Rows:
    """Build a table with one row per listed text without a vector."""
    rows = [
        [one.name, fault.what, fault.id, fault.why, one_line(fault.error) or NONE]
        for one in found.entrants
        for fault in one.faults
    ]
    return Rows("", ["embedder", "text", "id", "why", "error"], rows, numbers=False)


def failures(found: Lineup) -> Rows:
    """Build the table of embedders that failed."""
    rows = [[name, one_line(why)] for name, why in found.failures.items()]
    return Rows("", ["embedder", "why"], rows, numbers=False)
