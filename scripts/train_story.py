#!/usr/bin/env python3
"""Train the story model: a GPT-2-style model of 4,096 tokens, small enough for a laptop.

    python scripts/train_story.py stories.txt.xz --out runs/story --tokens 60e6

CORPUS is a text file (plain, .gz or .xz) whose stories are parted by lines `<|endoftext|>`. OUT receives:

    tokenizer.json      byte-level BPE, trained on the training part of the corpus
    config.json         as the hub's GPT-2 writes it
    model.safetensors   the weights with the lowest held-out loss so far (F32, the hub's GPT-2 names)
    steps/step-NNNNN/   snapshots of the two embedding tables (F16), log-spaced from step 0
    log.csv             step, tokens seen, training loss, held-out loss
    state.pt            what `--resume` goes on from (not part of the model)

The training ends at `--tokens` or after `--seconds` of training, whichever comes first; the learning rate
follows the larger of the two fractions, so that it has always decayed when the training ends. With a token
budget alone the run depends on the seed and the machine's arithmetic only.

Needs the `train` extra: pip install "inspect-embed[train]".
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import lzma
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn

END_OF_TEXT = "<|endoftext|>"
VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS, INNER = 4096, 128, 128, 4, 4, 512
BATCH = 64
PEAK_LEARNING_RATE, FINAL_FRACTION, WARM_UP_TOKENS = 2e-3, 0.02, 1_000_000
WEIGHT_DECAY, BETAS, CLIP = 0.1, (0.9, 0.99), 1.0
HELD_OUT_EVERY = 50  # one story in fifty is never trained on
EVALUATE_EVERY = 250  # steps; what can be resumed is saved then, too


class Attention(nn.Module):
    """Causal self-attention with GPT-2's layout: one (in, 3 x width) matrix for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = InOutLinear(WIDTH, 3 * WIDTH)
        self.c_proj = InOutLinear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.c_attn(x).split(WIDTH, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.c_proj(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return out


class InOutLinear(nn.Module):
    """A linear map whose weight is stored (in, out), as GPT-2's checkpoints hold it."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.t(), self.bias)


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_fc = InOutLinear(WIDTH, INNER)
        self.c_proj = InOutLinear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))
        return out


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class StoryModel(nn.Module):
    """Token row + position row, four blocks, a norm; the output head is the token table itself."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # GPT-2 shrinks what each block adds to the residual stream by the root of their number.
                shrink = math.sqrt(2 * LAYERS) if name.endswith("c_proj.weight") else 1.0
                nn.init.normal_(parameter, std=0.02 / shrink)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def read_stories(path: Path) -> list[str]:
    opener = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as file:
        stories = [story.strip() for story in file.read().split(f"\n{END_OF_TEXT}")]
    return [story for story in stories if story]


def train_tokenizer(stories: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(stories, trainer)
    return tokenizer


def encode_stories(tokenizer: Tokenizer, stories: list[str]) -> np.ndarray:
    """All stories as one row of ids (int32), each closed by the end-of-text token."""
    end = tokenizer.token_to_id(END_OF_TEXT)
    parts = [np.array([*encoding.ids, end], np.int32) for encoding in tokenizer.encode_batch(stories)]
    return np.concatenate(parts)


def epoch_windows(n_tokens: int, epoch: int, seed: int) -> np.ndarray:
    """Starts of windows of CONTEXT + 1 tokens that cover the text once, from a new offset each epoch."""
    random = np.random.default_rng([seed, epoch])
    starts = np.arange(random.integers(CONTEXT), n_tokens - CONTEXT - 1, CONTEXT)
    return random.permutation(starts)


def cut_batch(ids: np.ndarray, starts: np.ndarray) -> tuple[Tensor, Tensor]:
    windows = torch.from_numpy(ids[starts[:, None] + np.arange(CONTEXT + 1)].astype(np.int64))
    return windows[:, :-1], windows[:, 1:]


def loss_of(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats; matrix products in bfloat16, the loss itself in float32."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def held_out_loss(loss_on: Callable[[Tensor, Tensor], Tensor], ids: np.ndarray) -> float:
    """Mean cross-entropy (nats a token) over the held-out text, cut into windows of CONTEXT tokens."""
    starts = np.arange(0, len(ids) - CONTEXT - 1, CONTEXT)
    starts = starts[: len(starts) // BATCH * BATCH]  # whole batches, so that a compiled model keeps one shape
    total = 0.0
    for first in range(0, len(starts), BATCH):
        some = starts[first : first + BATCH]
        total += loss_on(*cut_batch(ids, some)).item() * len(some)
    return total / len(starts)


def snapshot_steps(n_steps: int, count: int = 8) -> list[int]:
    """Step 0, then log-spaced steps up to the last one."""
    spaced = np.geomspace(max(n_steps / 1000, 1), n_steps, count - 1)
    return sorted({0, *(round(step) for step in spaced)})


def write_then_rename(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(path.name + ".part")
    write(temporary)
    os.replace(temporary, path)


def save_config(folder: Path, end: int) -> None:
    config = {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.0,
        "bos_token_id": end,
        "embd_pdrop": 0.0,
        "eos_token_id": end,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-5,
        "model_type": "gpt2",
        "n_embd": WIDTH,
        "n_head": HEADS,
        "n_inner": INNER,
        "n_layer": LAYERS,
        "n_positions": CONTEXT,
        "resid_pdrop": 0.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": VOCABULARY,
    }
    text = json.dumps(config, indent=2) + "\n"
    write_then_rename(folder / "config.json", lambda part: part.write_text(text, encoding="utf-8"))


def save_weights(path: Path, model: StoryModel) -> None:
    tensors = {name: tensor.detach().float().contiguous() for name, tensor in model.state_dict().items()}
    write_then_rename(path, lambda part: save_file(tensors, part, metadata={"format": "pt"}))


def save_snapshot(out: Path, step: int, model: StoryModel, end: int) -> None:
    """The two embedding tables as they are at this step, in half precision, with config and tokenizer."""
    folder = out / "steps" / f"step-{step:05d}"
    folder.mkdir(parents=True, exist_ok=True)
    tables = {f"{name}.weight": getattr(model, name).weight.detach().half() for name in ("wte", "wpe")}
    write_then_rename(
        folder / "model.safetensors", lambda part: save_file(tables, part, metadata={"format": "pt"})
    )
    save_config(folder, end)
    (folder / "tokenizer.json").write_bytes((out / "tokenizer.json").read_bytes())


def learning_rate(fraction: float, tokens: int) -> float:
    """Linear warm-up over the first tokens, then a cosine from the peak to FINAL_FRACTION of it."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(fraction, 1.0)))
    decayed = FINAL_FRACTION + (1 - FINAL_FRACTION) * cosine
    return PEAK_LEARNING_RATE * min(1.0, tokens / WARM_UP_TOKENS) * decayed


def build_optimizer(model: nn.Module) -> torch.optim.AdamW:
    decayed = [p for p in model.parameters() if p.dim() == 2]
    free = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": free, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=PEAK_LEARNING_RATE, betas=BETAS)


@dataclass
class Progress:
    """Where a training stands: what it goes on from, beside weights and optimizer."""

    step: int = 0
    epoch: int = 0
    place: int = 0
    spent: float = 0.0
    best: float = math.inf


def prepare_text(corpus: Path, out: Path, resume: bool) -> tuple[Tokenizer, np.ndarray, np.ndarray]:
    """The tokenizer, the ids to train on, the ids held out."""
    stories = read_stories(corpus)
    held_out = stories[::HELD_OUT_EVERY]
    trained = [story for i, story in enumerate(stories) if i % HELD_OUT_EVERY]
    path = out / "tokenizer.json"
    if resume:
        tokenizer = Tokenizer.from_file(str(path))
    else:
        tokenizer = train_tokenizer(trained)
        write_then_rename(path, lambda part: tokenizer.save(str(part)))
    ids, held_ids = encode_stories(tokenizer, trained), encode_stories(tokenizer, held_out)
    print(
        f"{len(trained):,} stories, {len(ids):,} tokens; held out {len(held_out):,}, {len(held_ids):,}",
        flush=True,
    )
    return tokenizer, ids, held_ids


def load_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state.pop("model"))
    optimizer.load_state_dict(state.pop("optimizer"))
    return Progress(**state)


def save_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, at: Progress) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **asdict(at)}
    write_then_rename(path, lambda part: torch.save(state, part))


def train(
    corpus: Path, out: Path, n_tokens: int, seconds: float, seed: int, resume: bool, compiled: bool
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    state_path = out / "state.pt"
    resume = resume and state_path.exists()
    tokenizer, ids, held_ids = prepare_text(corpus, out, resume)
    end = tokenizer.token_to_id(END_OF_TEXT)
    torch.manual_seed(seed)
    model = StoryModel()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    optimizer = build_optimizer(model)
    loss_on: Callable[[Tensor, Tensor], Tensor] = partial(loss_of, model)
    if compiled:
        loss_on = torch.compile(loss_on)
    tokens_per_step = BATCH * CONTEXT
    total_steps = math.ceil(n_tokens / tokens_per_step)
    snapshots = set(snapshot_steps(total_steps))
    log = out / "log.csv"
    if resume:
        at = load_state(state_path, model, optimizer)
    else:
        at = Progress()
        save_config(out, end)
        save_snapshot(out, 0, model, end)
        log.write_text("step,tokens,training_loss,held_out_loss\n", encoding="utf-8")

    evaluated = at.step  # nothing has been learned since
    recent: list[float] = []
    windows = epoch_windows(len(ids), at.epoch, seed)
    while True:
        started = time.monotonic()
        fraction = max(at.step / total_steps, at.spent / seconds)
        done = fraction >= 1.0
        if at.step != evaluated and (done or at.step % EVALUATE_EVERY == 0):
            evaluated = at.step
            loss, held_out = float(np.mean(recent)), held_out_loss(loss_on, held_ids)
            recent.clear()
            with log.open("a", encoding="utf-8", newline="") as file:
                csv.writer(file).writerow(
                    [at.step, at.step * tokens_per_step, f"{loss:.4f}", f"{held_out:.4f}"]
                )
            print(
                f"step {at.step:,} of {total_steps:,}  tokens {at.step * tokens_per_step:,}  "
                f"training {loss:.3f}  held out {held_out:.3f}  {at.spent:,.0f} s",
                flush=True,
            )
            if held_out < at.best:
                at.best = held_out
                save_weights(out / "model.safetensors", model)
            save_state(state_path, model, optimizer, at)
        if done:
            save_snapshot(out, at.step, model, end)
            return
        if at.place + BATCH > len(windows):
            at.epoch, at.place = at.epoch + 1, 0
            windows = epoch_windows(len(ids), at.epoch, seed)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(fraction, (at.step + 1) * tokens_per_step)
        batch_loss = loss_on(*cut_batch(ids, windows[at.place : at.place + BATCH]))
        optimizer.zero_grad(set_to_none=True)
        batch_loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        recent.append(batch_loss.item())
        at.step, at.place = at.step + 1, at.place + BATCH
        at.spent += time.monotonic() - started
        if at.step in snapshots:
            save_snapshot(out, at.step, model, end)
        if sys.stderr.isatty():
            progress = f"step {at.step:,}/{total_steps:,}  loss {recent[-1]:.3f}"
            print(f"\r{progress} ", end="", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder that receives the model")
    parser.add_argument("--tokens", type=float, default=60e6, help="tokens to train on (default 60e6)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="training time after which to end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from OUT/state.pt where there is one")
    parser.add_argument(
        "--compile", action="store_true", help="compile the model first (needs a C++ compiler)"
    )
    arguments = parser.parse_args()
    train(
        arguments.corpus,
        arguments.out,
        int(arguments.tokens),
        arguments.seconds,
        arguments.seed,
        arguments.resume,
        arguments.compile,
    )


if __name__ == "__main__":
    main()
