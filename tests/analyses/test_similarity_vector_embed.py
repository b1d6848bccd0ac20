"""The other questions about rows: similarity, vector, embed, tokens, info."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import planted
import pytest
from safetensors.numpy import save_file

from inspect_embed import embed, info, open_checkpoint, similarity, tokens, vector
from inspect_embed.checkpoint import Checkpoint
from inspect_embed.errors import AnalysisError, TokenError, UnknownTokenError


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return open_checkpoint(planted.write_checkpoint(tmp_path / "planted"))


def write_rows(folder: Path, rows: list[list[float]]) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    save_file({"wte.weight": np.array(rows, np.float32)}, folder / "model.safetensors")
    return open_checkpoint(folder)


def test_the_cosine_of_3_4_and_4_3_is_24_25ths(tmp_path: Path) -> None:
    pair = similarity(write_rows(tmp_path, [[3, 4], [4, 3]]), ["id:0", "id:1"]).pairs[0]
    assert pair.cosine == pytest.approx(0.96, abs=1e-15)
    assert pair.dot == 24
    assert pair.euclidean == pytest.approx(math.sqrt(2), rel=1e-15)


def test_the_dot_product_of_1_2_3_and_4_0_minus_1_is_1(tmp_path: Path) -> None:
    assert similarity(write_rows(tmp_path, [[1, 2, 3], [4, 0, -1]]), ["0", "1"]).pairs[0].dot == 1


def test_every_pair_is_there_in_the_order_given(checkpoint: Checkpoint) -> None:
    words = ["·girl", "·boy", "·red", "·ran"]
    E = planted.token_rows().astype(np.float64)
    ids = [planted.WORDS.index(word.replace("·", "Ġ")) for word in words]
    found = similarity(checkpoint, words)
    expected = [(a, b) for i, a in enumerate(ids) for b in ids[i + 1 :]]
    assert [(pair.a.id, pair.b.id) for pair in found.pairs] == expected
    for pair, (a, b) in zip(found.pairs, expected, strict=True):
        cosine = E[a] @ E[b] / np.linalg.norm(E[a]) / np.linalg.norm(E[b])
        assert pair.cosine == pytest.approx(cosine, rel=1e-12)
        assert pair.euclidean == pytest.approx(np.linalg.norm(E[a] - E[b]), rel=1e-12)


def test_a_cosine_with_a_row_of_zeros_is_undefined_and_the_grid_shows_it(checkpoint: Checkpoint) -> None:
    found = similarity(checkpoint, ["·girl", "·zero", "·nan"])
    assert math.isnan(found.pairs[0].cosine)
    assert found.pairs[0].dot == 0
    assert math.isnan(found.pairs[1].dot)
    assert any("undefined" in note for note in found.notes)
    grid = found.report().figures["map"]
    assert grid.values[0][0] == 1.0
    assert math.isnan(grid.values[1][1])


def test_equal_rows_have_a_cosine_of_exactly_one(checkpoint: Checkpoint) -> None:
    pair = similarity(checkpoint, ["·twin", "·double"]).pairs[0]
    assert (pair.cosine, pair.euclidean) == (1.0, 0.0)


def test_the_working_adds_up(checkpoint: Checkpoint) -> None:
    found = similarity(checkpoint, ["·girl", "·boy"], explain=5)
    work = found.working
    assert work is not None
    assert len(work.a_values) == 5
    assert sum(work.products) + work.rest_dot == pytest.approx(found.pairs[0].dot, rel=1e-12)
    squares = sum(value * value for value in work.a_values) + work.rest_a_squares
    assert math.sqrt(squares) == pytest.approx(work.a_length, rel=1e-12)
    assert work.dot / (work.a_length * work.b_length) == pytest.approx(found.pairs[0].cosine, rel=1e-12)


def test_words_after_a_space_and_letters_without_are_told_apart(checkpoint: Checkpoint) -> None:
    notes = similarity(checkpoint, ["·girl", "girl"]).notes
    assert any("with a space before (·girl), and without (girl)" in note for note in notes)
    assert not any("Two sorts" in note for note in similarity(checkpoint, ["·girl", "·boy"]).notes)
    assert not any("Two sorts" in note for note in similarity(checkpoint, ["1", "2"], table="position").notes)


def test_one_word_is_no_comparison(checkpoint: Checkpoint) -> None:
    with pytest.raises(AnalysisError, match="two words"):
        similarity(checkpoint, ["·girl"])


def test_a_vector_is_the_row_as_stored_with_its_length_and_largest_entries(checkpoint: Checkpoint) -> None:
    row = vector(checkpoint, ["·Lily"]).rows[0]
    stored = planted.token_rows()[planted.WORDS.index("ĠLily")].astype(np.float64)
    assert row.values == tuple(stored.tolist())
    assert row.length == pytest.approx(np.linalg.norm(stored), rel=1e-12)
    assert row.largest[0].column == int(np.abs(stored).argmax())
    sizes = [abs(entry.value) for entry in row.largest]
    assert sizes == sorted(sizes, reverse=True)


def test_the_first_numbers_alone_leave_length_and_largest_as_they_are(checkpoint: Checkpoint) -> None:
    whole, short = vector(checkpoint, ["·Lily"]).rows[0], vector(checkpoint, ["·Lily"], first=3).rows[0]
    assert short.values == whole.values[:3]
    assert (short.length, short.largest, short.width) == (whole.length, whole.largest, 12)


def test_broken_rows_can_be_looked_at(checkpoint: Checkpoint) -> None:
    found = vector(checkpoint, ["·zero", "·nan"])
    assert found.rows[0].length == 0.0
    assert math.isnan(found.rows[1].length)
    assert any("not finite" in note for note in found.notes)


def test_the_first_layer_reads_token_rows_plus_position_rows(checkpoint: Checkpoint) -> None:
    found = embed(checkpoint, "girl girl boy")
    E, P = planted.token_rows().astype(np.float64), planted.position_rows().astype(np.float64)
    ids = [placed.id for placed in found.tokens]
    assert [planted.WORDS[i] for i in ids][:2] == ["girl", "Ġgirl"]
    assert found.shape == (len(ids), 12)
    for place, placed in enumerate(found.tokens):
        assert placed.place == place + 1
        assert placed.position_row == place
        np.testing.assert_array_equal(placed.token_vector, E[ids[place]])
        np.testing.assert_array_equal(placed.position_vector, P[place])
        np.testing.assert_array_equal(placed.sum, E[ids[place]] + P[place])


def test_the_mean_of_token_rows_knows_no_order_and_the_sums_do(checkpoint: Checkpoint) -> None:
    found = embed(checkpoint, "girl girl boy")
    assert found.order.mean_of_tokens == 0.0
    P = planted.position_rows().astype(np.float64)[: found.shape[0]]
    assert found.order.sums == pytest.approx(np.abs(P - P[::-1]).max(), rel=1e-12)


def test_a_text_longer_than_the_position_table_is_an_error_that_says_both_lengths(
    checkpoint: Checkpoint,
) -> None:
    with pytest.raises(AnalysisError, match=r"8 tokens.* 7 positions"):
        embed(checkpoint, "girl" + " girl" * 7)


def test_an_empty_text_is_an_error(checkpoint: Checkpoint) -> None:
    with pytest.raises(TokenError, match="empty"):
        embed(checkpoint, "")


def test_padding_and_truncation_in_the_tokenizer_change_nothing(checkpoint: Checkpoint) -> None:
    found = tokens(checkpoint, text="girl girl girl girl girl girl")
    assert [token.raw for token in found.words[0].tokens] == ["girl", *["Ġgirl"] * 5]


def test_words_and_ids_lead_to_the_same_tokens(checkpoint: Checkpoint) -> None:
    found = tokens(checkpoint, ["·girl", "Ġgirl", " girl", "girl"], ids=[0, 1])
    assert [word.tokens[0].id for word in found.words] == [0, 0, 0, 1, 0, 1]
    assert [word.single for word in found.words] == [True] * 6


def test_a_word_of_several_tokens_is_shown_in_pieces(checkpoint: Checkpoint) -> None:
    word = tokens(checkpoint, ["boy"]).words[0]
    assert not word.single
    assert [token.raw for token in word.tokens] == ["b", "o", "y"]


def test_an_id_beyond_the_vocabulary_is_an_error(checkpoint: Checkpoint) -> None:
    with pytest.raises(UnknownTokenError, match=str(len(planted.WORDS) - 1)):
        tokens(checkpoint, ids=[len(planted.WORDS)])


def test_the_listing_has_every_token_once_and_grep_those_that_match(checkpoint: Checkpoint) -> None:
    listing = tokens(checkpoint).listing
    assert listing is not None
    assert [token.raw for token in listing] == list(planted.WORDS)
    assert len({token.token for token in listing}) == len(planted.WORDS)
    matching = tokens(checkpoint, grep="^·[gk]").listing
    assert matching is not None
    assert [token.token for token in matching] == ["·girl", "·king"]
    assert len(tokens(checkpoint, first=4).listing or ()) == 4


def test_info_names_the_tables_and_holds_the_vocabulary_against_the_rows(checkpoint: Checkpoint) -> None:
    found = info(checkpoint)
    assert found.family == "gpt2"
    assert found.tied is True
    assert found.tables.input is not None
    assert found.tables.input.tensor == "transformer.wte.weight"
    assert found.tables.output is None
    assert [table.tensor for table in found.tables.position] == ["transformer.wpe.weight"]
    assert found.position_kinds == ("learned",)
    assert found.vocabulary is not None
    assert found.vocabulary.tokens == len(planted.WORDS)
    assert found.vocabulary.rows_without_token == 3
    assert found.vocabulary.tokens_without_row == 0


def test_info_counts_tokens_that_have_no_row(tmp_path: Path) -> None:
    short = planted.token_rows()[:20]
    found = info(open_checkpoint(planted.write_checkpoint(tmp_path, **{"transformer.wte.weight": short})))
    assert found.vocabulary is not None
    assert found.vocabulary.tokens_without_row == len(planted.WORDS) - 20
    assert found.vocabulary.rows_without_token == 0
    assert any("4 tokens have no row" in note for note in found.notes)


def test_without_a_tokenizer_ids_work_and_words_are_refused(tmp_path: Path) -> None:
    checkpoint = write_rows(tmp_path, [[1, 0], [1, 1], [0, 1]])
    assert vector(checkpoint, ["id:1", "2"]).rows[1].values == (0.0, 1.0)
    with pytest.raises(TokenError, match="girl"):
        vector(checkpoint, ["·girl"])
    with pytest.raises(TokenError, match="tokenizer"):
        embed(checkpoint, "a girl")
