"""The bigram language: its grammar, its training, and the checkpoint that is shipped."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import itertools
import json
import math
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, load_file
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "train_bigram.py"
CHECKPOINT = ROOT / "checkpoints" / "bigram"

SUBJECTS = ["cat", "dog", "fox", "bird", "baker", "farmer", "teacher", "king"]
VERBS = ["chased", "watched", "found", "liked", "followed", "saw"]
OBJECTS = ["ball", "fish", "bus", "tree", "boat", "drum"]
ENDINGS = ["quickly", "slowly", "again", "today", "night"]
ROLES = [SUBJECTS, VERBS, OBJECTS, ENDINGS]
OTHERS = ["<unk>", ".", "the", "a", "old", "red", "small", "loud", "at"]

STEPS = [0, 10, 30, 100, 300, 1000, 3000]
SNAPSHOTS = {step: CHECKPOINT / "steps" / f"step-{step:05}" for step in STEPS}

SHA256 = {
    "config.json": "71cca94afc3c3731d2a77168473a8b1238a93a345466b9f83e7b9e81b289937d",
    "tokenizer.json": "944f973e3649de373fea2e4068c1a9810fa9e9cb2b5ecaa3079a4fb311a36d15",
    "model.safetensors": "a52dd20893de90c14471e7d052d3adb70c8d9a1d7e5bd8468d13ef13178aedfb",
    "steps/step-00000/model.safetensors": "357db814dcefcfb01f2b13e7bda19cc40b7928e39945d06784ce1d8b192a8da8",
    "steps/step-00010/model.safetensors": "4fe67759984d65aa4bbcf1f54a5312dbc9ed634288f5ce0aab5c844e9f7c3ad1",
    "steps/step-00030/model.safetensors": "40b3ece03cd705bf5806b72582b73e201da28c9c1c9f486be202557a5f43a42e",
    "steps/step-00100/model.safetensors": "4e37faadaf62645ff6cfb47c40be07660efeb7df3c7e25aea824a6d9921d6c62",
    "steps/step-00300/model.safetensors": "aa8a042cb939a9c38ee18cb0e4bc369306e4590d044d6476661886266e017052",
    "steps/step-01000/model.safetensors": "b2d8da7f4a8b9ffc88c5a2d2683eb1426e145ccbde421ba1078504bb3f6474c8",
    "steps/step-03000/model.safetensors": "a52dd20893de90c14471e7d052d3adb70c8d9a1d7e5bd8468d13ef13178aedfb",
}


@pytest.fixture(scope="module")
def bigram() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_bigram", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up by its name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def ids() -> dict[str, int]:
    vocabulary = json.loads((CHECKPOINT / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return {str(token): int(token_id) for token, token_id in vocabulary.items()}


def shipped_cosines(folder: Path) -> np.ndarray:
    E = load_file(folder / "model.safetensors")["wte.weight"].astype(np.float64)
    lengths = np.sqrt((E * E).sum(axis=1))
    cosines: np.ndarray = np.einsum("id,jd->ij", E, E) / np.outer(lengths, lengths)
    return cosines


def grouped(folder: Path, ids: dict[str, int]) -> list[str]:
    """The words whose nearest tokens, as many as their role has others, are all of their role."""
    scores = shipped_cosines(folder)
    tokens = {i: token for token, i in ids.items()}
    found = []
    for role in ROLES:
        for word in role:
            others = sorted(set(tokens) - {ids[word]}, key=lambda i: -scores[ids[word], i])
            if {tokens[i] for i in others[: len(role) - 1]} == set(role) - {word}:
                found.append(word)
    return found


# ---------------------------------------------------------------- the grammar


def followers(bigram: ModuleType, token: str) -> dict[str, float]:
    """What follows a token, and how probably, exactly."""
    row = bigram.exact_bigrams()[bigram.TOKENS.index(token)]
    return {bigram.TOKENS[j]: row[j] / row.sum() for j in np.flatnonzero(row)}


def test_language_has_34_tokens_and_they_are_the_words_of_the_grammar(bigram: ModuleType) -> None:
    assert len(bigram.TOKENS) == 34
    assert sorted(bigram.TOKENS) == sorted([*itertools.chain.from_iterable(ROLES), *OTHERS])
    written = {bigram.TOKENS[i] for i in bigram.sample_text(500, np.random.default_rng(0))}
    assert written == set(bigram.TOKENS) - {"<unk>"}


def test_subjects_are_all_followed_by_the_same_six_verbs_with_the_same_probabilities(
    bigram: ModuleType,
) -> None:
    for subject in SUBJECTS:
        assert followers(bigram, subject) == pytest.approx(dict.fromkeys(VERBS, 1 / 6))


@pytest.mark.parametrize("role", [VERBS, OBJECTS, ENDINGS])
def test_words_of_a_role_are_followed_by_the_same_words_with_the_same_probabilities(
    bigram: ModuleType, role: list[str]
) -> None:
    for word in role:
        assert followers(bigram, word) == pytest.approx(followers(bigram, role[0]))


def test_articles_and_adjectives_precede_what_they_should(bigram: ModuleType) -> None:
    assert set(followers(bigram, "a")) == {"bird", "fox", "fish", "small", "loud"}
    assert set(followers(bigram, "the")) == {
        *("cat", "dog", "baker", "farmer", "teacher", "old"),
        *("ball", "tree", "red"),
    }
    for adjective, noun in {"red": "bus", "small": "boat", "loud": "drum", "old": "king"}.items():
        assert followers(bigram, adjective) == {noun: 1}


def test_sentence_may_end_in_an_ending_and_then_ends(bigram: ModuleType) -> None:
    assert set(followers(bigram, "ball")) == {"quickly", "slowly", "again", "today", "at", "."}
    assert followers(bigram, "at") == {"night": 1}
    assert followers(bigram, "night") == {".": 1}
    assert set(followers(bigram, ".")) == {"the", "a"}
    assert set(followers(bigram, "saw")) == {"the", "a"}


def test_every_sampled_sentence_is_of_the_grammar(bigram: ModuleType) -> None:
    subject = r"(?:the (?:cat|dog|baker|farmer|teacher|old king)|a (?:fox|bird))"
    verb = r"(?:chased|watched|found|liked|followed|saw)"
    thing = r"(?:the ball|a fish|the red bus|the tree|a small boat|a loud drum)"
    ending = r"(?: (?:quickly|slowly|again|today|at night))?"
    sentence = re.compile(rf"{subject} {verb} {thing}{ending}")
    text = " ".join(bigram.TOKENS[i] for i in bigram.sample_text(2000, np.random.default_rng(5)))
    assert text.endswith(" .")
    sentences = text.removesuffix(" .").split(" . ")
    assert len(sentences) == 2000
    assert [s for s in sentences if not sentence.fullmatch(s)] == []


def test_counts_are_those_of_a_plain_count(bigram: ModuleType) -> None:
    text = bigram.sample_text(300, np.random.default_rng(2))
    counts = bigram.count_bigrams(text)
    expected = Counter(itertools.pairwise([bigram.TOKENS.index("."), *text.tolist()]))
    assert {
        pair: counts[pair] for pair in zip(*map(np.ndarray.tolist, counts.nonzero()), strict=True)
    } == expected
    assert counts.sum() == len(text)


def test_sampled_text_has_the_shares_of_the_exact_bigrams(bigram: ModuleType) -> None:
    counts = bigram.count_bigrams(bigram.sample_text(20_000, np.random.default_rng(3)))
    exact = bigram.exact_bigrams()
    total = counts.sum()
    assert ((counts > 0) == (exact > 0)).all()
    # Five standard deviations of a count; a count of a text is at most as scattered as independent draws.
    assert (np.abs(counts - total * exact) <= 5 * np.sqrt(total * exact) + 1e-9).all()


# ---------------------------------------------------------------- the model


def test_cross_entropy_against_a_sum_over_the_text(bigram: ModuleType) -> None:
    text = bigram.sample_text(50, np.random.default_rng(4))
    counts = bigram.count_bigrams(text)
    total = 0.0
    for here, following in itertools.pairwise([bigram.TOKENS.index("."), *text.tolist()]):
        total -= math.log(counts[here, following] / counts[here].sum())
    assert bigram.cross_entropy(bigram.log_of_counts(counts), counts) == pytest.approx(total / len(text))


def test_pair_that_training_never_saw_costs_infinitely_much_where_it_is_held_and_nothing_elsewhere(
    bigram: ModuleType,
) -> None:
    log_p = bigram.log_of_counts(np.array([[3.0, 1.0], [0.0, 0.0]]))
    assert bigram.cross_entropy(log_p, np.array([[1.0, 1.0], [0.0, 0.0]])) == pytest.approx(
        -(math.log(3 / 4) + math.log(1 / 4)) / 2
    )
    assert bigram.cross_entropy(log_p, np.array([[1.0, 0.0], [1.0, 0.0]])) == math.inf


def test_gradient_is_that_of_finite_differences(bigram: ModuleType) -> None:
    rng = np.random.default_rng(7)
    shares = rng.random((6, 6))
    shares[2] = 0  # a token that never occurs
    shares[:, 4] = 0
    shares /= shares.sum()
    tables = [rng.standard_normal((6, 3)), rng.standard_normal((3, 6))]
    _, *gradients = bigram.loss_and_gradients(*tables, shares)
    h = 1e-6
    for table, gradient in zip(tables, gradients, strict=True):
        for place in np.ndindex(*table.shape):
            value = table[place]
            table[place] = value + h
            above, _, _ = bigram.loss_and_gradients(*tables, shares)
            table[place] = value - h
            below, _, _ = bigram.loss_and_gradients(*tables, shares)
            table[place] = value
            assert gradient[place] == pytest.approx((above - below) / (2 * h), abs=1e-8), place


def test_logits_of_any_size_have_a_softmax(bigram: ModuleType) -> None:
    log_p = bigram.log_softmax(np.array([[1e4, 1e4, -1e4], [0.0, 0.0, 0.0]]))
    assert np.exp(log_p) == pytest.approx(np.array([[0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]))


def test_short_training_from_a_fixed_seed_reaches_its_loss(bigram: ModuleType) -> None:
    shares = bigram.exact_bigrams()
    losses = {
        step: bigram.cross_entropy(tables.log_p, shares)
        for step, tables in bigram.descend(
            bigram.initial_tables(3, 0), shares, bigram.Setting(3, 300), (0, 50)
        ).items()
    }
    assert losses == pytest.approx({0: 3.524, 50: 1.631, 300: 1.178}, abs=0.002)


def test_divergence_is_noticed_and_the_gentler_setting_used(bigram: ModuleType) -> None:
    shares = bigram.exact_bigrams()
    wild, calm = bigram.Setting(1000, 100), bigram.Setting(1, 200)
    fit = bigram.fit(2, shares, 0, (wild, calm))
    assert fit.setting == calm
    assert len(fit.divergences) == 1
    assert fit.divergences[0].startswith("width 2: learning rate 1000 diverged: at step ")
    with pytest.raises(SystemExit, match="No gentler setting is left"):
        bigram.fit(2, shares, 0, (wild,))


def test_descent_that_ends_worse_than_guessing_has_diverged_though_it_is_finite(bigram: ModuleType) -> None:
    shares = bigram.exact_bigrams()
    one_leap = bigram.Setting(3000, 1)
    tables = bigram.descend(bigram.initial_tables(2, 0), shares, one_leap)[1]
    assert math.log(34) < bigram.cross_entropy(tables.log_p, shares) < math.inf
    fit = bigram.fit(2, shares, 0, (one_leap, bigram.Setting(1, 50)))
    assert fit.setting.rate == 1


def test_saved_arrays_are_read_back_by_the_library_however_they_lie_in_memory(bigram: ModuleType) -> None:
    numbers = np.arange(24.0).reshape(4, 6)
    arrays = {"plain": numbers, "turned": numbers.T, "every second": numbers[:, ::2]}
    read = load(bigram.safetensors_bytes(arrays))
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == np.float32
        np.testing.assert_array_equal(read[name], array)


def test_script_needs_numpy_alone() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SCRIPT.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or ".").split(".")[0])
    assert imported - sys.stdlib_module_names == {"numpy"}


@pytest.mark.parametrize("arguments", [["--seed", "-1"], ["--sentences", "0"], ["--held-out", "many"]])
def test_bad_argument_is_a_usage_error(
    bigram: ModuleType, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        bigram.main(arguments)
    assert stopped.value.code == 2
    assert f"argument {arguments[0]}: " in capsys.readouterr().err


# ---------------------------------------------------------------- the whole training, made again


@pytest.fixture(scope="module")
def results(bigram: ModuleType) -> Any:
    return bigram.train_all(20_000, 5_000, 401)


@pytest.fixture(scope="module")
def losses(bigram: ModuleType, results: Any) -> dict[int, tuple[float, float]]:
    return {f.tables.width: results.losses(f.tables.log_p) for f in results.fits}


def held_out_of_counts(results: Any) -> float:
    return float(results.losses(results.log_counts)[1])


def test_table_of_counts_reaches_its_losses(results: Any) -> None:
    training, held_out = results.losses(results.log_counts)
    assert training == pytest.approx(1.161, abs=5e-4)
    assert held_out == pytest.approx(1.162, abs=5e-4)


@pytest.mark.parametrize("width", [3, 4, 6, 8, 16, 34])
def test_wide_tables_are_as_good_as_the_table_of_counts(
    results: Any, losses: dict[int, tuple[float, float]], width: int
) -> None:
    assert losses[width][1] == pytest.approx(held_out_of_counts(results), abs=0.005)


def test_width_2_is_nearly_enough_and_width_1_is_far_worse(
    results: Any, losses: dict[int, tuple[float, float]]
) -> None:
    counts = held_out_of_counts(results)
    assert 0.002 < losses[2][1] - counts < 0.01
    assert losses[1][1] - counts > 0.5


@pytest.mark.parametrize(
    ("width", "training", "held_out"),
    [
        (2, 1.1664, 1.1652),
        (3, 1.1627, 1.1619),
        (4, 1.1618, 1.1620),
        (6, 1.1614, 1.1621),
        (8, 1.1615, 1.1626),
        (16, 1.1612, 1.1613),
        (34, 1.1612, 1.1615),
    ],
)
def test_losses_agree_with_the_reference(
    losses: dict[int, tuple[float, float]], width: int, training: float, held_out: float
) -> None:
    assert losses[width] == pytest.approx((training, held_out), abs=0.005)


def test_learning_rate_10_diverges_for_widths_1_and_2_alone(results: Any) -> None:
    settings = {f.tables.width: (f.setting.rate, f.setting.steps) for f in results.fits}
    bold, gentle = (10, 3000), (3, 4000)
    assert settings == {1: gentle, 2: gentle, 3: bold, 4: bold, 6: bold, 8: bold, 16: bold, 34: bold}


def test_parameters_of_every_width(results: Any) -> None:
    counted = {f.tables.width: f.tables.n_parameters for f in results.fits}
    assert counted == {1: 68, 2: 136, 3: 204, 4: 272, 6: 408, 8: 544, 16: 1088, 34: 2312}


def test_printed_table_shows_the_losses_and_says_what_diverged(
    bigram: ModuleType, losses: dict[int, tuple[float, float]], capsys: pytest.CaptureFixture[str]
) -> None:
    bigram.main([])
    printed = capsys.readouterr().out
    rows = {row.split("|")[1].strip(): row for row in printed.splitlines() if row.startswith("|")}
    for width, (training, held_out) in losses.items():
        assert f"{training:.4f} (" in rows[str(width)]
        assert f"{held_out:.4f} (" in rows[str(width)]
    assert "(1.1615)" in rows["8"]
    assert "1,156" in rows["table of counts"]
    for width in (1, 2):
        assert re.search(rf"^width {width}: learning rate 10 diverged: .*gentler setting\.$", printed, re.M)
    assert "width 3: " not in printed


def test_checkpoint_is_what_the_script_makes(bigram: ModuleType, results: Any, tmp_path: Path) -> None:
    bigram.write_checkpoint(tmp_path, results)
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    shipped = {path.relative_to(CHECKPOINT) for path in CHECKPOINT.rglob("*") if path.is_file()}
    assert made == shipped
    for name in sorted(made):
        if name.suffix == ".safetensors":
            ours, theirs = load_file(tmp_path / name), load_file(CHECKPOINT / name)
            assert ours.keys() == theirs.keys()
            for tensor in ours:  # another machine may round the last digits otherwise
                np.testing.assert_allclose(ours[tensor], theirs[tensor], atol=1e-4)
        elif name.suffix == ".json":
            assert (tmp_path / name).read_bytes() == (CHECKPOINT / name).read_bytes()


def test_figures_of_the_card_are_those_that_the_script_computes(bigram: ModuleType, results: Any) -> None:
    number = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")

    def read(card: str) -> tuple[list[str], list[float]]:
        # Where exactly a descent diverges is a matter of rounding.
        lines = [line for line in card.splitlines() if "diverged: at step" not in line]
        figures = [float(f.replace(",", "")) for line in lines for f in number.findall(line)]
        return [re.sub(r"[ -]+", " ", number.sub("#", line)) for line in lines], figures

    text, figures = read((CHECKPOINT / "README.md").read_text(encoding="utf-8"))
    made_text, made_figures = read(bigram.card(results))
    assert text == made_text
    assert figures == pytest.approx(made_figures, abs=0.002)


# ---------------------------------------------------------------- what is shipped


def test_shipped_files_are_the_ones_that_were_made() -> None:
    hashes = {
        path.relative_to(CHECKPOINT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in CHECKPOINT.rglob("*")
        if path.is_file() and path.name != "README.md"
    }
    copies = {
        f"steps/step-{step:05}/{name}": SHA256[name]
        for step in STEPS
        for name in ("config.json", "tokenizer.json")
    }
    assert hashes == SHA256 | copies


@pytest.mark.parametrize("folder", [CHECKPOINT, *SNAPSHOTS.values()], ids=lambda path: path.name)
def test_shapes_and_counts(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    assert {name: t.shape for name, t in tensors.items()} == {
        "wte.weight": (34, 8),
        "lm_head.weight": (34, 8),
    }
    assert {t.dtype for t in tensors.values()} == {np.dtype(np.float32)}
    assert sum(t.size for t in tensors.values()) == 544
    assert all(np.isfinite(t).all() for t in tensors.values())


def test_config_says_what_the_tables_are() -> None:
    config = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "bigram"
    assert (config["vocab_size"], config["hidden_size"]) == (34, 8)
    assert config["tie_word_embeddings"] is False


def test_tokenizer_cuts_sentences_into_words_of_the_language(bigram: ModuleType) -> None:
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    assert tokenizer.get_vocab_size(with_added_tokens=True) == 34
    assert tokenizer.get_vocab() == {token: i for i, token in enumerate(bigram.TOKENS)}
    cut = tokenizer.encode("the old king saw a small boat at night.")
    assert cut.tokens == ["the", "old", "king", "saw", "a", "small", "boat", "at", "night", "."]
    assert [bigram.TOKENS[i] for i in cut.ids] == cut.tokens
    assert tokenizer.encode("the zebra saw <unk>").tokens == ["the", "<unk>", "saw", "<unk>"]


def test_lm_head_is_the_output_table(bigram: ModuleType, ids: dict[str, int]) -> None:
    tensors = load_file(CHECKPOINT / "model.safetensors")
    logits = np.einsum(
        "xd,yd->xy", tensors["wte.weight"].astype(float), tensors["lm_head.weight"].astype(float)
    )
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    exact = bigram.exact_bigrams()
    seen = [i for token, i in ids.items() if token != "<unk>"]
    np.testing.assert_allclose(p[seen], exact[seen] / exact[seen].sum(axis=1, keepdims=True), atol=0.05)
    held_out = -(exact[exact > 0] * np.log(p[exact > 0])).sum()
    entropy = -(
        exact[exact > 0] * np.log((exact / exact.sum(axis=1, keepdims=True).clip(1e-300))[exact > 0])
    ).sum()
    assert entropy < held_out < entropy + 0.005


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cat", "dog"),
        ("cat", "fox"),
        ("cat", "baker"),
        ("chased", "watched"),
        ("chased", "found"),
        ("quickly", "slowly"),
        ("ball", "fish"),
    ],
)
def test_words_of_one_role_are_alike(ids: dict[str, int], one: str, other: str) -> None:
    assert shipped_cosines(CHECKPOINT)[ids[one], ids[other]] > 0.95


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "the"), ("red", "small"), ("cat", "chased"), ("quickly", "cat"), ("cat", "ball")],
)
def test_words_of_different_roles_are_not(ids: dict[str, int], one: str, other: str) -> None:
    assert abs(shipped_cosines(CHECKPOINT)[ids[one], ids[other]]) < 0.3


def test_nearest_to_every_word_are_the_others_of_its_role(ids: dict[str, int]) -> None:
    assert grouped(CHECKPOINT, ids) == [*SUBJECTS, *VERBS, *OBJECTS, *ENDINGS]


def test_groups_form_between_steps_100_and_300(ids: dict[str, int]) -> None:
    n = {step: len(grouped(folder, ids)) for step, folder in SNAPSHOTS.items()}
    assert n == {0: 0, 10: 0, 30: 0, 100: 5, 300: 25, 1000: 25, 3000: 25}
    early = shipped_cosines(SNAPSHOTS[100])
    assert early[ids["cat"], ids["dog"]] < 0.5
    assert early[ids["ball"], ids["fish"]] < 0.9


def test_snapshots_go_from_chance_to_the_shipped_tables(bigram: ModuleType) -> None:
    first = load_file(SNAPSHOTS[0] / "model.safetensors")
    assert np.std(np.concatenate([t.ravel() for t in first.values()])) == pytest.approx(0.1, abs=0.01)
    last = (SNAPSHOTS[3000] / "model.safetensors").read_bytes()
    assert last == (CHECKPOINT / "model.safetensors").read_bytes()


def test_row_of_the_token_that_never_occurs_stays_as_it_began(ids: dict[str, int]) -> None:
    rows = [load_file(f / "model.safetensors")["wte.weight"][ids["<unk>"]] for f in SNAPSHOTS.values()]
    for row in rows[1:]:
        np.testing.assert_array_equal(row, rows[0])
    assert np.linalg.norm(rows[0]) > 0
