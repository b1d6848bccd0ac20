#!/usr/bin/env python3
"""Let the story model go on from a few words.

    python scripts/tell_story.py checkpoints/toy "Once upon a time" --seed 1

Needs the `train` extra: pip install "inspect-embed[train]".
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from train_story import CONTEXT, END_OF_TEXT, StoryModel


def load_model(folder: Path) -> StoryModel:
    model = StoryModel()
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval()


@torch.no_grad()
def tell(
    model: StoryModel, tokenizer: Tokenizer, start: str, length: int, temperature: float, seed: int
) -> str:
    """The start and what the model writes after it, up to the end of the story or `length` tokens in all.

    Each token is drawn from softmax(logits / temperature); temperature 0 takes the likeliest.
    """
    torch.manual_seed(seed)
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids = tokenizer.encode(start).ids
    while len(ids) < min(length, CONTEXT):
        logits = model(torch.tensor([ids]))[0, -1]
        if temperature == 0:
            following = int(logits.argmax())
        else:
            following = int(torch.multinomial(torch.softmax(logits / temperature, dim=0), 1))
        if following == end:
            break
        ids.append(following)
    return tokenizer.decode(ids)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("start")
    parser.add_argument("--length", type=int, default=CONTEXT, help=f"tokens in all, at most {CONTEXT}")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(arguments.checkpoint / "tokenizer.json"))
    model = load_model(arguments.checkpoint)
    print(tell(model, tokenizer, arguments.start, arguments.length, arguments.temperature, arguments.seed))


if __name__ == "__main__":
    main()
