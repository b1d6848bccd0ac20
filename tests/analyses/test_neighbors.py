"""Neighbours, held against float64 brute force that is written here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import planted
import pytest
from numpy.typing import NDArray

from inspect_embed import neighbors, open_checkpoint
from inspect_embed.checkpoint import Checkpoint
from inspect_embed.errors import AnalysisError, NotOneTokenError, UnknownTokenError


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(planted.write_checkpoint(tmp_path / "planted"))


def rows() -> NDArray[np.float64]:
    return planted.token_rows().astype(np.float64)


def comparable(query: int, n: int = len(planted.WORDS)) -> list[int]:
    E = rows()
    return [i for i in range(n) if i != query and np.isfinite(E[i]).all() and E[i].any()]


def brute_force(
    q: NDArray[np.float64], E: NDArray[np.float64], ids: list[int], metric: str
) -> list[tuple[int, float]]:
    if metric == "cosine":
        scores = {i: float(E[i] @ q / np.sqrt((E[i] @ E[i]) * (q @ q))) for i in ids}
    elif metric == "dot":
        scores = {i: float(E[i] @ q) for i in ids}
    else:
        scores = {i: float(np.sqrt(((E[i] - q) ** 2).sum())) for i in ids}
    sign = 1 if metric == "euclidean" else -1
    return sorted(scores.items(), key=lambda item: (round(sign * item[1], 12), item[0]))


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_order_scores_percentiles_and_z_are_those_of_brute_force(checkpoint: Checkpoint, metric: str) -> None:
    query = planted.WORDS.index("Ġgirl")
    ids = comparable(query)
    expected = brute_force(rows()[query], rows(), ids, metric)
    found = neighbors(checkpoint, ["·girl"], k=100, metric=metric).results[0]
    assert found.id == query
    assert found.token == "·girl"
    assert [n.id for n in found.neighbors] == [i for i, _ in expected]
    assert [n.rank for n in found.neighbors] == list(range(1, len(ids) + 1))
    scores = np.array([score for _, score in expected])
    np.testing.assert_allclose([n.score for n in found.neighbors], scores, rtol=1e-12)
    sign = -1 if metric == "euclidean" else 1
    z = sign * (scores - scores.mean()) / scores.std(ddof=0)
    np.testing.assert_allclose([n.z for n in found.neighbors], z, rtol=1e-9, atol=1e-9)
    for neighbor in found.neighbors:
        farther = sum(sign * score < sign * neighbor.score - 1e-12 for score in scores)
        assert neighbor.percentile == pytest.approx(100 * farther / len(scores), abs=1e-12)


def test_zero_and_nan_rows_and_rows_without_a_token_are_nobodys_neighbours(checkpoint: Checkpoint) -> None:
    found = neighbors(checkpoint, ["·girl"], k=100)
    ids = {n.id for n in found.results[0].neighbors}
    assert planted.ZERO not in ids
    assert planted.NAN not in ids
    assert all(i < len(planted.WORDS) for i in ids)
    notes = " ".join(found.notes)
    assert "2 rows are zero or not finite" in notes
    assert "3 rows without a token" in notes


def test_all_rows_lets_rows_without_a_token_in_and_labels_them_so(checkpoint: Checkpoint) -> None:
    found = neighbors(checkpoint, ["·girl"], k=3, all_rows=True).results[0]
    first = len(planted.WORDS)
    assert [n.id for n in found.neighbors] == [first, first + 1, first + 2]
    assert {n.token for n in found.neighbors} == {"no token"}
    assert [n.score for n in found.neighbors] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("word", ["·zero", "·nan"])
def test_asking_for_the_neighbours_of_a_row_without_direction_is_an_error(
    checkpoint: Checkpoint, word: str
) -> None:
    with pytest.raises(AnalysisError, match="no direction"):
        neighbors(checkpoint, [word])


def test_a_twin_stays_in_and_the_query_is_left_out_by_id(checkpoint: Checkpoint) -> None:
    found = neighbors(checkpoint, ["·double"], k=1)
    first = found.results[0].neighbors[0]
    assert (first.id, first.score) == (planted.TWIN, 1.0)
    assert any("same numbers" in note and first.token in note for note in found.notes)
    assert not any("same numbers" in note for note in neighbors(checkpoint, ["·king"], k=100).notes)


def test_center_takes_away_the_mean_of_the_rows_compared_and_the_query(checkpoint: Checkpoint) -> None:
    query = planted.WORDS.index("Ġking")
    ids = comparable(query)
    mean = rows()[[*ids, query]].mean(axis=0)
    expected = brute_force(rows()[query] - mean, rows() - mean, ids, "cosine")
    found = neighbors(checkpoint, ["·king"], k=100, center=True).results[0]
    assert [n.id for n in found.neighbors] == [i for i, _ in expected]
    np.testing.assert_allclose([n.score for n in found.neighbors], [s for _, s in expected], rtol=1e-9)


def test_remove_top_takes_away_the_leading_directions_of_the_centred_rows(checkpoint: Checkpoint) -> None:
    query = planted.WORDS.index("Ġking")
    ids = comparable(query)
    kept = rows()[[*ids, query]]
    mean = kept.mean(axis=0)
    _, _, directions = np.linalg.svd(kept - mean, full_matrices=False)
    U = directions[:2]
    moved = (rows() - mean) - (rows() - mean) @ U.T @ U
    expected = brute_force(moved[query], moved, ids, "cosine")
    found = neighbors(checkpoint, ["·king"], k=100, remove_top=2).results[0]
    assert [n.id for n in found.neighbors] == [i for i, _ in expected]
    np.testing.assert_allclose([n.score for n in found.neighbors], [s for _, s in expected], rtol=1e-7)


def test_remove_top_cannot_take_all_directions(checkpoint: Checkpoint) -> None:
    with pytest.raises(AnalysisError, match="12 wide"):
        neighbors(checkpoint, ["·king"], remove_top=planted.WIDTH)


def test_word_arithmetic_sums_rows_and_leaves_its_words_out(checkpoint: Checkpoint) -> None:
    E = rows()
    ids = {word: planted.WORDS.index(word) for word in ("Ġking", "Ġboy", "Ġgirl")}
    vector = E[ids["Ġking"]] - E[ids["Ġboy"]] + E[ids["Ġgirl"]]
    kept = [i for i in comparable(-1) if i not in ids.values()]
    expected = brute_force(vector, E, kept, "cosine")
    found = neighbors(checkpoint, ["·king"], plus=["·girl"], minus=["·boy"], k=100).results[0]
    assert found.id is None
    assert found.query == "·king + ·girl - ·boy"
    assert [n.id for n in found.neighbors] == [i for i, _ in expected]
    alone = neighbors(checkpoint, plus=["·king", "·girl"], minus=["·boy"], k=100).results[0]
    assert alone.neighbors == found.neighbors


def test_a_word_of_several_tokens_is_refused_unless_the_mean_is_asked_for(checkpoint: Checkpoint) -> None:
    with pytest.raises(NotOneTokenError, match="3"):
        neighbors(checkpoint, ["boy"])
    E = rows()
    pieces = [planted.WORDS.index(piece) for piece in "boy"]
    kept = [i for i in comparable(-1) if i not in pieces]
    expected = brute_force(E[pieces].mean(axis=0), E, kept, "cosine")
    found = neighbors(checkpoint, ["boy"], mean=True, k=100)
    assert found.results[0].id is None
    assert [n.id for n in found.results[0].neighbors] == [i for i, _ in expected]
    assert any("mean of b + o + y" in note for note in found.notes)


def test_both_forms_of_a_word_are_named(checkpoint: Checkpoint) -> None:
    notes = neighbors(checkpoint, ["·girl"], k=1).notes
    assert any("girl (id 1)" in note for note in notes)


def test_several_words_in_one_call_answer_as_each_alone(checkpoint: Checkpoint) -> None:
    together = neighbors(checkpoint, ["·girl", "·red", "·ran"], k=5).results
    alone = [neighbors(checkpoint, [word], k=5).results[0] for word in ("·girl", "·red", "·ran")]
    for one, other in zip(together, alone, strict=True):
        assert [(n.id, n.score, n.percentile) for n in one.neighbors] == [
            (n.id, n.score, n.percentile) for n in other.neighbors
        ]
        np.testing.assert_allclose([n.z for n in one.neighbors], [n.z for n in other.neighbors], rtol=1e-9)


def test_k_is_cut_to_what_exists_with_a_note(checkpoint: Checkpoint) -> None:
    found = neighbors(checkpoint, ["·girl"], k=1000)
    assert len(found.results[0].neighbors) == len(comparable(0)) == found.n_compared
    assert any("no 1,000 neighbours" in note for note in found.notes)


def test_an_id_without_a_row_is_an_error_that_says_which_rows_there_are(checkpoint: Checkpoint) -> None:
    with pytest.raises(UnknownTokenError, match=f"0 to {planted.N_ROWS - 1}"):
        neighbors(checkpoint, [f"id:{planted.N_ROWS}"])


def test_the_input_row_can_be_asked_of_the_output_table(tmp_path: Path) -> None:
    head = np.random.default_rng(9).standard_normal((planted.N_ROWS, planted.WIDTH)).astype(np.float32)
    checkpoint = open_checkpoint(planted.write_checkpoint(tmp_path, **{"lm_head.weight": head}))
    query = planted.WORDS.index("Ġred")
    ids = [i for i in range(len(planted.WORDS)) if i != query]
    H = head.astype(np.float64)
    for query_table, vector in (("input", rows()[query]), ("output", H[query])):
        expected = brute_force(vector, H, ids, "cosine")
        found = neighbors(checkpoint, ["·red"], table="output", query_table=query_table, k=100)
        assert found.table.tensor == "lm_head.weight"
        assert [n.id for n in found.results[0].neighbors] == [i for i, _ in expected]


def test_tables_of_different_widths_are_not_compared(tmp_path: Path) -> None:
    head = np.ones((planted.N_ROWS, 5), np.float32)
    checkpoint = open_checkpoint(planted.write_checkpoint(tmp_path, **{"lm_head.weight": head}))
    with pytest.raises(AnalysisError, match=r"12 wide.* 5"):
        neighbors(checkpoint, ["·red"], table="output", query_table="input")


def test_a_tied_head_is_the_input_table_and_says_so(checkpoint: Checkpoint) -> None:
    found = neighbors(checkpoint, ["·red"], table="output", k=3)
    assert found.table.role == "output"
    assert found.results[0].neighbors == neighbors(checkpoint, ["·red"], k=3).results[0].neighbors
    assert any("tied" in note for note in found.notes)


def test_places_have_neighbours_too(checkpoint: Checkpoint) -> None:
    P = planted.position_rows().astype(np.float64)
    expected = brute_force(P[1], P, [i for i in range(len(P)) if i != 1], "cosine")
    found = neighbors(checkpoint, ["2"], table="position", k=100).results[0]
    assert [n.id for n in found.neighbors] == [i for i, _ in expected]
    assert found.neighbors[0].token == f"place {expected[0][0] + 1}"


@pytest.mark.parametrize(("metric", "factor"), [("euclidean", 0.01), ("dot", 100.0)])
def test_rows_that_win_by_their_length_alone_are_called_out(
    tmp_path: Path, metric: str, factor: float
) -> None:
    E = np.random.default_rng(3).standard_normal((planted.N_ROWS, planted.WIDTH)).astype(np.float32)
    E[:, 0] = 0.1
    E[0] = np.eye(planted.WIDTH)[0] * 10
    E[5:8] *= factor
    checkpoint = open_checkpoint(planted.write_checkpoint(tmp_path, **{"transformer.wte.weight": E}))
    found = neighbors(checkpoint, ["·girl"], metric=metric, k=3)
    assert {n.id for n in found.results[0].neighbors} == {5, 6, 7}
    assert any("almost any query" in note for note in found.notes)
    assert not any("almost any query" in note for note in neighbors(checkpoint, ["·girl"], k=3).notes)
