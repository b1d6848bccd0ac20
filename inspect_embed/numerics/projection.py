"""Maps: vectors of many dimensions drawn in two or three, and how far such a map can be trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inspect_embed.errors import MissingExtraError

Floats = NDArray[np.floating[Any]]
Float64s = NDArray[np.float64]
Progress = Callable[[str], None]

NEIGHBORS = 10
"""How many nearest points a map is judged by."""
SAMPLED = 500
"""How many points stand for all of them where all would take too long."""
MANY = 2000
"""Points from which on t-SNE and UMAP read 50 principal components in place of the vectors themselves."""
REDUCED_WIDTH = 50
_DISTANCES_HELD = 1 << 23
_PAIR_ELEMENTS_HELD = 1 << 22
_DOUBLE_ELEMENTS = 1 << 23
_FULL_SVD_COST = 2e10


@dataclass(frozen=True, slots=True)
class Pca:
    """The principal axes of some rows.

    `mean` (d,); `axes` (dims, d), orthonormal rows, the one of most variance first; `ratios` (dims,): the share of
    the whole variance (ddof 1) along each axis, in [0, 1].
    """

    mean: Floats
    axes: Floats
    ratios: Float64s

    def apply(self, X: Floats) -> Floats:
        """Where do these rows stand on the axes? X (n, d) -> (n, dims)."""
        placed: Floats = X @ self.axes.T - self.mean @ self.axes.T
        return placed


def fit_pca(X: Floats, dims: int, solver: str | None = None, seed: int = 0) -> Pca:
    """Which `dims` axes carry most of the variance of these rows?

    X (n, d), finite, with some variance; dims <= min(n, d). scikit-learn's PCA, in the precision of X. Each axis
    is turned so that its largest absolute loading is positive (of equal ones the first): solvers and versions
    differ in that alone. An axis without variance has the share 0. `solver` is scikit-learn's `svd_solver`; unless
    it is given, an exact one for all but very large X.
    """
    from sklearn.decomposition import PCA

    n, d = X.shape
    if solver is None:
        # "auto" is exact where n >= 10 d and quick where nothing else is.
        solver = "auto" if n >= 10 * d or float(n) * d * min(n, d) > _FULL_SVD_COST else "full"
    # Squares must neither overflow nor vanish; a power of two scales without rounding.
    scale = _scale_of(X)
    fitted = PCA(dims, svd_solver=solver, random_state=seed).fit(X if scale == 1 else X / scale)
    ratios = np.asarray(fitted.explained_variance_ratio_, np.float64).copy()
    ratios[ratios <= 8 * np.finfo(fitted.components_.dtype).eps] = 0.0
    return Pca(fitted.mean_ * X.dtype.type(scale), fix_signs(fitted.components_), ratios)


def fix_signs(axes: Floats) -> Floats:
    """The same axes, each turned so that its largest absolute loading is positive; of equal ones the first counts.

    Loadings that differ by less than one part in a million are taken for equal, since solvers round differently.
    """
    sizes = np.abs(axes)
    first = np.argmax(sizes >= sizes.max(axis=1, keepdims=True) * (1 - 1e-6), axis=1)
    signs = np.where(axes[np.arange(len(axes)), first] < 0, -1, 1).astype(axes.dtype)
    turned: Floats = np.ascontiguousarray(axes * signs[:, None])
    return turned


def working_dtype(n_rows: int, width: int) -> type[np.float32 | np.float64]:
    """The precision that a map of so many rows is computed in: double where that costs little."""
    return np.float64 if n_rows * width <= _DOUBLE_ELEMENTS else np.float32


def choose_perplexity(n: int) -> float:
    """The perplexity for n points: 30, or a third of the others where there are fewer; never below 2.

    Source: van der Maaten & Hinton 2008, "Visualizing Data using t-SNE", section 2: typical values are between 5
    and 50; three times as many neighbours are looked at (van der Maaten 2014, section 4).
    """
    return min(30.0, max(2.0, (n - 1) / 3))


def tsne(
    X: Floats, dims: int, perplexity: float, seed: int, progress: Progress | None = None
) -> tuple[Float64s, str]:
    """Where does t-SNE put these rows? Returns (n, dims) and the name of the library that did it.

    Euclidean distances; begins at the principal components. openTSNE where it is installed, from MANY points on;
    else scikit-learn. Repeatable for a seed on one machine.
    """
    n = len(X)
    Y: Floats
    if n > MANY and dims == 2 and find_spec("openTSNE") is not None:
        import openTSNE

        every = {"callbacks": _tell_progress(progress), "callbacks_every_iters": 50} if progress else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = openTSNE.TSNE(
                dims,
                perplexity=perplexity,
                initialization="pca",
                random_state=seed,
                n_jobs=-1,
                **every,
            ).fit(np.ascontiguousarray(X))
        Y, library = np.asarray(fitted), "openTSNE"
    else:
        from sklearn.manifold import TSNE

        # How many iterations: no argument says it under one name in all versions, and the default serves.
        model = TSNE(
            dims,
            perplexity=perplexity,
            init="pca",
            learning_rate="auto",
            random_state=seed,
            n_jobs=None,
        )
        Y, library = model.fit_transform(np.ascontiguousarray(X)), "scikit-learn"
    return _centred(Y), library


def umap(X: Floats, dims: int, seed: int) -> Float64s:
    """Where does UMAP put these rows? (n, dims). Euclidean distances; repeatable for a seed on one machine.

    Source: McInnes, Healy & Melville 2018, "UMAP: Uniform Manifold Approximation and Projection".
    """
    if find_spec("umap") is None:
        raise MissingExtraError("umap-learn", "umap", "UMAP")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from umap import UMAP

        n = len(X)
        # The spectral beginning needs more points than it has eigenvectors to find.
        init = "spectral" if n > 4 * (dims + 1) else "random"
        model = UMAP(
            n_neighbors=min(15, n - 1),
            n_components=dims,
            init=init,
            random_state=seed,
            n_jobs=1,
        )
        Y = model.fit_transform(np.ascontiguousarray(X))
    return _centred(Y)


def find_nearest_points(
    X: Floats,
    k: int,
    queries: NDArray[np.integer[Any]] | None = None,
    progress: Progress | None = None,
) -> tuple[NDArray[np.int64], Float64s]:
    """Which k points are nearest to each of the queries, itself left out?

    X (n, d), finite, k < n; `queries` (q,) are indices of X, all of them unless given. Returns indices (q, k),
    nearest first, ties by index, and Euclidean distances (q, k) in float64. Brute force, by blocks: the distances
    of a first pass choose the candidates, with a margin for its rounding; the candidates are measured again.
    """
    n = len(X)
    if queries is None:
        queries = np.arange(n)
    scale = _scale_of(X)
    # About the mean, distances lose least to rounding.
    C = np.ascontiguousarray(X - X.mean(axis=0, dtype=np.float64).astype(X.dtype))
    if scale != 1:
        C /= X.dtype.type(scale)
    squares = np.einsum("ij,ij->i", C, C)
    slack = 4 * float(np.finfo(C.dtype).eps) * (X.shape[1] + 16)
    largest = float(squares.max(initial=0.0))
    ids = np.empty((len(queries), k), np.int64)
    distances = np.empty((len(queries), k))
    step = max(1, _DISTANCES_HELD // n)
    for start in range(0, len(queries), step):
        own = queries[start : start + step]
        D = C[own] @ C.T
        D *= -2
        D += squares
        D[np.arange(len(own)), own] = np.inf
        reach = np.partition(D, k - 1, axis=1)[:, k - 1]
        margin = slack * (np.sqrt(squares[own]) + np.sqrt(largest)) ** 2
        at, candidates = np.nonzero((reach + margin)[:, None] >= D)
        exact = _measure(X, own[at], candidates, scale)
        order = np.lexsort((candidates, exact, at))
        firsts = np.searchsorted(at[order], np.arange(len(own)))
        chosen = order[firsts[:, None] + np.arange(k)]
        ids[start : start + step] = candidates[chosen]
        distances[start : start + step] = exact[chosen] * scale
        if progress is not None and len(queries) > 8 * step:
            progress(f"nearest points: {min(start + step, len(queries)):,} of {len(queries):,}")
    return ids, distances


def share_kept(true: NDArray[np.integer[Any]], drawn: NDArray[np.integer[Any]]) -> Float64s:
    """For each point, the share of its nearest in space that are also among its nearest on the map.

    `true` and `drawn` (q, k), indices of points; in [0, 1].

    Source: Venna & Kaski 2001 judge maps by such neighbourhoods; the share itself is the Q_NX(k) of Lee & Verleysen
    2009, "Quality assessment of dimensionality reduction: Rank-based criteria", averaged over points.
    """
    k = true.shape[1]
    return np.array([len(set(a) & set(b)) / k for a, b in zip(true.tolist(), drawn.tolist(), strict=True)])


def neighbors_judged(n: int) -> int:
    """By how many nearest points is a map of n points judged? 10; half of the others where those are 10 or fewer."""
    return NEIGHBORS if n - 1 > NEIGHBORS else max(1, (n - 1) // 2)


def _measure(X: Floats, a: NDArray[Any], b: NDArray[Any], scale: float) -> Float64s:
    """Distances of pairs of rows, in float64, over `scale`; equal rows are at 0 exactly."""
    found = np.empty(len(a))
    step = max(1, _PAIR_ELEMENTS_HELD // X.shape[1])
    for start in range(0, len(a), step):
        some = slice(start, start + step)
        difference = (X[a[some]].astype(np.float64) - X[b[some]]) / scale
        # Summed along each row by itself, so that equal pairs tie to the last bit.
        found[some] = np.sqrt((difference * difference).sum(axis=1))
    return found


def _scale_of(X: Floats) -> float:
    """A power of two that brings numbers of extreme size near 1; 1 for all others."""
    largest = float(max(X.max(initial=0.0), -X.min(initial=0.0)))
    if largest == 0 or 1e-6 < largest < 1e12:
        return 1.0
    return float(2.0 ** np.floor(np.log2(largest)))


def _centred(Y: Floats) -> Float64s:
    Y = Y.astype(np.float64)
    return np.ascontiguousarray(Y - Y.mean(axis=0))


def _tell_progress(progress: Progress) -> Callable[[int, float, Any], None]:
    def tell(iteration: int, error: float, embedding: Any) -> None:
        progress(f"t-SNE: iteration {iteration:,}, divergence {error:.3f}")

    return tell
