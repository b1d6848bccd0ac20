"""How does a model know where a token stands?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from inspect_embed.analyses._positions_shown import describe
from inspect_embed.checkpoint import Checkpoint, TableFacts
from inspect_embed.errors import AnalysisError, InspectEmbedError, MissingTableError, shorten
from inspect_embed.families import LENGTH_KEYS, nested_configs
from inspect_embed.report import Report, Result
from inspect_embed.table import EmbeddingTable, PositionLabels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from inspect_embed.numerics.positions import Layout, Sinusoids
    from inspect_embed.numerics.rotary import Rope
    from inspect_embed.numerics.search import Rows

    Float64s = NDArray[np.float64]

MOST_LISTED = 2048
"""Places whose numbers are listed one by one; of longer tables as many evenly spaced ones."""
MOST_MAPPED = 128
"""Places on the map of likeness."""
COLUMNS_DRAWN = 4
VALUES_SHOWN = 8
"""Rows of sinusoids whose numbers are given."""
MOST_HEADS = 4096
WIDEST_SINUSOIDS = 1 << 16
LONGEST_SINUSOIDS = 1 << 24
_OUTLIER = 3.0
_RELATIVE_LEAF = "relative_attention_bias.weight"


# --- the records ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Cosines of places at one distance: their mean, the 5th and the 95th percentile, the mean of shuffled rows.

    `pairs` were compared, those of rows that have directions; NaN where there is none.
    """

    distance: int
    mean: float
    low: float
    high: float
    shuffled: float
    pairs: int


@dataclass(frozen=True, slots=True)
class PlacePair:
    """Two places compared; `cosine` is NaN where a row has no direction, all three where one is not finite."""

    a: int
    b: int
    cosine: float
    dot: float
    euclidean: float
    row_a: int
    row_b: int


@dataclass(frozen=True, slots=True)
class PlaceLength:
    """A place, its row, and how long the row is."""

    place: int
    row: int
    length: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The cosine of one place with every listed place, in their order."""

    place: int
    row: int
    cosines: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """One column of the table, at every listed place."""

    column: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Along:
    """The table place by place, `places` in order: all of them, or evenly spaced ones of a long table.

    `lengths` of the rows. `path`: where each row stands on the first components (up to three). `columns`: some
    columns. `map`: the cosine of every pair of `map_places`.
    """

    places: tuple[int, ...]
    lengths: tuple[float, ...]
    path: tuple[tuple[float, ...], ...]
    columns: tuple[ColumnValues, ...]
    map_places: tuple[int, ...]
    map: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class TokenCosines:
    """Cosines of token rows with position rows, by size: the largest, the mean; and with random directions instead.

    Every row of the token table against `n_positions` position rows.
    """

    largest: float
    mean: float
    random_largest: float
    random_mean: float
    n_pairs: int
    n_positions: int


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a position table as a whole.

    `typical_length` is the median. `outliers`: rows more than three times as long, or a third as long. Places whose
    row is all zeros (`zero`), not finite (`broken`), or no more like its neighbours than chance (`untrained`; None
    where that cannot be told). `shares` of the variance along the leading components, in [0, 1].
    """

    n_rows: int
    width: int
    typical_length: float
    shortest: PlaceLength | None
    longest: PlaceLength | None
    outliers: tuple[PlaceLength, ...]
    zero: tuple[int, ...]
    broken: tuple[int, ...]
    untrained: tuple[int, ...] | None
    shares: tuple[float, ...]
    tokens: TokenCosines | None
    along: Along


@dataclass(frozen=True, slots=True)
class PlaceValues:
    """The numbers of one place's row."""

    place: int
    row: int
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Dots:
    """Dot products of rows with the row `offset` further on, one for each start; and the distance of the two rows.

    None where the table ends before that.
    """

    offset: int
    dots: tuple[float | None, ...]
    euclidean: float


@dataclass(frozen=True, slots=True)
class Turn:
    """How far row p, turned pair by pair for `k` rows, is from row p + k: the largest difference over every p."""

    k: int
    largest_difference: float


@dataclass(frozen=True, slots=True)
class SinusoidFacts:
    """What a table of sinusoids is made of.

    `layout`: "interleaved" (sine and cosine in turn) or "halves" (all sines, then all cosines). `frequencies`: radians
    from row to row. `misfit`: the largest distance of a value from the sinusoids, over `amplitude`. `starts`: rows
    (from 0) that the dot products start from.
    """

    layout: str
    sine_first: bool
    base: float
    exponent: str
    fitted: bool
    amplitude: float
    misfit: float
    frequencies: tuple[float, ...]
    starts: tuple[int, ...]
    dots: tuple[Dots, ...]
    turning: tuple[Turn, ...]
    values: tuple[PlaceValues, ...]


@dataclass(frozen=True, slots=True)
class RotaryLayers:
    """What one kind of layer does to its queries and keys.

    `width` of the `head_width` numbers of a head are turned, in pairs, by `frequencies` radians a position. A `scaling`
    that goes by the length of the text holds for `lengths`. `slower_than_context`: pairs that turn less than once
    over the context; None where the config states none.
    """

    layers: str
    scaling: str
    lengths: str
    theta: float
    factor: float | None
    attention_factor: float
    head_width: int
    width: int
    context: int | None
    slower_than_context: int | None
    frequencies: tuple[float, ...]
    wavelengths: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RelativeBias:
    """What each head adds to a score by distance (the key's place minus the query's): `heads` x `distances`."""

    tensor: str
    n_buckets: int
    largest_distance: int
    bidirectional: bool
    distances: tuple[int, ...]
    heads: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Positions(Result):
    """How a model knows where a token stands.

    `kinds`: learned, sinusoidal, rotary, alibi, relative, none; empty where nothing tells. `table`, `n_positions` (its
    usable length) and `row_offset` (the row of the first place) are None where there is no table. `wavelengths`, in
    positions: of each pair; by kind of layer where a config gives several; None where nothing turns.
    `curve_drawn`: the curve is that of pairs drawn at random.
    """

    kinds: tuple[str, ...]
    table: TableFacts | None
    n_positions: int | None
    row_offset: int | None
    curve: tuple[CurvePoint, ...]
    places: tuple[PlacePair, ...]
    wavelengths: tuple[float, ...] | dict[str, tuple[float, ...]] | None
    notes: tuple[str, ...]
    checkpoint: str | None = None
    curve_drawn: bool = False
    rows: TableRows | None = None
    profiles: tuple[Profile, ...] = ()
    sinusoids: SinusoidFacts | None = None
    rotary: tuple[RotaryLayers, ...] = ()
    slopes: tuple[float, ...] = ()
    relative: tuple[RelativeBias, ...] = ()

    def report(self) -> Report:
        """Facts, then what the kind of positions has to show."""
        return describe(self)


# --- the questions -------------------------------------------------------------------------------------------


def positions(
    checkpoint: Checkpoint,
    *,
    places: Sequence[int] = (),
    tensor: str | None = None,
    offset: int | None = None,
    columns: Sequence[int] = (),
) -> Positions:
    """How does this model know where a token stands?

    A learned table, or stored sinusoids: likeness by distance, lengths, the leading components, rows that look
    untrained, and the angle to the token rows. Rotary positions: the wavelengths that follow from the config. ALiBi: the
    slopes. T5-like positions: the learned bias by distance.

    `places` (from 1) are compared with each other, or a single one with all others. `tensor` names a table in place of
    the one found; `offset` is the row of the first place in place of the family's. `columns` are drawn in place of
    those that vary most.

    Cost: a pass or two over the position table, one over the token table. Errors: MissingTableError where places, a
    tensor or an offset were asked for and there is no table; UnknownTokenError for a place that the table has not.

    >>> found = positions(open_checkpoint("checkpoints/toy"), places=[2, 3])
    >>> found.places[0].cosine > 0.9
    True
    """
    configs = nested_configs(checkpoint.config)
    kinds = checkpoint.found.position_kinds
    biases = (
        [name for name in checkpoint.tensors.names() if name.endswith(_RELATIVE_LEAF)]
        if "relative" in kinds
        else []
    )
    found = _nothing(checkpoint)
    notes = [*checkpoint.notes]
    if tensor is not None and tensor in biases:
        if places or columns or offset is not None:
            raise AnalysisError(
                f"{tensor} is a table of relative bias: its rows are distances, not places.",
                "Ask for it without places, columns and offset.",
            )
        biases = [tensor]
    elif tensor is not None or checkpoint.found.positions:
        found = _look_at_table(checkpoint, configs, places, tensor, offset, columns)
    elif places or columns or offset is not None:
        raise MissingTableError(
            f"{checkpoint.location}: {say_no_table(kinds)}",
            "`inspect-embed positions` without a place shows what there is instead.",
        )
    else:
        notes += _say_instead(kinds)
    notes += found.notes
    rotary: tuple[RotaryLayers, ...] = ()
    slopes: tuple[float, ...] = ()
    if "rotary" in kinds:
        rotary, said = _read_rotary(configs)
        notes += said
    if "alibi" in kinds:
        slopes, said = _read_slopes(configs)
        notes += said
    relative, said = _read_biases(checkpoint, biases, configs)
    notes += said
    return replace(
        found,
        notes=tuple(dict.fromkeys(notes)),
        wavelengths=_list_wavelengths(rotary) or found.wavelengths,
        rotary=rotary,
        slopes=slopes,
        relative=relative,
    )


def sinusoidal_positions(
    length: int,
    width: int,
    *,
    layout: Layout = "interleaved",
    base: float = 10_000.0,
    places: Sequence[int] = (),
    columns: Sequence[int] = (),
) -> Positions:
    """What does the sinusoidal formula give, for so many places of this width?

    P[p, 2i] = sin(p / base^(2i/width)), P[p, 2i + 1] = cos of the same; with the layout "halves" all sines come first.
    Rows of a long table are computed when they are needed. Source: Vaswani et al. 2017, "Attention Is All You Need",
    section 3.5.

    >>> sinusoidal_positions(64, 16).sinusoids.dots[0].dots[0]
    8.0
    """
    import numpy as np

    from inspect_embed.numerics.positions import SinusoidRows, Sinusoids, sinusoid_frequencies
    from inspect_embed.numerics.rotary import wavelengths

    if not (
        1 <= length <= LONGEST_SINUSOIDS and 2 <= width <= WIDEST_SINUSOIDS and width % 2 == 0 and base > 1
    ):
        raise ValueError(
            f"length must be 1 to {LONGEST_SINUSOIDS:,}, width an even number from 2 to {WIDEST_SINUSOIDS:,}, base above 1"
        )
    table = SinusoidRows(length, width, layout, base)
    frequencies = sinusoid_frequencies(width, base)
    made = Sinusoids(layout, True, frequencies, base, "2i/d", True, 1.0, 0.0)
    labels = PositionLabels(0, length)
    chosen = [labels.find(str(place)).row for place in places]
    norms = np.full(length, math.sqrt(width / 2))
    curve, drawn = _measure_curve(table, 0)
    return Positions(
        ("sinusoidal",),
        None,
        length,
        0,
        curve,
        _compare_places(table, 0, chosen),
        tuple(wavelengths(frequencies).tolist()),
        (),
        None,
        drawn,
        _measure_rows(table, norms, 0, columns, made, None),
        _measure_profiles(table, 0, chosen),
        _measure_sinusoids(table, 0, made, chosen),
    )


# --- where there is no table ---------------------------------------------------------------------------------


def _nothing(checkpoint: Checkpoint) -> Positions:
    return Positions(checkpoint.found.position_kinds, None, None, None, (), (), None, (), checkpoint.location)


def say_no_table(kinds: Sequence[str]) -> str:
    """That there is no table, and what there is instead."""
    said = " and ".join(kinds) if kinds else "rotary / ALiBi / relative per config or none found"
    return f"no learned position table ({said})."


def _say_instead(kinds: Sequence[str]) -> list[str]:
    """What stands in the place of a table, in sentences."""
    if not kinds:
        return [
            "No learned position table (rotary / ALiBi / relative per config or none found): neither config nor "
            "tensors tell how this model knows the place of a token."
        ]
    return [_INSTEAD[kind] for kind in kinds if kind in _INSTEAD]


_INSTEAD = {
    "learned": "No learned position table in this file, though positions are learned by config or family.",
    "sinusoidal": "No learned position table: the sinusoids are computed anew each time. `inspect-embed positions "
    "--sinusoidal LENGTH WIDTH` shows the formula's own.",
    "rotary": "No learned position table: queries and keys are turned, pair by pair, by angles that grow with the "
    "place (rotary positions).",
    "alibi": "No learned position table: every score loses slope x distance (ALiBi).",
    "relative": "No learned position table: scores depend on the distance of query and key (relative positions).",
    "none": "No learned position table, and no positions of any other kind.",
}


# --- a table -------------------------------------------------------------------------------------------------


def _look_at_table(
    checkpoint: Checkpoint,
    configs: Sequence[Mapping[str, Any]],
    places: Sequence[int],
    tensor: str | None,
    offset: int | None,
    columns: Sequence[int],
) -> Positions:

    from inspect_embed.numerics.positions import first_rows, recognise_sinusoids
    from inspect_embed.numerics.rotary import wavelengths

    table = checkpoint.table("position", tensor)
    choice = next((c for c in checkpoint.found.positions if c.entry == table.tensor), None)
    usual = choice.first_used_row if choice is not None else 0
    first = usual if offset is None else offset
    notes = list(table.notes)
    if first != usual:
        notes.append(
            f"Place 1 is taken to be row {first:,}, as asked for; by config and family it is row {usual:,}."
        )
    if not 0 <= first < table.n_rows:
        raise AnalysisError(
            f"{table.tensor.name} has {table.n_rows:,} rows, so its first place cannot be row {first:,}.",
            f"Give --offset a number from 0 to {table.n_rows - 1:,}.",
        )
    labels = PositionLabels(first, table.n_rows)
    chosen = [labels.find(str(place)).row for place in places]
    others = [c.entry.name for c in checkpoint.found.positions if c.entry != table.tensor]
    if others:
        notes.append(f"Further position tables: {shorten(others)}; --tensor NAME shows one.")
    notes += _hold_against_config(table, first, configs)
    made = recognise_sinusoids(first_rows(table, first))
    kinds = _judge_kinds(checkpoint.found.position_kinds, choice.kind if choice else "learned", made, notes)
    curve, drawn = _measure_curve(table, first)
    if drawn:
        notes.append(
            f"The table is long: the curve is that of {sum(point.pairs for point in curve):,} pairs drawn at random, at "
            f"{len(curve):,} distances; they are the same at every call."
        )
    tokens = _open_tokens(checkpoint, table, notes)
    rows = _measure_rows(table, table.norms, first, columns, made, tokens)
    notes += _judge_rows(rows)
    return Positions(
        kinds,
        TableFacts.of(table),
        table.n_rows - first,
        first,
        curve,
        _compare_places(table, first, chosen),
        tuple(wavelengths(made.frequencies).tolist()) if made else None,
        tuple(notes),
        checkpoint.location,
        drawn,
        rows,
        _measure_profiles(table, first, chosen),
        _measure_sinusoids(table, first, made, chosen) if made else None,
    )


def _hold_against_config(
    table: EmbeddingTable, first: int, configs: Sequence[Mapping[str, Any]]
) -> list[str]:
    """A note where the config states other lengths than the table has; the table decides."""
    stated = {n for config in configs for key in LENGTH_KEYS if type(n := config.get(key)) is int}
    if not stated or stated & {table.n_rows, table.n_rows - first}:
        return []
    said = " or ".join(f"{n:,}" for n in sorted(stated))
    return [
        f"The config says {said} positions; {table.tensor.name} has {table.n_rows:,} rows, {table.n_rows - first:,} of "
        "them for places: the table decides."
    ]


def _judge_kinds(
    kinds: tuple[str, ...], kind: str, made: Sinusoids | None, notes: list[str]
) -> tuple[str, ...]:
    """The kinds of positions, the table's own by what its values are."""
    if made is not None and "learned" in kinds:
        notes.append("The values are sinusoids, not learned ones.")
        return tuple("sinusoidal" if name == "learned" else name for name in kinds)
    if made is None and kind == "sinusoidal":
        notes.append("Models of this family compute sinusoids, but the values of this table are none.")
    return kinds or (("sinusoidal",) if made else ("learned",))


def _open_tokens(checkpoint: Checkpoint, table: EmbeddingTable, notes: list[str]) -> EmbeddingTable | None:
    """The token table that position rows are added to; None, with a note, where it cannot be compared."""
    if checkpoint.found.input is None:
        return None
    try:
        tokens = checkpoint.table("input")
        # Asked for one row, a table of packed numbers says that it cannot be read.
        tokens.rows([0])
    except InspectEmbedError as error:
        notes.append(f"Token rows were not compared with position rows: {error}")
        return None
    return tokens if tokens.width == table.width and tokens.tensor != table.tensor else None


def _measure_curve(table: Rows, first: int) -> tuple[tuple[CurvePoint, ...], bool]:
    from inspect_embed.numerics.positions import curve_by_distance

    curve = curve_by_distance(table, first)
    columns = (curve.distances, curve.mean, curve.low, curve.high, curve.shuffled, curve.pairs)
    points = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(CurvePoint(*point) for point in points), curve.drawn


def _measure_rows(
    table: Rows,
    norms: Float64s,
    first: int,
    columns: Sequence[int],
    made: Sinusoids | None,
    tokens: EmbeddingTable | None,
) -> TableRows:
    """The rows from `first` on; `norms` are the lengths of all rows."""
    import numpy as np

    from inspect_embed.numerics import positions as numerics
    from inspect_embed.numerics.vectors import has_direction, unit_rows

    lengths = norms[first:]
    sound = has_direction(lengths)
    typical = float(np.median(lengths[sound])) if sound.any() else math.nan

    def at(i: int) -> PlaceLength:
        return PlaceLength(i + 1, i + first, float(lengths[i]))

    for column in columns:
        if not 0 <= column < table.width:
            raise AnalysisError(
                f"There is no column {column:,}: the table's {table.width:,} columns are 0 to {table.width - 1:,}.",
                "Ask for a column that the table has.",
            )
    usable = np.flatnonzero(sound)
    far_off = usable[(lengths[usable] > _OUTLIER * typical) | (lengths[usable] < typical / _OUTLIER)]
    untrained = None
    if made is None:
        closest = numerics.likeness_beside(table, norms)[first:]
        untrained = numerics.find_untrained(closest, sound, table.width)
    listed = numerics.evenly(len(lengths), MOST_LISTED)
    X = table.rows(listed + first)
    path = numerics.trace_path(X)
    mapped = numerics.evenly(len(listed), MOST_MAPPED)
    U = unit_rows(X)
    crossing = numerics.cross_cosines(tokens, U) if tokens is not None else None
    along = Along(
        tuple((listed + 1).tolist()),
        tuple(lengths[listed].tolist()),
        tuple(map(tuple, path.coordinates.tolist())),
        tuple(
            ColumnValues(column, tuple(X[:, column].tolist()))
            for column in (columns or _choose_columns(X, made, len(lengths)))
        ),
        tuple((listed[mapped] + 1).tolist()),
        tuple(map(tuple, np.clip(U[mapped] @ U[mapped].T, -1.0, 1.0).tolist())),
    )
    return TableRows(
        len(norms),
        table.width,
        typical,
        at(int(usable[np.argmin(lengths[usable])])) if usable.size else None,
        at(int(usable[np.argmax(lengths[usable])])) if usable.size else None,
        tuple(at(int(i)) for i in far_off),
        tuple((np.flatnonzero(lengths == 0) + 1).tolist()),
        tuple((np.flatnonzero(~np.isfinite(lengths)) + 1).tolist()),
        None if untrained is None else tuple((np.flatnonzero(untrained) + 1).tolist()),
        tuple(path.shares.tolist()),
        TokenCosines(**asdict(crossing)) if crossing else None,
        along,
    )


def _choose_columns(X: NDArray[np.floating[Any]], made: Sinusoids | None, n: int) -> list[int]:
    """Columns worth drawing: those that vary most; of sinusoids the sines of some pairs whose waves can be seen."""
    import numpy as np

    if made is None:
        with np.errstate(over="ignore", invalid="ignore"):
            variance = np.nan_to_num(X.astype(np.float64).var(axis=0))
        return sorted(np.argsort(-variance, kind="stable")[:COLUMNS_DRAWN].tolist())
    waves = 2 * math.pi / made.frequencies
    seen = np.flatnonzero((waves >= 6) & (waves <= 4 * n))
    pairs = seen if seen.size else np.arange(len(waves))
    pairs = pairs[np.unique(np.linspace(0, len(pairs) - 1, COLUMNS_DRAWN).round().astype(int))]
    first = 0 if made.sine_first else (1 if made.layout == "interleaved" else len(waves))
    step = 2 if made.layout == "interleaved" else 1
    return [first + step * int(pair) for pair in pairs]


def _judge_rows(rows: TableRows) -> list[str]:
    """What is unusual about some rows, in sentences."""
    notes: list[str] = []
    if rows.shortest is None:
        notes.append("No row has a direction, so nothing can be compared.")
    if rows.zero:
        notes.append(f"All zeros, and left out: {_name_places(rows.zero)}.")
    if rows.broken:
        notes.append(f"Not all finite numbers, and left out: {_name_places(rows.broken)}.")
    if rows.outliers:
        named = [
            f"place {o.place:,} (row {o.row:,}) is {o.length / rows.typical_length:.2g} times as long as a typical row"
            for o in rows.outliers
        ]
        notes.append(f"Outliers in length: {shorten(named)}.")
    if rows.untrained:
        notes.append(
            f"{_name_places(rows.untrained)[0].upper()}{_name_places(rows.untrained)[1:]}: no more like the rows beside "
            "them than random directions are; probably never trained."
        )
    return notes


def _name_places(places: Sequence[int]) -> str:
    """Places in runs: places 3, 7 to 12."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    named = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in runs]
    return f"place{'s' * (len(places) > 1)} {shorten(named)}"


def _compare_places(table: Rows, first: int, chosen: Sequence[int]) -> tuple[PlacePair, ...]:
    """Every pair of the rows chosen; a single one with every listed place."""
    import numpy as np

    from inspect_embed.numerics.positions import evenly
    from inspect_embed.numerics.vectors import cosine, distance, dot

    if len(chosen) == 1:
        others = evenly(table.n_rows - first, MOST_LISTED) + first
        pairs = [(chosen[0], row) for row in others.tolist() if row != chosen[0]]
    else:
        pairs = list(combinations(dict.fromkeys(chosen), 2))
    wanted = sorted({row for pair in pairs for row in pair})
    rows = dict(zip(wanted, table.rows(np.asarray(wanted, np.int64)), strict=True))
    return tuple(
        PlacePair(
            a - first + 1,
            b - first + 1,
            cosine(rows[a], rows[b]),
            dot(rows[a], rows[b]),
            distance(rows[a], rows[b]),
            a,
            b,
        )
        for a, b in pairs
    )


def _measure_profiles(table: Rows, first: int, chosen: Sequence[int]) -> tuple[Profile, ...]:
    import numpy as np

    from inspect_embed.numerics.positions import evenly
    from inspect_embed.numerics.vectors import unit_rows

    if not chosen:
        return ()
    listed = evenly(table.n_rows - first, MOST_LISTED) + first
    U = unit_rows(table.rows(listed))
    queries = unit_rows(table.rows(np.asarray(list(dict.fromkeys(chosen)), np.int64)))
    C = np.clip(queries @ U.T, -1.0, 1.0)
    return tuple(
        Profile(row - first + 1, row, tuple(line))
        for row, line in zip(dict.fromkeys(chosen), C.tolist(), strict=True)
    )


# --- sinusoids -----------------------------------------------------------------------------------------------


def _measure_sinusoids(table: Rows, first: int, made: Sinusoids, chosen: Sequence[int]) -> SinusoidFacts:
    """The table's own rows, held against what the formula says of them."""
    import numpy as np

    from inspect_embed.numerics.positions import first_rows, turning_error
    from inspect_embed.numerics.vectors import distance, dot

    n = table.n_rows - first
    P = first_rows(table, first).astype(np.float64)
    offsets = [0, *(1 << power for power in range(n.bit_length()) if 1 << power < n)]
    starts = [start for start in (0, 10, 30) if start < n]
    ahead = {
        row: table.rows(np.asarray([first + row]))[0] for s in starts for o in offsets if (row := s + o) < n
    }
    dots = tuple(
        Dots(
            offset,
            tuple(dot(ahead[s], ahead[s + offset]) if s + offset < n else None for s in starts),
            distance(ahead[0], ahead[offset]),
        )
        for offset in offsets
    )
    signed = made.frequencies if made.sine_first else -made.frequencies
    turning = tuple(Turn(k, turning_error(P, signed, k, made.layout)) for k in offsets[1:] if k < len(P))
    shown = dict.fromkeys([*range(min(n, VALUES_SHOWN)), *(row - first for row in chosen)])
    return SinusoidFacts(
        made.layout,
        made.sine_first,
        made.base,
        made.exponent,
        not made.named,
        made.amplitude,
        made.misfit,
        tuple(made.frequencies.tolist()),
        tuple(starts),
        dots,
        turning,
        tuple(
            PlaceValues(i + 1, i + first, tuple(table.rows(np.asarray([i + first]))[0].tolist()))
            for i in shown
        ),
    )


# --- rotary, ALiBi, relative ---------------------------------------------------------------------------------


def _read_rotary(configs: Sequence[Mapping[str, Any]]) -> tuple[tuple[RotaryLayers, ...], tuple[str, ...]]:
    from inspect_embed.numerics.rotary_config import read_ropes, whole

    ropes, said = read_ropes(configs)
    notes = list(said)
    found: list[RotaryLayers] = []
    for rope in ropes:
        original = rope.scaling.original
        if rope.kind == "longrope" and original is not None and rope.scaling.long:
            found.append(_measure_rope(rope, f"up to {original:,.0f}", None))
            found.append(_measure_rope(rope, f"beyond {original:,.0f}", int(original) + 1))
        else:
            found.append(_measure_rope(rope, "all", None))
        windows = (whole(config.get("sliding_window")) for config in configs)
        window = next((n for n in windows if n is not None), None)
        if rope.layers == "sliding_attention" and window is not None:
            notes.append(f"Layers of the kind sliding_attention look back over {window:,} positions only.")
    return tuple(found), tuple(notes)


def _measure_rope(rope: Rope, lengths: str, length: int | None) -> RotaryLayers:
    from inspect_embed.numerics.rotary import attention_factor, frequencies, wavelengths

    w = frequencies(rope, length)
    waves = wavelengths(w)
    return RotaryLayers(
        rope.layers,
        rope.kind,
        lengths,
        rope.theta,
        rope.scaling.factor,
        attention_factor(rope),
        rope.head_width,
        rope.width,
        rope.context,
        None if rope.context is None else int((waves > rope.context).sum()),
        tuple(w.tolist()),
        tuple(waves.tolist()),
    )


def _list_wavelengths(
    rotary: Sequence[RotaryLayers],
) -> tuple[float, ...] | dict[str, tuple[float, ...]] | None:
    """One list, or one for each kind of layer; where they go by the length of the text, those of a short one."""
    by_layers: dict[str, tuple[float, ...]] = {}
    for part in rotary:
        by_layers.setdefault(part.layers, part.wavelengths)
    if not by_layers:
        return None
    return by_layers if len(by_layers) > 1 else next(iter(by_layers.values()))


def _read_slopes(configs: Sequence[Mapping[str, Any]]) -> tuple[tuple[float, ...], tuple[str, ...]]:
    from inspect_embed.numerics.relative import alibi_slopes
    from inspect_embed.numerics.rotary_config import positive, read_heads

    heads = read_heads(configs)
    if heads is None or heads > MOST_HEADS:
        return (), ("The config does not tell how many heads there are, so no slopes follow from it.",)
    attention: Mapping[str, Any] = next(
        (c["attn_config"] for c in configs if isinstance(c.get("attn_config"), Mapping)), {}
    )
    return tuple(alibi_slopes(heads, positive(attention.get("alibi_bias_max")) or 8.0).tolist()), ()


def _read_biases(
    checkpoint: Checkpoint, names: Sequence[str], configs: Sequence[Mapping[str, Any]]
) -> tuple[tuple[RelativeBias, ...], tuple[str, ...]]:
    """The first relative bias of each stack of layers; a note on the others."""
    stacks = {_is_decoder(name): name for name in reversed(names)}
    chosen = sorted(stacks.values(), key=_is_decoder)
    found: list[RelativeBias] = []
    notes: list[str] = []
    for name in chosen:
        shape = checkpoint.tensors[name].shape
        if len(shape) == 2 and 2 <= shape[0] <= MOST_HEADS and 1 <= shape[1] <= MOST_HEADS:
            found.append(_read_bias(checkpoint, name, configs))
        else:
            notes.append(f"{name} has the shape {shape}, which is no table of buckets and heads.")
    rest = [name for name in names if name not in chosen]
    if rest:
        notes.append(f"Further tables of relative bias: {shorten(rest)}; --tensor NAME shows one.")
    return tuple(found), tuple(notes)


def _read_bias(checkpoint: Checkpoint, name: str, configs: Sequence[Mapping[str, Any]]) -> RelativeBias:
    import numpy as np

    from inspect_embed.numerics.relative import relative_buckets
    from inspect_embed.numerics.rotary_config import whole

    table = checkpoint.table("position", name)
    both_ways = not _is_decoder(name)
    stated = (whole(config.get("relative_attention_max_distance")) for config in configs)
    largest = next((n for n in stated if n is not None), 128)
    reach = min(largest, MOST_LISTED)
    distances = np.arange(-reach, reach + 1 if both_ways else 1)
    buckets = relative_buckets(distances, table.n_rows, both_ways, largest)
    biases = table.rows(np.arange(table.n_rows)).astype(np.float64)[buckets]
    return RelativeBias(
        name,
        table.n_rows,
        largest,
        both_ways,
        tuple(distances.tolist()),
        tuple(map(tuple, biases.T.tolist())),
    )


def _is_decoder(name: str) -> bool:
    return "decoder" in name.split(".")
