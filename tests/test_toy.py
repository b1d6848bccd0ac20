"""The shipped story model: what is in its files, and the relations that lessons are taught with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from inspect_embed import neighbors, open_checkpoint, similarity
from inspect_embed.checkpoint import Checkpoint

TOY = Path(__file__).resolve().parent.parent / "checkpoints" / "toy"


@pytest.fixture(scope="module")
def toy() -> Checkpoint:
    return open_checkpoint(TOY)


def cosine(checkpoint: Checkpoint, a: str, b: str) -> float:
    return similarity(checkpoint, [a, b]).pairs[0].cosine


def nearest(checkpoint: Checkpoint, word: str, k: int) -> list[str]:
    return [neighbor.token for neighbor in neighbors(checkpoint, [word], k=k).results[0].neighbors]


def test_the_tensors_are_those_of_gpt2_without_buffers() -> None:
    tensors = load_file(TOY / "model.safetensors")
    block = {
        "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
        "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias",
    }  # fmt: skip
    expected = {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"}
    expected |= {f"h.{layer}.{name}" for layer in range(4) for name in block}
    assert set(tensors) == expected
    assert {tensor.dtype.name for tensor in tensors.values()} == {"float32"}
    assert sum(tensor.size for tensor in tensors.values()) == 1_334_016
    assert all(np.isfinite(tensor).all() for tensor in tensors.values())


def test_the_files_are_those_that_the_card_describes() -> None:
    card = (TOY / "README.md").read_text(encoding="utf-8")
    for name in ("model.safetensors", "tokenizer.json"):
        assert hashlib.sha256((TOY / name).read_bytes()).hexdigest() in card, name


def test_space_led_words_are_tokens_of_their_own(toy: Checkpoint) -> None:
    vocabulary = toy.vocabulary
    assert vocabulary is not None
    assert vocabulary.n_tokens == 4096
    assert vocabulary.model == "byte-level BPE"
    for word in ("·girl", "·boy", "·red", "·ran", "·Lily", "Lily", "·three", "·3", "·happy", "·glad", "·sad"):
        assert vocabulary.find(word).id is not None, word


def test_girls_and_boys_are_near_each_other(toy: Checkpoint) -> None:
    assert nearest(toy, "·girl", 1) == ["·boy"]
    assert nearest(toy, "·boy", 1) == ["·girl"]
    assert cosine(toy, "·girl", "·boy") > 0.6


def test_red_is_near_the_colours(toy: Checkpoint) -> None:
    assert {"·blue", "·green", "·yellow"} <= set(nearest(toy, "·red", 5))


def test_ran_is_near_other_verbs_of_motion_in_the_past(toy: Checkpoint) -> None:
    motion = {
        "·walked",
        "·rushed",
        "·swam",
        "·run",
        "·went",
        "·hopped",
        "·jumped",
        "·flew",
        "·raced",
        "·climbed",
        "·skipped",
    }
    assert len(motion & set(nearest(toy, "·ran", 8))) >= 4


def test_one_name_with_and_without_its_space_is_alike(toy: Checkpoint) -> None:
    assert cosine(toy, "·Lily", "Lily") > cosine(toy, "·Lily", "·table") + 0.3


def test_neighbouring_places_are_alike_and_distant_ones_are_not(toy: Checkpoint) -> None:
    P = toy.table("position").rows(range(128)).astype(np.float64)
    P /= np.linalg.norm(P, axis=1, keepdims=True)
    # Places count from 1: place p is row p - 1.
    assert P[1] @ P[2] > 0.9
    assert P[1] @ P[50] < 0.3


def test_snapshots_lead_from_nothing_to_the_trained_tables(toy: Checkpoint) -> None:
    folders = sorted((TOY / "steps").iterdir())
    assert len(folders) >= 7
    assert folders[0].name == "step-00000"
    series = [cosine(open_checkpoint(folder), "·girl", "·boy") for folder in folders]
    assert abs(series[0]) < 0.3
    assert series[-1] > 0.6
    for folder in folders:
        tables = load_file(folder / "model.safetensors")
        assert {(name, t.shape, t.dtype.name) for name, t in tables.items()} == {
            ("wte.weight", (4096, 128), "float16"),
            ("wpe.weight", (128, 128), "float16"),
        }


def test_the_repository_stays_small() -> None:
    root = TOY.parent.parent
    shipped = [path for path in (root / "checkpoints").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in shipped) < 30e6


def test_transformers_loads_it_and_it_writes_stories() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model, report = transformers.GPT2LMHeadModel.from_pretrained(TOY, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert model.num_parameters() == 1_334_016
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOY / "tokenizer.json"))
    start = tokenizer("Once upon a time, there was a little", return_tensors="pt")
    with torch.no_grad():
        out = model.generate(**start, max_new_tokens=30, do_sample=False, pad_token_id=0)
    story = tokenizer.decode(out[0])
    words = story.split()
    assert len(set(words)) > 15  # it tells something, and not one word again and again
    assert any(word.strip(".,") in ("girl", "boy", "bird", "dog", "cat", "bunny") for word in words)
    config = json.loads((TOY / "config.json").read_text(encoding="utf-8"))
    assert config["tie_word_embeddings"] is True
