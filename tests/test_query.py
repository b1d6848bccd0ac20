"""What a query stands for: one row, the mean of the pieces of a word, a sum."""

from __future__ import annotations

import numpy as np
import pytest
from made import random_table, safetensors, words

from inspect_embed.errors import AnalysisError, NotOneTokenError, TokenError, UnknownTokenError
from inspect_embed.formats.safetensors import read_tensors
from inspect_embed.query import Query, combine, find_query, query_vectors
from inspect_embed.storage.memory import MemoryFolder
from inspect_embed.table import EmbeddingTable, FoundRow, PositionLabels, TokenLabels
from inspect_embed.vocabularies import open_vocabulary

E = random_table(8, 4)
E[5] = 0
E[6, 2] = np.nan
E[7, 1] = np.inf


def table(vocabulary: bool = True) -> EmbeddingTable:
    tensors = read_tensors(MemoryFolder({"model.safetensors": safetensors({"wte.weight": E})}))
    words_ = open_vocabulary(MemoryFolder({"tokenizer.json": words(*"abcdefgh")})) if vocabulary else None
    return EmbeddingTable("input", tensors["wte.weight"], tensors, TokenLabels(words_))


class Pieces(TokenLabels):
    """Labels of a vocabulary that cuts every word but its own into its letters."""

    class Vocabulary:
        def pieces(self, text: str) -> list[int]:
            return ["abcdefgh".index(letter) for letter in text]

    def __init__(self) -> None:
        super().__init__(None)
        self.vocabulary = Pieces.Vocabulary()  # type: ignore[assignment]

    def text(self, row: int) -> str:
        return "abcdefgh"[row]

    def find(self, query: str) -> FoundRow:
        if len(query) != 1:
            raise NotOneTokenError(f"{query!r} is {len(query)} tokens.", "Pass --mean.")
        return FoundRow("abcdefgh".index(query), query)


def test_a_word_is_its_row() -> None:
    found = find_query(table(), "c")
    assert (found.text, found.rows, found.weights, found.id, found.token) == ("c", (2,), (1.0,), 2, "c")
    assert find_query(table(vocabulary=False), "id:3").rows == (3,)


def test_a_word_that_is_no_token_is_an_error_with_or_without_a_mean() -> None:
    for mean in (False, True):
        with pytest.raises(TokenError):
            find_query(table(), "zebra", mean)
        with pytest.raises(TokenError):
            find_query(table(vocabulary=False), "zebra", mean)


def test_a_word_of_several_tokens_is_their_mean_only_when_that_is_asked_for() -> None:
    opened = table()
    opened.labels = Pieces()
    with pytest.raises(NotOneTokenError):
        find_query(opened, "abca")
    found = find_query(opened, "abca", mean=True)
    assert (found.id, found.token) == (None, None)
    assert found.rows == (0, 1, 2, 0)
    assert any("a + b + c + a" in note for note in found.notes)
    np.testing.assert_allclose(query_vectors(opened, [found])[0], E[[0, 1, 2, 0]].astype(float).mean(axis=0))
    assert find_query(opened, "b", mean=True).id == 1


def test_a_place_is_no_word_of_several_tokens() -> None:
    opened = table()
    opened.labels = PositionLabels(0, 8)
    assert find_query(opened, "3", mean=True).rows == (2,)
    with pytest.raises(UnknownTokenError):
        find_query(opened, "abc", mean=True)


def test_word_arithmetic_adds_and_takes_away() -> None:
    opened = table()
    a, b, c = (find_query(opened, word) for word in "abc")
    found = combine([(1.0, a), (-1.0, b), (1.0, c)])
    assert (found.text, found.rows, found.weights) == ("a - b + c", (0, 1, 2), (1, -1, 1))
    assert (found.id, found.token) == (None, None)
    np.testing.assert_allclose(query_vectors(opened, [found])[0], E[0].astype(float) - E[1] + E[2])
    assert combine([(-1.0, a), (1.0, b)]).text == "- a + b"


def test_a_mean_keeps_its_weights_in_a_sum() -> None:
    opened = table()
    mean = Query("ab", (0, 1), (0.5, 0.5), None, None, ("a note",))
    found = combine([(1.0, find_query(opened, "d")), (-1.0, mean)])
    assert found.weights == (1, -0.5, -0.5)
    assert found.notes == ("a note",)
    np.testing.assert_allclose(
        query_vectors(opened, [found])[0], E[3].astype(float) - E[:2].astype(float).mean(axis=0)
    )


def test_vectors_come_in_the_order_of_the_queries_in_float64() -> None:
    opened = table()
    found = query_vectors(opened, [find_query(opened, word) for word in "dab"])
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, E[[3, 0, 1]])
    assert query_vectors(opened, []).shape == (0, 4)


@pytest.mark.parametrize(
    ("word", "row", "what"), [("f", 5, "all zeros"), ("g", 6, "not all finite"), ("h", 7, "not all finite")]
)
def test_a_row_without_a_direction_is_an_error_that_says_which_and_why(
    word: str, row: int, what: str
) -> None:
    opened = table()
    for queries in (
        [find_query(opened, word)],
        [combine([(1.0, find_query(opened, "a")), (1.0, find_query(opened, word))])],
    ):
        with pytest.raises(AnalysisError, match=f"row {row} of wte.weight is {what}") as caught:
            query_vectors(opened, queries)
        assert caught.value.hint


def test_a_row_that_the_table_does_not_have_is_an_error() -> None:
    opened = table(vocabulary=False)
    with pytest.raises(UnknownTokenError, match="no row 8"):
        query_vectors(opened, [find_query(opened, "id:8")])
