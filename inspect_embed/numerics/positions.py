"""Tables of absolute positions: sinusoids, the curve of likeness by distance, the path that the rows take.

Rows are counted from 0 here. A table is anything that can give its rows (`search.Rows`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inspect_embed.numerics.projection import fix_signs
from inspect_embed.numerics.search import Rows
from inspect_embed.numerics.vectors import has_direction, row_norms, unit_rows

Floats = NDArray[np.floating[Any]]
Float64s = NDArray[np.float64]
Integers = NDArray[np.int64]
Layout = Literal["interleaved", "halves"]

EXACT_ROWS = 2048
"""Up to so many rows every pair is compared; beyond, pairs are drawn."""
DRAWN_DISTANCES = 128
"""Distances that are looked at where pairs are drawn, powers of two besides."""
DRAWN_PAIRS = 256
"""Pairs that are drawn at each of them."""
SAMPLED_NUMBERS = 1 << 21
"""Of a table that may be sinusoidal, rows of about so many numbers are looked at."""
_LARGEST_MISFIT = 0.02
_LARGEST_DRIFT = 0.05
_CROSS_PRODUCTS = 1 << 34


# --- sinusoids -----------------------------------------------------------------------------------------------


def sinusoid_frequencies(width: int, base: float = 10_000.0) -> Float64s:
    """By how many radians does each pair of a sinusoidal table turn from row to row?

    float64 (width // 2,), fastest first: base^(-2i/width).

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    return np.asarray(base ** (-np.arange(0, width - 1, 2) / width))


def sinusoids(
    rows: NDArray[np.integer[Any]], width: int, layout: Layout = "interleaved", base: float = 10_000.0
) -> Float64s:
    """Which vectors does the sinusoidal formula give for these rows?

    float64 (len(rows), width), width even. P[p, 2i] = sin(p / base^(2i/width)) and P[p, 2i + 1] = cos of the same;
    in the layout "halves" all sines come first, then all cosines.

    Source: Vaswani et al. 2017, section 3.5; halves: the implementation in tensor2tensor, get_timing_signal_1d.
    """
    angles = np.multiply.outer(np.asarray(rows, np.float64), sinusoid_frequencies(width, base))
    return join_pairs(np.sin(angles), np.cos(angles), layout)


class SinusoidRows:
    """A sinusoidal table of any length, whose rows are computed when they are asked for."""

    def __init__(
        self, n_rows: int, width: int, layout: Layout = "interleaved", base: float = 10_000.0
    ) -> None:
        self.n_rows = n_rows
        self.width = width
        self.layout = layout
        self.base = base

    def rows(self, ids: NDArray[np.integer[Any]]) -> Float64s:
        """The rows asked for."""
        return sinusoids(np.asarray(ids), self.width, self.layout, self.base)

    def blocks(self) -> Iterator[tuple[int, Float64s]]:
        """Every row once, in order."""
        step = max(1, (1 << 18) // self.width)
        for start in range(0, self.n_rows, step):
            yield start, self.rows(np.arange(start, min(start + step, self.n_rows)))


def split_pairs(P: Floats, layout: Layout) -> tuple[Floats, Floats]:
    """The first and the second numbers of all pairs: P (n, d) -> two views (n, d // 2). A last odd column is left out."""
    half = P.shape[1] // 2
    if layout == "interleaved":
        return P[:, 0 : 2 * half : 2], P[:, 1 : 2 * half : 2]
    return P[:, :half], P[:, half : 2 * half]


def join_pairs(first: Float64s, second: Float64s, layout: Layout) -> Float64s:
    """The opposite of `split_pairs`: two (n, m) -> (n, 2 m)."""
    if layout == "halves":
        return np.concatenate([first, second], axis=1)
    return np.stack([first, second], axis=2).reshape(len(first), 2 * first.shape[1])


def turn(P: Float64s, angles: Float64s, layout: Layout) -> Float64s:
    """Rows whose pairs (sine, cosine) are turned by these angles: P (n, d), angles (d // 2,) -> (n, 2 (d // 2)).

    sin(a + t) = sin a cos t + cos a sin t; cos(a + t) = cos a cos t - sin a sin t.
    """
    sine, cosine = split_pairs(P, layout)
    return join_pairs(
        sine * np.cos(angles) + cosine * np.sin(angles),
        cosine * np.cos(angles) - sine * np.sin(angles),
        layout,
    )


def turning_error(P: Float64s, frequencies: Float64s, k: int, layout: Layout) -> float:
    """How far is row p, turned by k times the frequencies, from row p + k? The largest difference over all p and columns."""
    turned = turn(P[:-k], k * frequencies, layout)
    return float(np.abs(turned - P[k:, : turned.shape[1]]).max())


@dataclass(frozen=True, slots=True)
class Sinusoids:
    """What a table of sinusoids is made of.

    `frequencies` (pairs,): radians from row to row, fastest first. `base` and `exponent`: the frequency of pair i is
    base^(-exponent), "2i/d" or "i/(d/2 - 1)"; `named` is False where that was fitted to the values. `sine_first`
    is False where each pair begins with the cosine. Every pair is `amplitude` long; no value is farther from the
    fitted sinusoids than `misfit` amplitudes.
    """

    layout: Layout
    sine_first: bool
    frequencies: Float64s
    base: float
    exponent: str
    named: bool
    amplitude: float
    misfit: float


def first_rows(table: Rows, first_row: int) -> Floats:
    """The rows from `first_row` on, as many as are needed to know sinusoids: at least 64, where there are so many."""
    n = max(64, SAMPLED_NUMBERS // table.width)
    return table.rows(np.arange(first_row, min(first_row + n, table.n_rows)))


def recognise_sinusoids(P: Floats) -> Sinusoids | None:
    """Are these rows sinusoids, in which layout, and how fast does each pair turn? None where they are not.

    P (n, d): rows of a table, one after the other. Nothing is presumed but that pairs of columns turn evenly, at
    frequencies that fall evenly on a logarithmic scale. Values may be rounded to 16 bits. At least four rows.
    """
    if len(P) < 4 or P.shape[1] < 2 or not np.isfinite(P).all():
        return None
    found = [
        fit for layout in ("interleaved", "halves") if (fit := _fit_sinusoids(P.astype(np.float64), layout))
    ]
    return min(found, key=lambda fit: fit.misfit) if found else None


def _fit_sinusoids(P: Float64s, layout: Layout) -> Sinusoids | None:
    sine, cosine = split_pairs(P, layout)
    Z = cosine + 1j * sine
    n = len(Z)
    lengths = np.abs(Z)
    amplitude = float(lengths.mean())
    if amplitude == 0 or np.abs(lengths - amplitude).max() > _LARGEST_MISFIT * amplitude:
        return None
    w = _even_turning(Z)
    sine_first = bool(w[np.argmax(np.abs(w))] > 0)
    if not sine_first:
        Z, w = 1j * Z.conj(), -w
    named = _name_frequencies(w, n)
    base, exponent, exact = named or _fit_base(w, n)
    if base <= 1:
        return None
    frequencies = exact if named else np.where(w * n > 1, w, exact)
    p = np.arange(n)[:, None]
    flat = Z * np.exp(-1j * frequencies * p)
    even = flat.mean(axis=0)
    # Rows are written in 16 bits at times, and angles in float32: what is left over after turning back stays small.
    misfit = float(np.abs(flat - even).max()) / amplitude
    if misfit > (_LARGEST_DRIFT if named else _LARGEST_MISFIT):
        return None
    return Sinusoids(layout, sine_first, frequencies, base, exponent, named is not None, amplitude, misfit)


def _even_turning(Z: NDArray[np.complex128]) -> Float64s:
    """The turning from row to row of each column, from ever longer steps: each makes the last one more exact."""
    w = np.angle((Z[1:] * Z[:-1].conj()).sum(axis=0))
    step = 2
    while step <= len(Z) // 2:
        measured = np.angle((Z[step:] * Z[:-step].conj()).sum(axis=0))
        rest = measured - w * step
        w += (rest - 2 * math.pi * np.round(rest / (2 * math.pi))) / step
        step *= 2
    return np.asarray(w)


def _name_frequencies(w: Float64s, n: int) -> tuple[float, str, Float64s] | None:
    """The rule in use that these frequencies follow, where one fits over the whole table."""
    i = np.arange(len(w))
    for exponent, exponents in (("2i/d", i / len(w)), ("i/(d/2 - 1)", i / max(len(w) - 1, 1))):
        rule = 10_000.0**-exponents
        if np.abs(w - rule).max() * (n - 1) <= _LARGEST_DRIFT:
            return 10_000.0, exponent, rule
    return None


def _fit_base(w: Float64s, n: int) -> tuple[float, str, Float64s]:
    """A base fitted to the pairs that turn visibly; base 1 where the frequencies fall unevenly."""
    i = np.arange(len(w))
    seen = w * n > 1
    if seen.sum() < 2 or (w < -_LARGEST_DRIFT / n).any():
        return 1.0, "2i/d", w
    slope, first = np.polyfit(i[seen], np.log(w[seen]), 1)
    fitted = np.exp(first + slope * i)
    if np.abs(np.log(w[seen]) - np.log(fitted[seen])).max() > _LARGEST_DRIFT or slope >= 0:
        return 1.0, "2i/d", w
    return float(np.exp(-slope * len(w))), "2i/d", fitted


# --- likeness by distance ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Curve:
    """Cosines of pairs of rows by their distance.

    All (m,): `distances`, ascending; the `mean`; `low` and `high`, the 5th and 95th percentiles; `shuffled`, the mean
    when the rows change places at random; `pairs`, how many pairs were compared, all of them with directions. NaN
    where there was none. `drawn`: the pairs were drawn at random, and are not all there are.
    """

    distances: Integers
    mean: Float64s
    low: Float64s
    high: Float64s
    shuffled: Float64s
    pairs: Integers
    drawn: bool


def curve_by_distance(table: Rows, first_row: int = 0, seed: int = 0) -> Curve:
    """How alike are rows by their distance?

    The rows from `first_row` on. Up to EXACT_ROWS of them every pair at every distance; of longer tables
    DRAWN_PAIRS pairs, drawn at random, at each of about DRAWN_DISTANCES distances, so that memory is bounded by those
    pairs. Rows without a direction are left out. Percentiles are interpolated linearly.
    """
    n = table.n_rows - first_row
    rng = np.random.default_rng(seed)
    if n <= EXACT_ROWS:
        return _whole_curve(unit_rows(table.rows(np.arange(first_row, table.n_rows))), rng)
    return _drawn_curve(table, first_row, n, rng)


def _whole_curve(U: Float64s, rng: np.random.Generator) -> Curve:
    n = len(U)
    C = np.clip(U @ U.T, -1.0, 1.0)
    order = rng.permutation(n)
    mixed = C[order][:, order]
    distances = np.arange(1, n)
    rows = [(*_describe(np.diagonal(C, t)), _mean(np.diagonal(mixed, t))) for t in range(1, n)]
    mean, low, high, pairs, shuffled = np.array(rows, np.float64).reshape(-1, 5).T
    return Curve(distances, mean, low, high, shuffled, pairs.astype(np.int64), False)


def _drawn_curve(table: Rows, first_row: int, n: int, rng: np.random.Generator) -> Curve:
    near = np.arange(1, DRAWN_DISTANCES // 2 + 1)
    far = np.geomspace(near[-1], n - 1, DRAWN_DISTANCES // 2 + 1).round().astype(np.int64)
    doubled = 1 << np.arange((n - 1).bit_length())
    distances = np.unique(np.concatenate([near, far, doubled]))
    rows: list[tuple[float, float, float, int]] = []
    for t in distances.tolist():
        starts = np.sort(rng.choice(n - t, min(DRAWN_PAIRS, n - t), replace=False)) + first_row
        rows.append(_describe(_cosines(table.rows(starts), table.rows(starts + t))))
    # Where rows have changed places, any two of them can be the pair: two from a pool stand for them.
    pool = unit_rows(table.rows(np.sort(rng.choice(n, 2 * DRAWN_PAIRS, replace=False)) + first_row))
    C = np.clip(pool @ pool.T, -1.0, 1.0)
    a = rng.integers(0, len(pool), (len(distances), DRAWN_PAIRS))
    b = (a + rng.integers(1, len(pool), a.shape)) % len(pool)
    shuffled = np.array([_mean(C[i, j]) for i, j in zip(a, b, strict=True)])
    mean, low, high, pairs = np.array(rows).T
    return Curve(distances, mean, low, high, shuffled, pairs.astype(np.int64), True)


def _cosines(A: Floats, B: Floats) -> Float64s:
    return np.asarray(np.clip((unit_rows(A) * unit_rows(B)).sum(axis=1), -1.0, 1.0))


def _describe(cosines: Float64s) -> tuple[float, float, float, int]:
    """Mean, 5th and 95th percentile of those that are defined, and how many they are."""
    cosines = cosines[~np.isnan(cosines)]
    if not cosines.size:
        return math.nan, math.nan, math.nan, 0
    low, high = np.percentile(cosines, (5, 95))
    return float(cosines.mean()), float(low), float(high), cosines.size


def _mean(cosines: Float64s) -> float:
    return _describe(cosines)[0]


# --- the rows as a whole -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Path:
    """The way that the rows take through the directions of most variance.

    `shares` (m,): the part of the variance along each leading component, in [0, 1]; `coordinates` (n, c), c <= 3, with
    NaN for rows that are not finite.
    """

    shares: Float64s
    coordinates: Float64s


def trace_path(X: Floats, n_shares: int = 10) -> Path:
    """Along which directions do these rows vary most, and where does each row stand on the first three?

    X (n, d). In float64, from the smaller of the two products of the centred rows; each axis is turned so that its
    largest absolute loading is positive.
    """
    X = X.astype(np.float64)
    finite = np.isfinite(X).all(axis=1)
    coordinates = np.full((len(X), min(3, *X.shape)), np.nan)
    if finite.sum() < 2:
        return Path(np.empty(0), coordinates[:, :0])
    scale = np.abs(X[finite]).max() or 1.0
    centred = X[finite] / scale
    centred -= centred.mean(axis=0)
    n, d = centred.shape
    squares, vectors = np.linalg.eigh(centred @ centred.T if n < d else centred.T @ centred)
    squares, vectors = np.maximum(squares[::-1], 0), vectors[:, ::-1]
    total = squares.sum()
    if total == 0:
        return Path(np.empty(0), coordinates[:, :0])
    c = int(min(coordinates.shape[1], (squares > total * 1e-12).sum()))
    axes = vectors[:, :c].T
    if n < d:
        axes = axes @ centred
        axes /= row_norms(axes)[:, None]
    coordinates = coordinates[:, :c]
    coordinates[finite] = centred @ fix_signs(axes).T * scale
    return Path(squares[:n_shares] / total, coordinates)


def likeness_beside(table: Rows, norms: Float64s) -> Float64s:
    """How alike is each row to the most alike of the two rows before and the two after it?

    The largest absolute cosine, float64 (n_rows,), from one pass in float32; 0 for a row without a direction.
    `norms` (n_rows,): the lengths of the rows.
    """
    closest = np.zeros(table.n_rows)
    sound = has_direction(norms)
    before = np.empty((0, table.width), np.float32)
    for start, block in table.blocks():
        lengths = norms[start : start + len(block), None]
        usable = sound[start : start + len(block), None]
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            unit = np.where(usable, block / lengths, 0.0).astype(np.float32)
        rows, first = np.concatenate([before, unit]), start - len(before)
        for t in (1, 2):
            # The first of the rows carried over was compared with the second in the block before.
            skip = max(len(before) - t, 0)
            cosines = np.abs((rows[skip + t :] * rows[skip : len(rows) - t]).sum(axis=1))
            for at in (first + skip, first + skip + t):
                part = closest[at : at + len(cosines)]
                np.maximum(part, cosines, out=part)
        before = rows[-2:].copy()
    return closest


def find_untrained(closest: Float64s, sound: NDArray[np.bool_], width: int) -> NDArray[np.bool_] | None:
    """Which rows are no more like the rows beside them than random directions are?

    `closest` (n,) as `likeness_beside` gives it, `sound` (n,): rows that have a direction. A row is told when it stays
    below four standard deviations of the cosine of random directions, 1 / sqrt(width). None where that tells
    nothing: in a narrow table, or where most rows are like that.
    """
    if width < 64 or len(closest) < 8:
        return None
    alone = sound & (closest < 4 / math.sqrt(width))
    return None if alone.sum() * 2 > len(closest) else alone


@dataclass(frozen=True, slots=True)
class Crossing:
    """Cosines between the rows of two tables, by their size.

    `largest` and `mean` of the absolute cosines; `random_...` the same for random directions in place of the
    second table's rows. `n_pairs` were compared, with `n_positions` rows of the second table.
    """

    largest: float
    mean: float
    random_largest: float
    random_mean: float
    n_pairs: int
    n_positions: int


def cross_cosines(table: Rows, U: Float64s, seed: int = 0) -> Crossing | None:
    """How far do the rows of a table lie in other directions than these unit rows?

    U (n, d). Every pair in float32, in one pass by blocks, the table's rows without direction left out; of U evenly
    spaced rows where all would take too long. None where nothing can be compared.
    """
    U = U[~np.isnan(U).any(axis=1)]
    affordable = max(16, _CROSS_PRODUCTS // max(1, 2 * table.n_rows * table.width))
    U = U[evenly(len(U), affordable)]
    n = len(U)
    noise = unit_rows(np.random.default_rng(seed).standard_normal((n, table.width)))
    both = np.concatenate([U, noise]).astype(np.float32)
    largest, total, count = np.zeros(2), np.zeros(2), 0
    for _, block in table.blocks():
        norms = row_norms(block)
        sound = has_direction(norms)
        rows = block if sound.all() else block[sound]
        rows = (rows / norms[sound, None]).astype(np.float32)
        cosines = np.abs(rows @ both.T).reshape(len(rows), 2, n)
        if cosines.size:
            largest = np.maximum(largest, cosines.max(axis=(0, 2)))
            total += cosines.sum(axis=(0, 2), dtype=np.float64)
            count += len(rows) * n
    if not count:
        return None
    mean = total / count
    return Crossing(min(float(largest[0]), 1.0), float(mean[0]), float(largest[1]), float(mean[1]), count, n)


def evenly(n: int, most: int) -> Integers:
    """At most so many of n rows, the first and the last among them: all of them, or evenly spaced ones."""
    return np.arange(n) if n <= most else np.unique(np.linspace(0, n - 1, most).round().astype(np.int64))
