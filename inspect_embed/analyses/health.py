"""What is wrong in a table: broken rows, doubled rows, rows that training hardly touched, the shape of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from inspect_embed.checkpoint import Checkpoint, TableFacts
from inspect_embed.errors import AnalysisError, TableError, TokenError
from inspect_embed.report import Report, Result
from inspect_embed.table import EmbeddingTable, TokenLabels
from inspect_embed.vocabularies import Vocabulary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from inspect_embed.numerics.all_pairs import AllNearest

    Bools = NDArray[np.bool_]
    Float64s = NDArray[np.float64]

FINDINGS = {
    "zero": "all zeros: no direction, nobody's neighbour",
    "not finite": "holds a number that is not finite",
    "equal": "equal to another row",
    "nearly equal": "differs from another row by no more than 1 % of its length",
    "without a token": "no token names the row",
    "without a row": "the table ends before the token",
    "short": "far shorter than the rest",
    "long": "far longer than the rest",
    "hardly trained": "looks like the rows known to be unused",
    "hub": "a neighbour of more than ten times as many tokens as the average",
}
"""What can be found, and what it means."""

NEIGHBORS = 10
"""Hubs are counted among so many neighbours of each token."""
HUB_FACTOR = 10
TELLS = 0.9
"""An indicator tells the unused rows from others where so many pairs of one and the other are in the right order."""
SUSPECT_SHARE = 0.02
"""No more than this share of the other tokens is suspected, as in the paper's verification."""
SHOWN = 10
_BINS = 60

MODEL_KINDS = {
    "tied": ("the output head is the input table", ("distance", "length")),
    "untied": ("input and output tables of their own", ("length", "distance")),
    "single": ("the file holds no output table", ("distance", "length")),
}
"""By the model's kind: what it means, and which indicator is asked first (Land & Bartolo 2024, section 2.2)."""

INDICATORS = {
    "distance": "1 - cosine with the mean of the rows known to be unused, the first principal component taken away",
    "length": "length of the row",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row and the token that names it."""

    id: int
    token: str


@dataclass(frozen=True, slots=True)
class OddLength:
    """A row that is far shorter or longer than the rest."""

    id: int
    token: str
    length: float


@dataclass(frozen=True, slots=True)
class Finding:
    """How many rows are odd in one way (see FINDINGS), and which; `threshold` where there is one."""

    kind: str
    n: int
    rows: tuple[Row, ...]
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the rows of tokens are: quartiles, the fences beyond which a row is far out, a histogram."""

    least: float
    first_quartile: float
    median: float
    third_quartile: float
    largest: float
    shorter_than: float
    longer_than: float
    short: tuple[OddLength, ...]
    long: tuple[OddLength, ...]
    bin_edges: tuple[float, ...]
    bin_counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Indicator:
    """A number that is small for rows hardly trained, and how well it tells the rows known to be unused.

    `separation`: the share of pairs of an unused and another row in which the unused one has the smaller value; an
    unused row has no part in the mean that it is compared with. None where no unused row is known.
    """

    name: str
    meaning: str
    table: str
    separation: float | None


@dataclass(frozen=True, slots=True)
class Unused:
    """Rows known to be unused, of one sort."""

    sort: str
    n: int
    first: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that may be hardly trained.

    `value`: the chosen indicator. `percentile`: 100 x the share of tokens whose value is smaller. `other`: the
    other indicator. `reach`: "text", "unreachable", "partial UTF-8", "special", or None where it is not known.
    `reference`: it is one of the rows known to be unused.
    """

    place: int
    id: int
    token: str
    value: float
    percentile: float
    other: float | None
    reach: str | None
    reference: bool


@dataclass(frozen=True, slots=True)
class Undertrained:
    """Tokens in the order of the chosen indicator, the likeliest to be hardly trained first.

    `threshold`: at or below it a token is like the unused rows, by the outer fence of their own values, and among the
    first 2 % of the others; None where the indicator does not tell unused rows from others: the order is all there is.
    `agreement`: Spearman's rank correlation of the two indicators over all tokens. `in_common`: the share of the
    first 2 % by one indicator that are so by the other. `candidates`: `n_listed` tokens, or as many as lie below the
    threshold where they are more, and the rows known to be unused that come before the last of them.
    """

    model_kind: str
    indicator: Indicator
    other: Indicator | None
    reason: str
    unused: tuple[Unused, ...]
    threshold: float | None
    n_below: int
    agreement: float | None
    in_common: float | None
    n_listed: int
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Cloud:
    """The shape of the cloud of tokens' vectors; see numerics.cloud for each measure."""

    n: int
    mean_cosine: float
    participation_ratio: float
    effective_rank: float
    isoscore: float
    variances: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Hub:
    """A token, and of how many others it is one of the nearest."""

    id: int
    token: str
    occurrences: int


@dataclass(frozen=True, slots=True)
class Hubness:
    """How unevenly tokens are among the k nearest of others; `n_never`: tokens that never are."""

    k: int
    n: int
    skewness: float
    n_never: int
    hubs: tuple[Hub, ...]


@dataclass(frozen=True)
class Health(Result):
    """What was found in a table. `hubness` is None where the neighbours of every token were not asked for."""

    checkpoint: str
    table: TableFacts
    n_tokens: int | None
    findings: tuple[Finding, ...]
    equal: tuple[tuple[Row, ...], ...]
    nearly_equal: tuple[tuple[Row, ...], ...]
    lengths: Lengths
    reach: dict[str, int] | None
    undertrained: Undertrained
    cloud: Cloud
    hubness: Hubness | None
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """Findings, candidates, the cloud and its hubs; the sheet holds every row found."""
        from inspect_embed.analyses._health_shown import describe

        return describe(self)


def health(
    checkpoint: Checkpoint,
    *,
    table: str = "input",
    tensor: str | None = None,
    candidates: int = 20,
    hubs: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Health:
    """What is wrong in this table, and what shape has it?

    Rows that are zero, not finite, equal, nearly equal, far short or long, without a token; tokens without a row;
    tokens that training hardly touched (`candidates`: how many of them are listed); the shape of the cloud; and hubs,
    which need the nearest neighbours of every token (`hubs`; nearly equal rows are looked for among those neighbours,
    too). Cloud, lengths and neighbours are those of rows that a token names and that have a direction.

    Cost: some ten passes over the table; with `hubs`, the square of the number of tokens times the width, reported to
    `progress` as rows done and rows in all.

    >>> found = health(open_checkpoint("checkpoints/bigram"), hubs=False)
    >>> found.undertrained.candidates[0].token
    '<unk>'
    """
    import numpy as np

    from inspect_embed.numerics import all_pairs, cloud, twins
    from inspect_embed.numerics.vectors import has_direction

    opened = checkpoint.table(table, tensor)
    vocabulary = checkpoint.vocabulary
    norms, named = opened.norms, opened.labels.named(opened.n_rows)
    sound = has_direction(norms)
    compared = named & sound
    if not compared.any():
        raise AnalysisError(
            f"No row of {opened.tensor.name} has both a direction and a token.",
            "Name another tensor.",
        )
    label = opened.labels.text
    notes = list(opened.notes)
    reach, problem = _find_reach(vocabulary)
    notes += [problem] if problem else []
    equal = twins.group_equal(opened, sound)
    near: list[list[int]] = []
    hubness = None
    if hubs:
        nearest = all_pairs.find_all_nearest(opened, NEIGHBORS, compared, progress)
        near = twins.group_near(opened, nearest, norms)
        hubness = _count_hubs(nearest, opened)
    lengths = _measure_lengths(opened, compared)
    moments = cloud.measure_moments(opened, compared)
    variances = moments.variances()
    undertrained = _rank_undertrained(checkpoint, opened, tensor is None, reach, candidates)
    beyond = vocabulary.beyond(opened.n_rows) if vocabulary is not None else []
    suspects = [row for row in undertrained.candidates if _is_suspect(row, undertrained.threshold)]
    found = [
        _find("zero", np.flatnonzero(norms == 0), label),
        _find("not finite", np.flatnonzero(~np.isfinite(norms)), label),
        _find("equal", [row for group in equal for row in group], label),
        _find("nearly equal", [row for group in near for row in group], label, twins.NEAR),
        _find("without a token", np.flatnonzero(~named), label),
        _find("without a row", beyond, label),
        _find("short", [row.id for row in lengths.short], label, lengths.shorter_than),
        _find("long", [row.id for row in lengths.long], label, lengths.longer_than),
        _find(
            "hardly trained",
            [row.id for row in suspects],
            label,
            undertrained.threshold,
        ),
    ]
    if hubness is not None:
        most = HUB_FACTOR * hubness.k
        hubs_found = [hub.id for hub in hubness.hubs if hub.occurrences > most]
        found.append(_find("hub", hubs_found, label, float(most)))
    else:
        notes.append("Hubs and nearly equal rows were not looked for.")
    if vocabulary is None:
        notes.append("Without a tokenizer, rows are known by id alone, and none is known to be unused.")
    return Health(
        checkpoint.location,
        TableFacts.of(opened),
        None if vocabulary is None else vocabulary.n_tokens,
        tuple(finding for finding in found if finding.n),
        tuple(_rows(group, label) for group in equal),
        tuple(_rows(group, label) for group in near),
        lengths,
        None if reach is None else _count(reach),
        undertrained,
        Cloud(
            moments.n,
            cloud.mean_cosine(opened, compared),
            cloud.participation_ratio(variances),
            cloud.effective_rank(variances),
            cloud.isoscore(variances),
            tuple(variances.tolist()),
        ),
        hubness,
        tuple(notes),
    )


def _rows(ids: Iterable[int], label: Callable[[int], str]) -> tuple[Row, ...]:
    return tuple(Row(int(id_), label(int(id_))) for id_ in ids)


def _find(
    kind: str,
    ids: Iterable[int],
    label: Callable[[int], str],
    threshold: float | None = None,
) -> Finding:
    rows = _rows(ids, label)
    return Finding(kind, len(rows), rows, threshold)


def _count(reach: dict[int, str]) -> dict[str, int]:
    counts = dict.fromkeys(("text", "unreachable", "partial UTF-8", "special"), 0)
    for way in reach.values():
        counts[way] += 1
    return counts


def _find_reach(vocabulary: Vocabulary | None) -> tuple[dict[int, str] | None, str]:
    """How a text reaches each token; None, and why, where that cannot be known."""
    from inspect_embed.vocabularies._library import Refusal
    from inspect_embed.vocabularies._reach import find_reach

    if vocabulary is None:
        return None, ""
    try:
        return {id_: str(way) for id_, way in find_reach(vocabulary).items()}, ""
    except TokenError as error:
        return None, str(error)
    except Refusal as refusal:
        return None, f"Which tokens a text can reach is not known: {refusal}"


def _measure_lengths(table: EmbeddingTable, compared: Bools) -> Lengths:
    import numpy as np

    from inspect_embed.numerics.cloud import outer_fences

    norms, label = table.norms, table.labels.text
    shorter_than, longer_than = outer_fences(norms[compared])
    usual = norms[compared]
    counts, edges = np.histogram(usual, _BINS)

    def list_odd(mask: Bools, sign: int) -> tuple[OddLength, ...]:
        rows = np.flatnonzero(mask & compared)
        rows = rows[np.argsort(sign * norms[rows], kind="stable")]
        return tuple(OddLength(row, label(row), length) for row, length in _pairs(rows, norms))

    least, first, median, third, largest = np.quantile(usual, [0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
    return Lengths(
        least,
        first,
        median,
        third,
        largest,
        shorter_than,
        longer_than,
        list_odd(norms < shorter_than, 1),
        list_odd(norms > longer_than, -1),
        tuple(edges.tolist()),
        tuple(counts.tolist()),
    )


def _pairs(rows: NDArray[np.int64], values: Float64s) -> Iterable[tuple[int, float]]:
    return zip(rows.tolist(), values[rows].tolist(), strict=True)


def _count_hubs(nearest: AllNearest, table: EmbeddingTable) -> Hubness:
    import numpy as np

    from inspect_embed.numerics import cloud

    counts = cloud.count_occurrences(nearest.ids, table.n_rows)[nearest.rows]
    k = nearest.ids.shape[1]
    order = np.argsort(-counts, kind="stable")
    n_hubs = max(SHOWN, int(np.count_nonzero(counts > HUB_FACTOR * k)))
    hubs = tuple(
        Hub(row, table.labels.text(row), count)
        for row, count in zip(
            nearest.rows[order[:n_hubs]].tolist(),
            counts[order[:n_hubs]].tolist(),
            strict=True,
        )
    )
    return Hubness(k, len(counts), cloud.skewness(counts), int(np.count_nonzero(counts == 0)), hubs)


# Hardly trained tokens


@dataclass(frozen=True, slots=True)
class _Measured:
    """An indicator of every row; for rows known to be unused also without their own part in it."""

    indicator: Indicator
    values: Float64s
    held_out: Float64s


def _rank_undertrained(
    checkpoint: Checkpoint,
    table: EmbeddingTable,
    whole_model: bool,
    reach: dict[int, str] | None,
    n_candidates: int,
) -> Undertrained:
    """The tokens in the order of the indicator that this kind of model asks for."""
    import numpy as np

    kind, rows, head = _kind_of_model(checkpoint, table, whole_model)
    n = min(rows.n_rows, head.n_rows)
    named = rows.labels.named(rows.n_rows)[:n]
    unused = _find_unused(rows, n, reach)
    known = np.zeros(n, bool)
    for _, ids in unused:
        known[ids] = True
    measured = _measure_indicators(kind, rows, head, named, known)
    chosen = next((m for m in measured.values() if _tells(m)), next(iter(measured.values())))
    other = next((m for m in measured.values() if m is not chosen), None)
    threshold = _find_threshold(chosen, named, known) if _tells(chosen) else None
    shown = np.flatnonzero(named & np.isfinite(chosen.values))
    order = shown[np.lexsort((shown, chosen.values[shown]))]
    agreement, in_common = (None, None) if other is None else _hold_together(chosen, other, shown)
    return Undertrained(
        kind,
        chosen.indicator,
        None if other is None else other.indicator,
        _reason(kind, chosen, measured, bool(unused)),
        tuple(Unused(sort, len(ids), _rows(ids[:SHOWN], rows.labels.text)) for sort, ids in unused),
        threshold,
        0 if threshold is None else int(np.count_nonzero(chosen.values[order] <= threshold)),
        agreement,
        in_common,
        n_candidates,
        _list_candidates(order, chosen, other, known, rows, reach, n_candidates, threshold),
    )


def _measure_indicators(
    kind: str, rows: EmbeddingTable, head: EmbeddingTable, named: Bools, known: Bools
) -> dict[str, _Measured]:
    """The indicators that can be had, the one that this kind of model asks for first."""
    import numpy as np

    from inspect_embed.numerics.undertrained import distance_from_unused, separation
    from inspect_embed.numerics.vectors import has_direction

    n = len(named)
    lengths = np.where(has_direction(rows.norms), rows.norms, np.nan)[:n]
    values = {"length": (lengths, lengths, rows)}
    if known.any():
        in_head = np.zeros(head.n_rows, bool)
        in_head[:n] = known
        distances = distance_from_unused(head, in_head)
        values["distance"] = (distances.values[:n], distances.held_out[:n], head)
    measured = {}
    for name in MODEL_KINDS[kind][1]:
        if name not in values or np.isnan(values[name][0]).all():
            continue
        of_all, held_out, used = values[name]
        where = (named | known) & np.isfinite(held_out)
        told = separation(held_out[where], known[where])
        indicator = Indicator(
            name,
            INDICATORS[name],
            f"{used.role} table {used.tensor.name}",
            None if isnan(told) else told,
        )
        measured[name] = _Measured(indicator, of_all, held_out)
    return measured


def _tells(measured: _Measured) -> bool:
    return (measured.indicator.separation or 0.0) >= TELLS


def _find_threshold(chosen: _Measured, named: Bools, known: Bools) -> float:
    import numpy as np

    from inspect_embed.numerics.cloud import outer_fences

    others = chosen.values[named & ~known]
    # Unused rows may be equal to the last bit: their distance is then nothing but rounding.
    usual = np.maximum(chosen.held_out[known], 1e-9 * float(np.nanmedian(others)))
    return min(outer_fences(usual)[1], float(np.nanquantile(others, SUSPECT_SHARE)))


def _hold_together(one: _Measured, other: _Measured, rows: NDArray[np.int64]) -> tuple[float, float]:
    """Spearman's rank correlation of two indicators, and what their first 2 % have in common."""
    import numpy as np

    from inspect_embed.numerics.undertrained import spearman

    rows = rows[np.isfinite(other.values[rows])]
    n = max(1, round(SUSPECT_SHARE * len(rows)))
    first, second = (set(rows[np.argsort(m.values[rows], kind="stable")[:n]].tolist()) for m in (one, other))
    return spearman(one.values[rows], other.values[rows]), len(first & second) / n


def _kind_of_model(
    checkpoint: Checkpoint, table: EmbeddingTable, whole_model: bool
) -> tuple[str, EmbeddingTable, EmbeddingTable]:
    """The model's kind; the table whose lengths, and the one whose directions are asked."""
    from inspect_embed.numerics.vectors import has_direction

    if not whole_model:
        return "single", table, table
    rows = checkpoint.table("input")
    if not has_direction(rows.norms).any():
        return "single", table, table
    try:
        head = checkpoint.table("output")
    except TableError:
        return "single", rows, rows
    if not head.readable:
        return "single", rows, rows
    tied = head.tensor.name == rows.tensor.name or head.has_same_values(rows)
    return ("tied", rows, rows) if tied else ("untied", rows, head)


def _find_unused(table: EmbeddingTable, n: int, reach: dict[int, str] | None) -> list[tuple[str, list[int]]]:
    """Rows of the first n whose tokens stand in no text, by sort."""
    import numpy as np

    from inspect_embed.numerics.vectors import has_direction
    from inspect_embed.vocabularies._reach import holds_impossible_byte

    vocabulary = table.labels.vocabulary if isinstance(table.labels, TokenLabels) else None
    if vocabulary is None:
        return []
    sound = has_direction(table.norms)
    sorts: dict[str, list[int]] = {
        "rows that no token names": np.flatnonzero(~table.labels.named(table.n_rows)[:n] & sound[:n]).tolist()
    }
    for id_ in vocabulary.ids():
        token = vocabulary.token(id_)
        if id_ >= n or token is None or not sound[id_]:
            continue
        way = None if reach is None else reach[id_]
        if token.kind == "unused":
            sorts.setdefault("reserved tokens", []).append(id_)
        elif token.kind == "byte" and holds_impossible_byte(vocabulary.bytes_of(id_) or b""):
            sorts.setdefault("bytes that no UTF-8 text holds", []).append(id_)
        elif token.kind == "byte" and way == "unreachable":
            sorts.setdefault("bytes that another token stands for", []).append(id_)
    found = [(sort, ids) for sort, ids in sorts.items() if ids]
    if not found and reach is not None:
        ids = [id_ for id_, way in reach.items() if way == "unreachable" and id_ < n and sound[id_]]
        # Where most are out of reach, the tokenizer is at fault, and not the training.
        return [("tokens that no text reaches", ids)] if 0 < len(ids) < len(reach) / 2 else []
    return found


def _reason(kind: str, chosen: _Measured, measured: dict[str, _Measured], unused_known: bool) -> str:
    """Why this indicator? A sentence."""
    meaning, preferred = MODEL_KINDS[kind]
    name, told = chosen.indicator.name, chosen.indicator.separation
    start = meaning[0].upper() + meaning[1:]
    if not unused_known:
        return f"{start}; no row is known to be unused, so that lengths are all there is to order by."
    if told is None:
        return f"{start}; too few rows are known to be unused to tell how well this works."
    if told < TELLS:
        return (
            f"{start}; but it tells unused rows from others in {told:.1%} of pairs only: the rows known to be "
            f"unused were trained as others were, or the model is young. The order says little."
        )
    if name != preferred[0]:
        first = measured.get(preferred[0])
        why = "cannot be computed"
        if first is not None and first.indicator.separation is not None:
            why = f"does not tell unused rows ({first.indicator.separation:.1%} of pairs)"
        return f"{start}; the {preferred[0]} {why}, the {name} does ({told:.1%})."
    return f"{start}; it tells unused rows from others in {told:.1%} of pairs."


def _list_candidates(
    order: NDArray[np.int64],
    chosen: _Measured,
    other: _Measured | None,
    known: Bools,
    table: EmbeddingTable,
    reach: dict[int, str] | None,
    n: int,
    threshold: float | None,
) -> tuple[Candidate, ...]:
    """The first n tokens that are not known to be unused, or as many as lie below the threshold; and what precedes."""
    import numpy as np

    ordered = chosen.values[order]
    wanted = np.flatnonzero(~known[order])
    below = 0 if threshold is None else int(np.count_nonzero(ordered[wanted] <= threshold))
    wanted = wanted[: max(n, below)]
    last = int(wanted[-1]) + 1 if len(wanted) else 0
    smaller = np.searchsorted(ordered, ordered[:last], side="left")
    return tuple(
        Candidate(
            place,
            row,
            table.labels.text(row),
            value,
            100.0 * rank / len(order),
            None if other is None else float(other.values[row]),
            None if reach is None else reach[row],
            bool(known[row]),
        )
        for place, (row, value, rank) in enumerate(
            zip(
                order[:last].tolist(),
                ordered[:last].tolist(),
                smaller.tolist(),
                strict=True,
            ),
            1,
        )
    )


def _is_suspect(candidate: Candidate, threshold: float | None) -> bool:
    return threshold is not None and candidate.value <= threshold and not candidate.reference
