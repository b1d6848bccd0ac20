"""Positions described in blocks: what each kind has to show, as text, as one sheet, as figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from inspect_embed.report import (
    Block,
    Column,
    Fact,
    Facts,
    Grid,
    Heatmap,
    Lines,
    Note,
    Report,
    Scatter,
    Series,
    Value,
)

if TYPE_CHECKING:
    from inspect_embed.analyses.positions import (
        Along,
        PlacePair,
        Positions,
        RelativeBias,
        RotaryLayers,
        SinusoidFacts,
        TableRows,
    )
    from inspect_embed.numerics.positions import Layout

MOST_LINES = 12
"""Lines of a table in text, where a sample tells as much as the whole."""
MOST_HEADS_SHOWN = 8
VALUES_ACROSS = 8
DECAY_DRAWN = 512
_SHEET_NUMBERS = 1 << 24
_PERCENT = ".1f"


def describe(found: Positions) -> Report:
    """Facts, then what the kind of positions has to show."""
    blocks: list[Block] = [
        *_describe_table(found),
        *_describe_places(found),
        *_describe_sinusoids(found),
        *_describe_curve(found),
        *_describe_rotary(found),
        *_describe_slopes(found),
        *_describe_relative(found),
    ]
    return Report(
        _title(found),
        found,
        (*blocks, *map(Note, found.notes)),
        _sheet(found),
        _figures(found),
        _arrays(found),
    )


def _title(found: Positions) -> str:
    kinds = " and ".join(found.kinds) or "of an unknown kind"
    if found.checkpoint is None:
        return f"sinusoidal positions by formula, {found.n_positions:,} x {_width(found):,}"
    if found.table is None:
        return f"{found.checkpoint}: positions {kinds}"
    return f"{found.checkpoint}: positions {kinds}, {found.table}"


def _width(found: Positions) -> int:
    return found.rows.width if found.rows is not None else 0


# --- text ----------------------------------------------------------------------------------------------------


def _describe_table(found: Positions) -> Iterator[Block]:
    rows = found.rows
    if rows is None or found.row_offset is None or found.n_positions is None:
        return
    first = found.row_offset
    facts = [
        Fact("places", found.n_positions, ",d", f"counted from 1; {_say_offset(first)}"),
        Fact("width", rows.width, ",d"),
    ]
    if first:
        facts.insert(
            1, Fact("rows", rows.n_rows, ",d", f"the first {first:,} stand{'s' * (first == 1)} for no place")
        )
    if rows.shortest is not None and rows.longest is not None:
        shortest, longest = rows.shortest, rows.longest
        span = (
            f"median; from {shortest.length:.4f} (place {shortest.place:,}) to {longest.length:.4f} (place "
            f"{longest.place:,})"
        )
        alike = longest.length - shortest.length <= 1e-3 * longest.length
        facts.append(
            Fact(
                "length of a row", rows.typical_length, ".4f", "all rows are equally long" if alike else span
            )
        )
    if rows.shares:
        first_three = rows.shares[:3]
        facts.append(
            Fact(
                "variance",
                100 * sum(first_three),
                _PERCENT,
                f"% in the first {len(first_three)} component{'s' * (len(first_three) > 1)} ("
                + " + ".join(f"{100 * share:.1f}" for share in first_three)
                + ")",
            )
        )
    if rows.tokens is not None:
        tokens = rows.tokens
        which = "all" if tokens.n_positions == found.n_positions else f"{tokens.n_positions:,} evenly spaced"
        facts.append(
            Fact(
                "cosine with token rows",
                tokens.mean,
                ".3f",
                f"on average, by size; the largest {tokens.largest:.3f} (random directions: {tokens.random_mean:.3f} and "
                f"{tokens.random_largest:.3f}); every token row, {which} places",
            )
        )
    yield Facts(tuple(facts))


def _say_offset(first: int) -> str:
    if first == 0:
        return "place p is row p - 1"
    shift = "p" if first == 1 else f"p + {first - 1}"
    return f"place p is row {shift} (position p, counted from 0, is row p + {first})"


def _describe_places(found: Positions) -> Iterator[Block]:
    if not found.places:
        return
    pairs: Sequence[PlacePair] = found.places
    title = "Places compared"
    if len(found.profiles) == 1:
        place = found.profiles[0].place
        title = f"Place {place:,} compared with others"
        pairs = [pair for pair in pairs if _is_power_of_two(abs(pair.b - place))]
    columns = (
        Column("place", "d"),
        Column("row", "d"),
        Column("place", "d"),
        Column("row", "d"),
        Column("distance", "d"),
        Column("cosine", ".4f"),
        Column("dot product", ".4f"),
        Column("Euclidean", ".4f"),
    )
    yield Grid(
        columns,
        [(p.a, p.row_a, p.b, p.row_b, abs(p.a - p.b), p.cosine, p.dot, p.euclidean) for p in pairs],
        title,
    )


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _describe_curve(found: Positions) -> Iterator[Block]:
    if not found.curve:
        return
    last = found.curve[-1].distance
    rows = [
        (p.distance, p.mean, p.low, p.high, p.shuffled, p.pairs)
        for p in found.curve
        if _is_power_of_two(p.distance) or p.distance == last
    ]
    columns = (
        Column("distance", ",d"),
        Column("mean cosine", ".4f"),
        Column("5 %", ".4f"),
        Column("95 %", ".4f"),
        Column("shuffled rows", ".4f"),
        Column("pairs", ",d"),
    )
    yield Grid(columns, rows, "How alike places are, by distance")


def _describe_sinusoids(found: Positions) -> Iterator[Block]:
    made = found.sinusoids
    if made is None or found.wavelengths is None or isinstance(found.wavelengths, dict):
        return
    order = "sine" if made.sine_first else "cosine"
    layouts = {
        "interleaved": f"interleaved: columns 2i and 2i + 1 are a pair, the {order} first",
        "halves": f"halves: columns i and i + {len(made.frequencies)} are a pair, the {order} first",
    }
    base = f"{made.base:,.6g}"
    facts = [
        Fact("layout", layouts[made.layout]),
        Fact(
            "frequency of pair i",
            f"{base}^(-{made.exponent})",
            remark="fitted to the values" if made.fitted else "",
        ),
        Fact("farthest value", made.misfit, ".6f", "from the formula"),
    ]
    if made.amplitude != 1:
        facts.insert(2, Fact("amplitude", made.amplitude, ".4g"))
    if made.turning:
        worst = max(made.turning, key=lambda turn: turn.largest_difference)
        facts.append(
            Fact(
                "turning",
                worst.largest_difference,
                ".6f",
                "the largest difference between row p, turned pair by pair by k x frequency, and row p + k, for every p "
                f"and k = {', '.join(str(turn.k) for turn in made.turning)}",
            )
        )
    yield Facts(tuple(facts), "Sinusoids")
    yield from _describe_values(made)
    heads = [Column(f"from row {start}", ".3f") for start in made.starts]
    yield Grid(
        (Column("offset", "d"), *heads, Column("distance from row 0", ".3f")),
        [(line.offset, *line.dots, line.euclidean) for line in made.dots],
        "Dot product of a row with the row at an offset",
    )
    yield Grid(
        (Column("pair", "d"), Column("radians a row", ".6g"), Column("wavelength", ",.10g")),
        [(i, made.frequencies[i], _readable(found.wavelengths[i])) for i in _some(len(made.frequencies))],
        "Wavelengths, in positions",
    )


def _describe_values(made: SinusoidFacts) -> Iterator[Block]:
    width = min(VALUES_ACROSS, *(len(line.values) for line in made.values))
    columns = (
        Column("place", "d"),
        Column("row", "d"),
        *(Column(f"column {i}", ".3f") for i in range(width)),
    )
    yield Grid(columns, [(line.place, line.row, *line.values[:width]) for line in made.values], "Values")


def _describe_rotary(found: Positions) -> Iterator[Block]:
    for part in found.rotary:
        turned = "all" if part.width == part.head_width else f"{part.width:,}"
        facts = [
            Fact("theta", part.theta, ",.10g"),
            Fact(
                "head width",
                part.head_width,
                ",d",
                f"{turned} of it turned, in {len(part.frequencies):,} pairs",
            ),
        ]
        if part.scaling != "default":
            said = f"factor {part.factor:,.6g}" if part.factor is not None else ""
            facts.append(Fact("scaling", part.scaling, remark=said))
        if part.attention_factor != 1:
            facts.append(
                Fact("attention factor", part.attention_factor, ".4f", "multiplies sines and cosines")
            )
        if part.context is not None and part.slower_than_context is not None:
            facts.append(Fact("context", part.context, ",d", "positions, by config"))
            facts.append(
                Fact("slow pairs", part.slower_than_context, "d", "turn less than once over the context")
            )
        yield Facts(tuple(facts), _name_layers(part))
        columns = [Column("pair", "d"), Column("radians a position", ".6g"), Column("wavelength", ",.10g")]
        if part.context is not None:
            columns.append(Column("turns over the context", ",.10g"))
        lines: list[tuple[Value, ...]] = []
        for i in _some(len(part.frequencies)):
            line: tuple[Value, ...] = (i, part.frequencies[i], _readable(part.wavelengths[i]))
            lines.append(
                line if part.context is None else (*line, _readable(part.context / part.wavelengths[i]))
            )
        yield Grid(tuple(columns), lines, "Wavelengths, in positions")


def _name_layers(part: RotaryLayers) -> str:
    layers = "Rotary positions" if part.layers == "all" else f"Rotary positions of {part.layers} layers"
    return layers if part.lengths == "all" else f"{layers}, for texts {part.lengths} positions"


def _describe_slopes(found: Positions) -> Iterator[Block]:
    if found.slopes:
        yield Grid(
            (
                Column("head", "d"),
                Column("slope", ".6g"),
                Column("distance that takes 1 off a score", ",.4g"),
            ),
            [(head, slope, 1 / slope) for head, slope in enumerate(found.slopes)],
            "ALiBi: what each head takes off a score for each position of distance",
        )


def _describe_relative(found: Positions) -> Iterator[Block]:
    for bias in found.relative:
        shown = [
            i for i, t in enumerate(bias.distances)
            if t == 0 or _is_power_of_two(abs(t)) or abs(t) == bias.largest_distance
        ]  # fmt: skip
        heads = bias.heads[:MOST_HEADS_SHOWN]
        more = f", the first {len(heads)} of {len(bias.heads)} heads" if len(heads) < len(bias.heads) else ""
        yield Grid(
            (
                Column("distance", "d"),
                Column("mean", ".3f"),
                *(Column(f"head {head}", ".3f") for head in range(len(heads))),
            ),
            [
                (bias.distances[i], _mean([head[i] for head in bias.heads]), *(head[i] for head in heads))
                for i in shown
            ],
            f"{bias.tensor}: what is added to a score by distance (the key's place minus the query's; "
            f"{bias.n_buckets} buckets, the same from {bias.largest_distance:,} on{more})",
        )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan


def _some(n: int) -> list[int]:
    """Some of n pairs, at round numbers, the first and the last among them; all where there are few."""
    if n <= MOST_LINES + 4:
        return list(range(n))
    step = next(s * 10**power for power in range(6) for s in (1, 2, 5) if n <= s * 10**power * MOST_LINES)
    return [*range(0, n - 1, step), n - 1]


def _readable(number: float) -> float:
    """Two digits below ten, whole numbers above: what matters of a wavelength."""
    if not math.isfinite(number):
        return number
    return float(f"{number:.2g}") if number < 10 else round(number)


# --- the sheet -----------------------------------------------------------------------------------------------


class _TableLines(Sequence[tuple[Value, ...]]):
    """The rows of a sinusoidal table as lines of a sheet, computed when they are read."""

    def __init__(self, made: SinusoidFacts, n: int) -> None:
        from inspect_embed.numerics.positions import SinusoidRows

        layout: Layout = "halves" if made.layout == "halves" else "interleaved"
        self._table = SinusoidRows(n, 2 * len(made.frequencies), layout, made.base)

    def __len__(self) -> int:
        return self._table.n_rows

    @overload
    def __getitem__(self, index: int) -> tuple[Value, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[Value, ...]]: ...
    def __getitem__(self, index: int | slice) -> tuple[Value, ...] | Sequence[tuple[Value, ...]]:
        import numpy as np

        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        row = index % len(self)
        return (row + 1, row, *self._table.rows(np.asarray([row]))[0].tolist())


def _sheet(found: Positions) -> Grid | None:
    """The one table that CSV holds: places compared, else the formula's table, the curve, or what stands for it."""
    if found.places:
        return _columns(
            ("place_a", "row_a", "place_b", "row_b", "cosine", "dot", "euclidean"),
            [(p.a, p.row_a, p.b, p.row_b, p.cosine, p.dot, p.euclidean) for p in found.places],
        )
    if found.sinusoids is not None and found.checkpoint is None and found.n_positions is not None:
        width = _width(found)
        if found.n_positions * width <= _SHEET_NUMBERS:
            lines = _TableLines(found.sinusoids, found.n_positions)
            return _columns(("place", "row", *map(str, range(width))), lines)
    if found.curve:
        return _columns(
            ("distance", "mean", "low", "high", "shuffled", "pairs"),
            [(p.distance, p.mean, p.low, p.high, p.shuffled, p.pairs) for p in found.curve],
        )
    if found.rotary:
        return _columns(
            ("layers", "lengths", "pair", "frequency", "wavelength"),
            [
                (part.layers, part.lengths, pair, w, wave)
                for part in found.rotary
                for pair, (w, wave) in enumerate(zip(part.frequencies, part.wavelengths, strict=True))
            ],
        )
    if found.slopes:
        return _columns(("head", "slope"), list(enumerate(found.slopes)))
    if found.relative:
        return _columns(
            ("tensor", "head", "distance", "bias"),
            [
                (bias.tensor, head, distance, value)
                for bias in found.relative
                for head, values in enumerate(bias.heads)
                for distance, value in zip(bias.distances, values, strict=True)
            ],
        )
    return None


def _columns(names: Sequence[str], rows: Sequence[Sequence[Value]]) -> Grid:
    return Grid(tuple(map(Column, names)), rows)


def _arrays(found: Positions) -> dict[str, Any]:
    """The numbers of curve, path, map, lengths and frequencies, by name."""
    arrays: dict[str, Any] = {}
    if found.curve:
        for name in ("distance", "mean", "low", "high", "shuffled", "pairs"):
            arrays[f"curve.{name}"] = [getattr(point, name) for point in found.curve]
    if found.rows is not None:
        along = found.rows.along
        arrays |= {"places": along.places, "lengths": along.lengths}
        arrays |= {"map.places": along.map_places, "map": along.map}
        if along.path and along.path[0]:
            arrays["path"] = along.path
    if found.sinusoids is not None:
        arrays["frequencies"] = found.sinusoids.frequencies
    for part in found.rotary:
        words = [word for word in (part.layers, part.lengths) if word != "all"]
        arrays[".".join(["frequencies", *words])] = part.frequencies
    if found.slopes:
        arrays["slopes"] = found.slopes
    for bias in found.relative:
        arrays |= {f"{bias.tensor}.distances": bias.distances, bias.tensor: bias.heads}
    return arrays


# --- figures -------------------------------------------------------------------------------------------------


def _figures(found: Positions) -> dict[str, Block]:
    """What can be drawn, by the name of its view."""
    figures: dict[str, Block] = {}
    title = _title(found)
    if found.rows is not None:
        along = found.rows.along
        if found.profiles:
            figures["curve"] = _draw_profiles(found, along, title)
        elif found.sinusoids is not None and found.checkpoint is None:
            figures["curve"] = _draw_dots(found.sinusoids, title)
        elif found.curve:
            figures["curve"] = _draw_curve(found, title)
        figures["map"] = _draw_map(along, title)
        if along.path and len(along.path[0]) >= 2:
            figures["path"] = _draw_path(found.rows, along, title)
        figures["columns"] = _draw_columns(along, title)
        figures["norms"] = _draw_norms(found.rows, along, title)
    if found.rotary:
        figures["wavelengths"] = _draw_wavelengths(
            [(_name_layers(part), part.wavelengths) for part in found.rotary],
            title,
            found.rotary[0].context,
        )
        figures.setdefault("curve", _draw_decay(found.rotary, title))
    elif isinstance(found.wavelengths, tuple):
        figures["wavelengths"] = _draw_wavelengths(
            [("wavelength", found.wavelengths)], title, found.n_positions
        )
    if found.slopes:
        figures.setdefault("curve", _draw_slopes(found.slopes, title))
    for bias in found.relative[:1]:
        figures.setdefault("curve", _draw_bias(bias, title))
        figures.setdefault("map", _map_bias(bias, title))
    return figures


def _draw_curve(found: Positions, caption: str) -> Lines:
    points = [p for p in found.curve if p.mean == p.mean]
    x = [p.distance for p in points]
    mean = Series(
        "mean, with the middle 90 %",
        x,
        [p.mean for p in points],
        [p.low for p in points],
        [p.high for p in points],
    )
    shuffled = Series("rows shuffled", x, [p.shuffled for p in points], dashed=True)
    return Lines(
        (mean, shuffled),
        "distance, in places",
        "cosine",
        "How alike places are, by distance",
        x_log=found.curve_drawn,
        caption=caption,
    )


def _draw_profiles(found: Positions, along: Along, caption: str) -> Lines:
    series = tuple(Series(f"place {p.place}", along.places, p.cosines) for p in found.profiles)
    named = "chosen places" if len(series) > 1 else series[0].name
    return Lines(series, "place", "cosine", f"How alike {named} and all others are", caption=caption)


def _draw_dots(made: SinusoidFacts, caption: str) -> Lines:
    series = tuple(
        Series(
            f"from row {start}",
            [line.offset for line in made.dots if line.dots[i] is not None],
            [dot for line in made.dots if (dot := line.dots[i]) is not None],
        )
        for i, start in enumerate(made.starts)
    )
    return Lines(
        series, "offset, in rows", "dot product", "The dot product goes by distance alone", caption=caption
    )


def _draw_map(along: Along, caption: str) -> Heatmap:
    labels = [str(place) for place in along.map_places]
    step = along.map_places[1] - along.map_places[0] if len(along.map_places) > 1 else 1
    few = f"; about every {step:,}th place" if step > 1 else ""
    return Heatmap(
        along.map,
        labels,
        labels,
        "cosine",
        "How alike places are, each with each",
        -1.0,
        1.0,
        f"{caption}{few}",
    )


def _draw_path(rows: TableRows, along: Along, caption: str) -> Scatter:
    marked = max(1, len(along.places) // 8)
    points = [
        (place, point) for place, point in zip(along.places, along.path, strict=True) if point[0] == point[0]
    ]
    names = [f"component {i + 1} ({100 * share:.1f} %)" for i, share in enumerate(rows.shares[:3])]
    third = len(along.path[0]) >= 3
    return Scatter(
        [point[0] for _, point in points],
        [point[1] for _, point in points],
        [f"place {place}" if i % marked == 0 else "" for i, (place, _) in enumerate(points)],
        names[0],
        names[1],
        "The path of the places through the leading components",
        z=[point[2] for _, point in points] if third else (),
        z_label=names[2] if third else "",
        ids=[place for place, _ in points],
        caption=caption,
        path=True,
    )


def _draw_columns(along: Along, caption: str) -> Lines:
    return Lines(
        tuple(Series(f"column {column.column}", along.places, column.values) for column in along.columns),
        "place",
        "value",
        "Some columns along the table",
        caption=f"{caption}; a single column has no meaning of its own",
    )


def _draw_norms(rows: TableRows, along: Along, caption: str) -> Lines:
    x = [place for place, length in zip(along.places, along.lengths, strict=True) if math.isfinite(length)]
    y = [length for length in along.lengths if math.isfinite(length)]
    series = [Series("length of the row", x, y)]
    if x:
        series.append(Series("median", [x[0], x[-1]], [rows.typical_length] * 2, dashed=True))
    return Lines(tuple(series), "place", "length", "How long each place's row is", caption=caption)


def _draw_wavelengths(
    parts: Sequence[tuple[str, Sequence[float]]], caption: str, context: int | None
) -> Lines:
    series = [
        Series(
            name,
            [pair for pair, wave in enumerate(waves) if math.isfinite(wave)],
            [wave for wave in waves if math.isfinite(wave)],
        )
        for name, waves in parts
    ]
    if context is not None:
        last = max(len(waves) for _, waves in parts) - 1
        series.append(Series(f"{context:,} positions", [0, last], [context, context], dashed=True))
    return Lines(
        tuple(series),
        "pair",
        "positions for one turn",
        "How fast each pair turns",
        y_log=True,
        caption=caption,
    )


def _draw_decay(parts: Sequence[RotaryLayers], caption: str) -> Lines:
    import numpy as np

    from inspect_embed.numerics.rotary import likeness_by_distance

    distances = np.arange(min(parts[0].context or DECAY_DRAWN, DECAY_DRAWN) + 1)
    series = tuple(
        Series(
            _name_layers(part),
            distances.tolist(),
            likeness_by_distance(np.asarray(part.frequencies), distances).tolist(),
        )
        for part in parts
    )
    return Lines(
        series,
        "distance, in positions",
        "cosine",
        "How like itself a vector is, turned by a distance",
        caption=f"{caption}; a vector whose pairs are equally long",
    )


def _draw_slopes(slopes: Sequence[float], caption: str) -> Lines:
    x = [0.0, 64.0]
    series = tuple(
        Series(f"head {head}", x, [0.0, -64.0 * slope])
        for head, slope in enumerate(slopes[:MOST_HEADS_SHOWN])
    )
    more = f"; the first {len(series)} of {len(slopes)} heads" if len(slopes) > len(series) else ""
    return Lines(
        series,
        "distance, in positions",
        "added to the score",
        "ALiBi: what distance takes off",
        caption=caption + more,
    )


def _draw_bias(bias: RelativeBias, caption: str) -> Lines:
    series = tuple(
        Series(f"head {head}", bias.distances, values)
        for head, values in enumerate(bias.heads[:MOST_HEADS_SHOWN])
    )
    more = f"; the first {len(series)} of {len(bias.heads)} heads" if len(bias.heads) > len(series) else ""
    return Lines(
        series,
        "distance (the key's place minus the query's)",
        "added to the score",
        "The learned bias by distance",
        caption=f"{caption}, {bias.tensor}{more}",
    )


def _map_bias(bias: RelativeBias, caption: str) -> Heatmap:
    return Heatmap(
        bias.heads,
        [f"head {head}" for head in range(len(bias.heads))],
        [str(distance) for distance in bias.distances],
        "added to the score",
        "The learned bias by distance and head",
        caption=f"{caption}, {bias.tensor}",
    )
