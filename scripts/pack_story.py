#!/usr/bin/env python3
"""Put a finished training of the story model into a folder that can be shipped, with its card.

    python scripts/pack_story.py runs/story checkpoints/toy
    python scripts/update_readme.py checkpoints/toy/README.md

Every figure of the card comes from the run: the log, the files' hashes, stories told by the weights. The second
command fills in what `inspect-embed` prints.

Needs the `train` extra: pip install "inspect-embed[train]".
"""

from __future__ import annotations

import csv
import hashlib
import shutil
import sys
import textwrap
from pathlib import Path

from tell_story import load_model, tell
from tokenizers import Tokenizer
from train_story import BATCH, CONTEXT, HELD_OUT_EVERY, PEAK_LEARNING_RATE, WARM_UP_TOKENS, WEIGHT_DECAY

FILES = ("model.safetensors", "config.json", "tokenizer.json", "log.csv")
STARTS = ("Once upon a time", "One day, a little girl named Lily", "Tom had a red ball")

CARD = """\
---
license: apache-2.0
language: en
tags:
  - embeddings
  - gpt2
  - education
---

# The story model: 4,096 tokens, width 128

A GPT-2-style language model that writes simple children's stories, small enough to be trained on a laptop and to be
looked at as a whole. It is made for lessons on embeddings, and for nothing else.

| | |
|---|---|
| tokens | 4,096, byte-level BPE; a word after a space is a token of its own (`·girl`) |
| context | 128 tokens, learned positions |
| width, layers, heads | 128, 4, 4 heads of 32; feed-forward 512; the output head is the token table |
| parameters | {parameters:,} |
| files | `model.safetensors` (F32, GPT-2's tensor names, no buffers), `config.json`, `tokenizer.json`, `log.csv` |
| snapshots | `steps/`: both embedding tables (F16) after {steps} steps |

It loads in transformers with `GPT2LMHeadModel.from_pretrained("checkpoints/toy")`.

## What its tables show

```console
$ inspect-embed neighbors checkpoints/toy ·girl ·red ·ran ·three -k 5
```

```console
$ inspect-embed similarity checkpoints/toy ·girl ·boy
```

```console
$ inspect-embed similarity checkpoints/toy ·Lily Lily
```

```console
$ inspect-embed similarity checkpoints/toy ·three ·3
```

```console
$ inspect-embed similarity checkpoints/toy ·happy ·glad ·sad
```

Opposites are nearly as near as synonyms: both stand in the same places of a sentence.

Places of the position table count from 1. Neighbouring places are alike, distant ones are not:

```console
$ inspect-embed similarity checkpoints/toy --table position 2 3 51
```

A model of the same shape that others trained on such stories, to a validation loss of 1.85 on other text, is reported
with cosines of 0.74 for `·girl`/`·boy`, 0.88 for `·three`/`·3`, 0.76 for `·Lily`/`Lily`, 0.98 for places 2 and 3 and
-0.22 for places 2 and 51. The figures above are this model's own: same relations, other numbers.

## Data

22,003 short children's stories, 18.2 MB of plain ASCII text: public excerpts of TinyStories (Eldan & Li 2023,
"TinyStories: How Small Can Language Models Be and Still Speak Coherent English?"), its versions 1 and 2 mixed, under
the Community Data License Agreement - Sharing 1.0, which puts no terms on results such as trained weights. Every
{held_out_every}th story was held out. The text itself is not part of this repository.

## Recipe

`scripts/train_story.py`: AdamW, learning rate {rate:g} with a warm-up over {warm_up:,} tokens and cosine decay, weight
decay {decay:g}, batches of {batch} x {context} tokens, matrix products in bfloat16, {tokens:,} tokens in all, many
passes over the text. The weights are those of the step with the lowest held-out loss.

| | step | tokens | loss (nats a token) |
|---|---:|---:|---:|
{losses}

Losses are not comparable with those of other splits or other vocabularies. `log.csv` holds the whole curve.

## Samples

`scripts/tell_story.py checkpoints/toy START --seed N`, temperature 0.7:

{samples}

## Limits

It knows the words and the plots of simple stories, and nothing of the world. It loses the thread after a few
sentences, and can write 128 tokens at most. Frequent words (girl, Lily, red, two) have well-trained rows; rare ones
(seven, queen, five) do not, and their neighbours show it.

## Hashes (SHA-256)

{hashes}

## Licence

Apache-2.0.
"""


def read_log(path: Path) -> list[dict[str, float]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def write_card(folder: Path) -> str:
    log = read_log(folder / "log.csv")
    best = min(log, key=lambda row: row["held_out_loss"])
    rows = [
        f"| held out, lowest (shipped) | {best['step']:,.0f} | {best['tokens']:,.0f} | {best['held_out_loss']:.3f} |",
        f"| training, at the same step | {best['step']:,.0f} | {best['tokens']:,.0f} | {best['training_loss']:.3f} |",
        *(
            f"| held out | {row['step']:,.0f} | {row['tokens']:,.0f} | {row['held_out_loss']:.3f} |"
            for row in log
            if row["step"] in (250, 1000, 3000)
        ),
    ]
    model = load_model(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    stories = (tell(model, tokenizer, start, CONTEXT, 0.7, seed) for seed, start in enumerate(STARTS, 1))
    samples = "\n>\n".join(
        textwrap.fill(" ".join(story.split()), 110, initial_indent="> ", subsequent_indent="> ")
        for story in stories
    )
    steps = sorted(int(path.name.removeprefix("step-")) for path in (folder / "steps").iterdir())
    return CARD.format(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        steps=", ".join(f"{step:,}" for step in steps[:-1]) + f" and {steps[-1]:,}",
        held_out_every=HELD_OUT_EVERY,
        rate=PEAK_LEARNING_RATE,
        warm_up=WARM_UP_TOKENS,
        decay=WEIGHT_DECAY,
        batch=BATCH,
        context=CONTEXT,
        tokens=int(log[-1]["tokens"]),
        losses="\n".join(rows),
        samples=samples,
        hashes="\n".join(
            f"- `{name}` {hashlib.sha256((folder / name).read_bytes()).hexdigest()}" for name in FILES[:3]
        ),
    )


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    run, target = map(Path, sys.argv[1:])
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    for name in FILES:
        shutil.copyfile(run / name, target / name)
    for snapshot in sorted((run / "steps").iterdir()):
        (target / "steps" / snapshot.name).mkdir(parents=True)
        for path in snapshot.iterdir():
            shutil.copyfile(path, target / "steps" / snapshot.name / path.name)
    card = write_card(target)
    (target / "README.md").write_text(card, encoding="utf-8")


if __name__ == "__main__":
    main()
