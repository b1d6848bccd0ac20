"""The training script, on a tiny corpus: it learns, resumes as if never stopped, and writes what it says."""

from __future__ import annotations

import importlib.util
import json
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parent.parent
torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "train_story_under_test", ROOT / "scripts" / "train_story.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BATCH", 4)
    monkeypatch.setattr(module, "EVALUATE_EVERY", 5)
    monkeypatch.setattr(module, "WARM_UP_TOKENS", 2_000)
    monkeypatch.setattr(module, "HELD_OUT_EVERY", 5)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield module
    torch.set_num_threads(threads)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    animals = ("cat", "dog", "fox", "bird")
    stories = [
        " ".join(
            f"The {animals[random.integers(4)]} saw a {animals[random.integers(4)]} and ran home."
            for _ in range(12)
        )
        for _ in range(120)
    ]
    path = tmp_path / "stories.txt"
    path.write_text("\n<|endoftext|>\n".join(stories), encoding="utf-8")
    return path


def run(script: ModuleType, corpus: Path, out: Path, steps: int, resume: bool = False) -> None:
    script.train(corpus, out, steps * 4 * 128, float("inf"), seed=3, resume=resume, compiled=False)


def test_a_short_run_learns_and_writes_a_gpt2_checkpoint(
    script: ModuleType, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(script, corpus, out, 30)
    lines = (out / "log.csv").read_text(encoding="utf-8").splitlines()
    losses = [float(line.split(",")[3]) for line in lines[1:]]
    # A text of four animals and eight other words: from log(4096) = 8.3 to little more than the choice of animals.
    assert losses[-1] < 3.0 < losses[0]
    tensors = load_file(out / "model.safetensors")
    assert sum(tensor.size for tensor in tensors.values()) == 1_334_016
    assert tensors["wte.weight"].shape == (4096, 128)
    assert tensors["wpe.weight"].shape == (128, 128)
    assert tensors["h.3.attn.c_attn.weight"].shape == (128, 384)
    assert tensors["h.0.mlp.c_proj.weight"].shape == (512, 128)
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["n_positions"], config["vocab_size"]) == ("gpt2", 128, 4096)
    steps = sorted(folder.name for folder in (out / "steps").iterdir())
    assert steps[0] == "step-00000"
    assert steps[-1] == "step-00030"
    snapshot = load_file(out / "steps" / "step-00030" / "model.safetensors")
    assert {(name, tensor.dtype.name) for name, tensor in snapshot.items()} == {
        ("wte.weight", "float16"),
        ("wpe.weight", "float16"),
    }


def test_a_training_that_was_stopped_ends_as_one_that_was_not(
    script: ModuleType, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    run(script, corpus, whole, 20)

    class StoppedError(Exception):
        pass

    calls = 0
    loss_of = script.loss_of

    def stop_in_the_twelfth_step(*arguments: object) -> object:
        nonlocal calls
        if torch.is_grad_enabled():
            calls += 1
            if calls == 12:
                raise StoppedError
        return loss_of(*arguments)

    monkeypatch.setattr(script, "loss_of", stop_in_the_twelfth_step)
    with pytest.raises(StoppedError):
        run(script, corpus, parted, 20)
    monkeypatch.setattr(script, "loss_of", loss_of)
    run(script, corpus, parted, 20, resume=True)
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (parted, whole))
    for name, tensor in theirs.items():
        np.testing.assert_allclose(ours[name], tensor, rtol=1e-5, atol=1e-6, err_msg=name)


def test_windows_cover_the_text_once_an_epoch(script: ModuleType) -> None:
    starts = script.epoch_windows(10_000, 3, seed=1)
    ordered = np.sort(starts)
    assert (np.diff(ordered) == 128).all()
    assert ordered[0] < 128
    assert ordered[-1] + 129 <= 10_000 < ordered[-1] + 3 * 128
    assert not np.array_equal(starts, script.epoch_windows(10_000, 4, seed=1))


def test_the_learning_rate_warms_up_and_has_decayed_at_the_end(script: ModuleType) -> None:
    assert script.learning_rate(0.0, 20) == pytest.approx(2e-3 * 0.01)
    assert script.learning_rate(0.5, 10**6) == pytest.approx(2e-3 * (0.02 + 0.98 * 0.5))
    assert script.learning_rate(1.0, 10**6) == pytest.approx(2e-3 * 0.02)


def test_snapshots_are_log_spaced_from_nothing_to_the_end(script: ModuleType) -> None:
    steps = script.snapshot_steps(8000)
    assert steps[0] == 0
    assert steps[-1] == 8000
    assert len(steps) == 8
    ratios = [b / a for a, b in pairwise(steps[1:])]
    assert max(ratios) / min(ratios) < 1.2
