"""Train the bigram language: 34 tokens, a grammar, and a factored model of which token follows which.

    python scripts/train_bigram.py                            the table of losses, width by width
    python scripts/train_bigram.py --out checkpoints/bigram   and the checkpoint of width 8, with its card

The model is logits = E[x] @ U, with E (V, d) and U (d, V): a row of E for the token that is there, a column of U
for each token that may come next. It is trained by plain gradient descent. A bigram model sees a text only
through how often each token follows each other one, so every step works on the (V, V) table of those counts:
the loss and the gradient are those of the whole text, at the price of a 34 x 34 matrix.

Needs numpy, and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

# ---------------------------------------------------------------- the grammar


@dataclass(frozen=True)
class Slot:
    """What may stand at one place of a sentence, and how often each phrase does."""

    name: str
    phrases: tuple[tuple[str, ...], ...]
    probabilities: tuple[float, ...]


def evenly(name: str, *phrases: str) -> Slot:
    """A slot whose phrases are all as likely as each other."""
    return Slot(name, tuple(tuple(p.split()) for p in phrases), (1 / len(phrases),) * len(phrases))


# The grammar's one free probability. It sets the entropy of the language: at 0.76 the best that a bigram model
# can do is 1.162 nats per token.
ENDING_PROBABILITY = 0.76
ENDINGS = ("quickly", "slowly", "again", "today", "at night")

SENTENCE = (
    evenly(
        "subject",
        "the cat",
        "the dog",
        "a fox",
        "a bird",
        "the baker",
        "the farmer",
        "the teacher",
        "the old king",
    ),
    evenly("verb", "chased", "watched", "found", "liked", "followed", "saw"),
    evenly("object", "the ball", "a fish", "the red bus", "the tree", "a small boat", "a loud drum"),
    Slot(
        "ending",
        ((), *(tuple(ending.split()) for ending in ENDINGS)),
        (1 - ENDING_PROBABILITY, *(ENDING_PROBABILITY / len(ENDINGS),) * len(ENDINGS)),
    ),
    evenly("stop", "."),
)

UNKNOWN = "<unk>"
STOP = "."
# A role is a set of words that the same words follow.
ROLES: dict[str, tuple[str, ...]] = {
    "subject": ("cat", "dog", "fox", "bird", "baker", "farmer", "teacher", "king"),
    "verb": ("chased", "watched", "found", "liked", "followed", "saw"),
    "object": ("ball", "fish", "bus", "tree", "boat", "drum"),
    "ending": ("quickly", "slowly", "again", "today", "night"),
}
ROLE_OF: dict[str, str] = {token: role for role, tokens in ROLES.items() for token in tokens}
# Words that share what follows them with no other word.
LONERS = ("the", "a", "old", "red", "small", "loud", "at")
TOKENS: tuple[str, ...] = (UNKNOWN, STOP, *LONERS, *ROLE_OF)
ID_OF: dict[str, int] = {token: i for i, token in enumerate(TOKENS)}
V = len(TOKENS)


def phrase_ids(phrase: Sequence[str]) -> list[int]:
    return [ID_OF[token] for token in phrase]


def sample_text(n_sentences: int, rng: np.random.Generator) -> IntArray:
    """A text of that many sentences, as the ids of its tokens (T,)."""
    columns = [
        [
            phrase_ids(slot.phrases[i])
            for i in rng.choice(len(slot.phrases), size=n_sentences, p=slot.probabilities)
        ]
        for slot in SENTENCE
    ]
    return np.array(
        [i for sentence in zip(*columns, strict=True) for part in sentence for i in part], np.int64
    )


def count_bigrams(text: IntArray) -> FloatArray:
    """How often does token j follow token i? Counts (V, V).

    The first token counts as following a full stop, as the first token of every other sentence does.
    """
    counts = np.zeros((V, V))
    np.add.at(counts, (np.concatenate(([ID_OF[STOP]], text[:-1])), text), 1)
    return counts


def exact_bigrams() -> FloatArray:
    """How often does token j follow token i in an endless text of this grammar? Shares (V, V) that sum to 1."""
    shares = np.zeros((V, V))
    for choice in itertools.product(
        *(zip(slot.phrases, slot.probabilities, strict=True) for slot in SENTENCE)
    ):
        probability = math.prod(p for _, p in choice)
        ids = phrase_ids([STOP, *(token for phrase, _ in choice for token in phrase)])
        for here, following in itertools.pairwise(ids):
            shares[here, following] += probability
    exact: FloatArray = shares / shares.sum()
    return exact


# ---------------------------------------------------------------- the models


def cross_entropy(log_p: FloatArray, bigrams: FloatArray) -> float:
    """How surprised is a model by a text, in nats per token?

    log_p (V, V) is the logarithm of what the model expects after each token; bigrams (V, V) are the text's counts
    or shares. A pair that the text never holds costs nothing, even where its log_p is minus infinity.
    """
    held = bigrams > 0
    return float(-(bigrams[held] @ log_p[held]) / bigrams.sum())


def log_of_counts(counts: FloatArray) -> FloatArray:
    """The full table of counts as a model: log shares (V, V), minus infinity for a pair that never occurred."""
    totals = counts.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_p: FloatArray = np.log(counts / np.where(totals > 0, totals, 1))
    return log_p


def log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_p


def loss_and_gradients(
    E: FloatArray, U: FloatArray, shares: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """The factored model's cross-entropy on a text, and its gradients by E (V, d) and by U (d, V).

    shares (V, V): the text's bigram counts, divided by their sum.

    Source: the derivative of softmax cross-entropy by the logits is (predicted - observed), here weighted by how
    often each token occurs; the chain rule through E @ U gives the rest.
    """
    log_p = log_softmax(E @ U)
    by_logits = shares.sum(axis=1, keepdims=True) * np.exp(log_p) - shares
    return cross_entropy(log_p, shares), by_logits @ U.T, E.T @ by_logits


class DivergedError(ArithmeticError):
    """Gradient descent climbed instead."""

    def __init__(self, rate: float, step: int, loss: float) -> None:
        super().__init__(f"learning rate {rate:g} diverged: at step {step:,} the loss was {loss:.4g}")


@dataclass(frozen=True)
class Tables:
    """A factored model: E (V, d) and U (d, V)."""

    E: FloatArray
    U: FloatArray

    @property
    def width(self) -> int:
        return int(self.E.shape[1])

    @property
    def n_parameters(self) -> int:
        return int(self.E.size + self.U.size)

    @property
    def log_p(self) -> FloatArray:
        """What the model expects after each token, as logarithms (V, V)."""
        return log_softmax(self.E @ self.U)

    def as_stored(self) -> Tables:
        """The same tables, rounded to the float32 that a checkpoint holds."""
        return Tables(
            self.E.astype(np.float32).astype(np.float64), self.U.astype(np.float32).astype(np.float64)
        )


def initial_tables(width: int, seed: int) -> Tables:
    """Both tables as they start: 0.1 x standard normal."""
    rng = np.random.default_rng([seed, width])
    return Tables(0.1 * rng.standard_normal((V, width)), 0.1 * rng.standard_normal((width, V)))


@dataclass(frozen=True)
class Setting:
    """How to descend: always by the same rate, this many times."""

    rate: float
    steps: int


def descend(
    start: Tables, shares: FloatArray, setting: Setting, keep: Collection[int] = ()
) -> dict[int, Tables]:
    """Plain gradient descent: the tables after each of the steps to keep, and after the last.

    Raises DivergedError at the first loss that is not finite.
    """
    E, U = start.E, start.U
    kept: dict[int, Tables] = {}
    # A divergence overflows; it is reported, not warned of.
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(setting.steps + 1):
            loss, dE, dU = loss_and_gradients(E, U, shares)
            if not math.isfinite(loss):
                raise DivergedError(setting.rate, step, loss)
            if step in keep or step == setting.steps:
                kept[step] = Tables(E, U)
            E, U = E - setting.rate * dE, U - setting.rate * dU
    return kept


@dataclass(frozen=True)
class Fit:
    """One width, trained: the setting that worked, what it led to, and what was said of those that did not."""

    setting: Setting
    tables: Tables
    kept: Mapping[int, Tables]
    divergences: tuple[str, ...]


def fit(
    width: int, shares: FloatArray, seed: int, settings: Sequence[Setting], keep: Collection[int] = ()
) -> Fit:
    """Train one width with the first of the settings that does not diverge.

    A descent that ends no better than guessing evenly has diverged too, though its numbers are finite.
    """
    divergences: list[str] = []
    for setting in settings:
        try:
            kept = descend(initial_tables(width, seed), shares, setting, keep)
            tables = kept[setting.steps]
            if (loss := cross_entropy(tables.log_p, shares)) >= math.log(V):
                raise DivergedError(setting.rate, setting.steps, loss)
        except DivergedError as error:
            divergences.append(f"width {width}: {error}")
            continue
        return Fit(setting, tables, kept, tuple(divergences))
    raise SystemExit("\n".join(divergences) + "\nNo gentler setting is left: try another --seed.")


# ---------------------------------------------------------------- what is trained, and what is shipped

WIDTHS = (1, 2, 3, 4, 6, 8, 16, 34)
SETTINGS = (Setting(10, 3000), Setting(3, 4000))  # the bold one, then the gentle one

SHIPPED_WIDTH = 8
# Gentler than the table's: at rate 10 the groups form within some 30 steps, between two snapshots. At this rate
# they form between steps 100 and 300, in plain sight, and the loss ends where that of rate 10 does, within 0.001.
SHIPPED_SETTING = Setting(0.5, 3000)
SNAPSHOTS = (0, 10, 30, 100, 300, 1000, 3000)


@dataclass(frozen=True)
class Results:
    """Everything that the printed table and the card are made from."""

    seed: int
    n_training: int
    n_held_out: int
    training: FloatArray
    held_out: FloatArray
    fits: tuple[Fit, ...]
    shipped: Fit

    @property
    def shares(self) -> FloatArray:
        shares: FloatArray = self.training / self.training.sum()
        return shares

    @property
    def log_counts(self) -> FloatArray:
        return log_of_counts(self.training)

    def losses(self, log_p: FloatArray) -> tuple[float, float]:
        """The cross-entropy of a model on the training text and on the held-out text."""
        return cross_entropy(log_p, self.training), cross_entropy(log_p, self.held_out)

    def gap(self, tables: Tables) -> float:
        """How much worse are these tables than the full table of counts, on the held-out text?"""
        return self.losses(tables.log_p)[1] - self.losses(self.log_counts)[1]


def train_all(n_training: int, n_held_out: int, seed: int) -> Results:
    """Write both texts, and train every width on the first of them."""
    rng = np.random.default_rng(seed)
    training = count_bigrams(sample_text(n_training, rng))
    held_out = count_bigrams(sample_text(n_held_out, rng))
    shares = training / training.sum()
    shipped = fit(SHIPPED_WIDTH, shares, seed, (SHIPPED_SETTING,), SNAPSHOTS)
    stored = {step: tables.as_stored() for step, tables in shipped.kept.items()}
    return Results(
        seed,
        n_training,
        n_held_out,
        training,
        held_out,
        tuple(fit(width, shares, seed, SETTINGS) for width in WIDTHS),
        replace(shipped, tables=shipped.tables.as_stored(), kept=stored),
    )


# ---------------------------------------------------------------- likeness


def cosines(E: FloatArray) -> FloatArray:
    """How alike are the directions of the rows of E (V, d)? Cosines (V, V)."""
    directions = E / np.linalg.norm(E, axis=1, keepdims=True)
    scores: FloatArray = directions @ directions.T
    return scores


def cosine(E: FloatArray, one: str, other: str) -> float:
    return float(cosines(E)[ID_OF[one], ID_OF[other]])


def nearest(E: FloatArray, token: str, k: int) -> list[tuple[str, float]]:
    """The k tokens most like this one, and their cosines; ties in the order of ids."""
    scores = cosines(E)[ID_OF[token]]
    order = [i for i in np.argsort(-scores, kind="stable") if i != ID_OF[token]]
    return [(TOKENS[i], float(scores[i])) for i in order[:k]]


def is_grouped(E: FloatArray, token: str) -> bool:
    """Are the tokens nearest to this one exactly the others of its role?"""
    others = set(ROLES[ROLE_OF[token]]) - {token}
    return {near for near, _ in nearest(E, token, len(others))} == others


def n_grouped(E: FloatArray) -> int:
    """How many of the words that have a role are grouped?"""
    return sum(is_grouped(E, token) for token in ROLE_OF)


def mean_cosines(E: FloatArray) -> tuple[float, float]:
    """The mean cosine of two different words of one role, and of two words of different roles."""
    scores = cosines(E)
    same: list[float] = []
    different: list[float] = []
    for one, other in itertools.combinations(ROLE_OF, 2):
        (same if ROLE_OF[one] == ROLE_OF[other] else different).append(scores[ID_OF[one], ID_OF[other]])
    return float(np.mean(same)), float(np.mean(different))


# ---------------------------------------------------------------- the reference, and the comparison with it

# Published for such a model of another grammar with the same vocabulary size: by width, the losses on the
# training text and on the held-out text.
REFERENCE_LOSSES: dict[int, tuple[float, float]] = {
    1: (2.0316, 2.0230),
    2: (1.1664, 1.1652),
    3: (1.1627, 1.1619),
    4: (1.1618, 1.1620),
    6: (1.1614, 1.1621),
    8: (1.1615, 1.1626),
    16: (1.1612, 1.1613),
    34: (1.1612, 1.1615),
}
REFERENCE_COUNTS = (1.161, 1.162)
LIKE: dict[tuple[str, str], float] = {
    ("cat", "dog"): 0.979,
    ("cat", "fox"): 0.985,
    ("cat", "baker"): 0.977,
    ("chased", "watched"): 0.986,
    ("chased", "found"): 0.995,
    ("quickly", "slowly"): 0.999,
    ("ball", "fish"): 0.961,
}
UNLIKE: dict[tuple[str, str], float] = {
    ("a", "the"): -0.164,
    ("red", "small"): 0.139,
    ("cat", "chased"): 0.068,
    ("quickly", "cat"): -0.071,
    ("cat", "ball"): -0.277,
}
REFERENCE_NEIGHBORS: dict[str, tuple[str, ...]] = {
    "cat": ("farmer", "teacher", "bird", "fox"),
    "chased": ("liked", "followed", "saw", "found"),
    "fish": ("bus", "tree", "ball", "drum"),
    "quickly": ("slowly", "again", "today", "night"),
}
# What counts as agreeing.
LOSS_TOLERANCE = 0.005
LIKE_ABOVE, UNLIKE_BELOW = 0.9, 0.3
FAR_WORSE, NEARLY_ENOUGH = 0.5, 0.01


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that a terminal shows in columns and Markdown shows as a table."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, rows)])


def yes_or_no(holds: bool) -> str:
    return "yes" if holds else "no"


def agree(ours: Sequence[float], reference: Sequence[float]) -> bool:
    return all(abs(x - y) <= LOSS_TOLERANCE for x, y in zip(ours, reference, strict=True))


def loss_table(results: Results) -> str:
    """Every width's losses, ours and the reference's."""
    rows = []
    for label, trained, reference in (
        *((str(f.tables.width), f, REFERENCE_LOSSES[f.tables.width]) for f in results.fits),
        (f"{SHIPPED_WIDTH}, as shipped", results.shipped, REFERENCE_LOSSES[SHIPPED_WIDTH]),
    ):
        ours = results.losses(trained.tables.log_p)
        rows.append(
            [
                label,
                f"{trained.tables.n_parameters:,}",
                f"{trained.setting.rate:g}",
                f"{trained.setting.steps:,}",
                *(f"{x:.4f} ({y:.4f})" for x, y in zip(ours, reference, strict=True)),
                f"{results.gap(trained.tables):+.4f}",
                yes_or_no(agree(ours, reference)),
            ]
        )
    ours = results.losses(results.log_counts)
    losses = (f"{x:.4f} ({y:.3f})" for x, y in zip(ours, REFERENCE_COUNTS, strict=True))
    rows.append(
        ["table of counts", f"{V * V:,}", "", "", *losses, "", yes_or_no(agree(ours, REFERENCE_COUNTS))]
    )
    header = (
        "width",
        "parameters",
        "rate",
        "steps",
        "training loss",
        "validation loss",
        "to counts",
        "agree",
    )
    return table(header, rows)


def cosine_table(E: FloatArray) -> str:
    """The cosine of each pair that the reference names, and whether the relation is the same."""
    rows = []
    for pairs, low, high in ((LIKE, LIKE_ABOVE, 1.0), (UNLIKE, -UNLIKE_BELOW, UNLIKE_BELOW)):
        for (one, other), reference in pairs.items():
            ours = cosine(E, one, other)
            holds = yes_or_no(low <= ours <= high)
            rows.append([f"{one}, {other}", f"{ours:.3f}", f"{reference:.3f}", f"{low:g} to {high:g}", holds])
    return table(("pair", "ours", "reference", "wanted", "holds"), rows)


def neighbor_table(E: FloatArray) -> str:
    rows = []
    for token, reference in REFERENCE_NEIGHBORS.items():
        near = nearest(E, token, len(reference))
        rows.append([token, ", ".join(f"{t} {c:.3f}" for t, c in near), ", ".join(reference)])
    return table(("token", "nearest, ours", "nearest, reference"), rows)


def formation_table(results: Results) -> str:
    """How far the groups have formed at each snapshot."""
    rows = []
    for step, tables in results.shipped.kept.items():
        same, different = mean_cosines(tables.E)
        grouped = f"{n_grouped(tables.E)} of {len(ROLE_OF)}"
        cat_dog = f"{cosine(tables.E, 'cat', 'dog'):.3f}"
        rows.append(
            [
                f"{step:,}",
                f"{results.losses(tables.log_p)[0]:.4f}",
                cat_dog,
                f"{same:.3f}",
                f"{different:.3f}",
                grouped,
            ]
        )
    return table(("step", "training loss", "cat, dog", "same role", "other role", "words grouped"), rows)


FORMATION_STEP = 100
FORMATION_RATES = (0.5, 1.0, 3.0, 10.0)


def grouped_after(results: Results, rate: float) -> int:
    """How many words are grouped, at the shipped width, after the first 100 steps at this rate?"""
    start = initial_tables(SHIPPED_WIDTH, results.seed)
    return n_grouped(descend(start, results.shares, Setting(rate, FORMATION_STEP))[FORMATION_STEP].E)


def rate_table(results: Results) -> str:
    rows = [[f"{rate:g}", f"{grouped_after(results, rate)} of {len(ROLE_OF)}"] for rate in FORMATION_RATES]
    return table(("rate", f"words grouped after {FORMATION_STEP} steps"), rows)


def claim_table(results: Results) -> str:
    """What the reference says of its model, what came out here, and whether the two agree."""
    E = results.shipped.tables.E
    fits = {f.tables.width: f for f in results.fits}
    gaps = {width: results.gap(f.tables) for width, f in fits.items()}
    wide = max(abs(gap) for width, gap in gaps.items() if width >= 3)
    diverged = [width for width, f in fits.items() if f.divergences]
    apart = [
        str(width)
        for width, f in fits.items()
        if not agree(results.losses(f.tables.log_p), REFERENCE_LOSSES[width])
    ]
    counts = results.losses(results.log_counts)[1]
    like = [cosine(E, *pair) for pair in LIKE]
    unlike = [cosine(E, *pair) for pair in UNLIKE]
    strangers = [
        near
        for token, reference in REFERENCE_NEIGHBORS.items()
        for near, _ in nearest(E, token, len(reference))
        if ROLE_OF.get(near) != ROLE_OF[token]
    ]
    bold, slow = (grouped_after(results, setting.rate) for setting in (SETTINGS[0], SHIPPED_SETTING))
    of = f"of {len(ROLE_OF)} words"
    claims: list[tuple[str, str, bool]] = [
        ("the table of counts reaches 1.16 on held-out text", f"{counts:.4f}", round(counts, 2) == 1.16),
        (
            f"widths of 3 and more come within {LOSS_TOLERANCE} of it",
            f"at most {wide:.4f} away",
            wide <= LOSS_TOLERANCE,
        ),
        ("width 2 is nearly enough", f"{gaps[2]:.4f} worse", abs(gaps[2]) < NEARLY_ENOUGH),
        ("width 1 is far worse", f"{gaps[1]:.4f} worse", gaps[1] > FAR_WORSE),
        (
            f"learning rate {SETTINGS[0].rate:g} diverges for widths 1 and 2 alone",
            f"it diverges for widths {' and '.join(map(str, diverged)) or 'none'}",
            diverged == [1, 2],
        ),
        (
            f"each width's losses, within {LOSS_TOLERANCE}",
            f"all but width {', '.join(apart)}" if apart else "all",
            not apart,
        ),
        (
            f"words of one role: cosine above {LIKE_ABOVE}",
            f"{min(like):.3f} to {max(like):.3f}",
            min(like) > LIKE_ABOVE,
        ),
        (
            f"words of different roles: within {UNLIKE_BELOW} of 0",
            f"{min(unlike):.3f} to {max(unlike):.3f}",
            max(map(abs, unlike)) < UNLIKE_BELOW,
        ),
        (
            "the nearest to cat, chased, fish and quickly share their role",
            f"all but {', '.join(strangers)}" if strangers else "all",
            not strangers,
        ),
        (
            f"groups have not formed after {FORMATION_STEP} steps, as shipped (rate {SHIPPED_SETTING.rate:g})",
            f"{slow} {of} are grouped",
            slow < len(ROLE_OF) / 2,
        ),
        (
            f"nor after as many at the table's learning rate, {SETTINGS[0].rate:g}",
            f"{bold} {of} are grouped",
            bold < len(ROLE_OF) / 2,
        ),
    ]
    return table(
        ("reference", "ours", "agree"), [[claim, ours, yes_or_no(holds)] for claim, ours, holds in claims]
    )


# ---------------------------------------------------------------- the checkpoint


def safetensors_bytes(tensors: Mapping[str, FloatArray]) -> bytes:
    """The arrays as the bytes of a safetensors file, in float32.

    Source: the safetensors format: the length of the header, the header as JSON, then the numbers, end to end.
    """
    header: dict[str, object] = {}
    data = b""
    for name, array in tensors.items():
        numbers = np.ascontiguousarray(array, dtype="<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(numbers)],
        }
        data += numbers
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + data


def tokenizer_json() -> str:
    """A tokenizer of whole words, parted at spaces and before punctuation; any other word is <unk>."""
    unknown = {
        "id": ID_OF[UNKNOWN],
        "content": UNKNOWN,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [unknown],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": ID_OF, "unk_token": UNKNOWN},
    }
    return json.dumps(content, indent=2) + "\n"


def config_json() -> str:
    content = {
        "model_type": "bigram",
        "vocab_size": V,
        "hidden_size": SHIPPED_WIDTH,
        "tie_word_embeddings": False,
        "unk_token_id": ID_OF[UNKNOWN],
    }
    return json.dumps(content, indent=2) + "\n"


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def write_model(folder: Path, tables: Tables) -> None:
    model = safetensors_bytes({"wte.weight": tables.E, "lm_head.weight": tables.U.T})
    write(folder / "model.safetensors", model)
    write(folder / "tokenizer.json", tokenizer_json().encode())
    write(folder / "config.json", config_json().encode())


def write_checkpoint(folder: Path, results: Results) -> None:
    """The shipped model, its snapshots, and its card."""
    write_model(folder, results.shipped.tables)
    for step, tables in results.shipped.kept.items():
        write_model(folder / "steps" / f"step-{step:05}", tables)
    write(folder / "README.md", card(results).encode())


def grammar_table() -> str:
    rows = []
    for slot in SENTENCE:
        for probability, phrases in itertools.groupby(
            zip(slot.probabilities, slot.phrases, strict=True), key=lambda pair: pair[0]
        ):
            words = ", ".join(" ".join(phrase) or "(nothing)" for _, phrase in phrases)
            rows.append([slot.name, words, f"{probability:.4g}"])
    return table(("place", "phrases", "probability of each"), rows)


def spell(text: IntArray) -> str:
    """A text of ids in words, one sentence a line."""
    return " ".join(TOKENS[i] for i in text).replace(" .", ".").replace(". ", ".\n")


def card(results: Results) -> str:
    """The model card; every figure in it is computed here."""
    E = results.shipped.tables.E
    training_loss, held_out_loss = results.losses(results.shipped.tables.log_p)
    entropy = cross_entropy(log_of_counts(exact_bigrams()), exact_bigrams())
    examples = spell(sample_text(4, np.random.default_rng(results.seed)))
    divergences = "\n".join(f"- {line}" for f in results.fits for line in f.divergences) or "- none"
    groups = "\n".join(f"- {role}s: {', '.join(words)}" for role, words in ROLES.items())
    unknown_moved = np.abs(E[ID_OF[UNKNOWN]] - results.shipped.kept[0].E[ID_OF[UNKNOWN]]).max()
    return f"""---
license: apache-2.0
language: en
tags:
  - embeddings
  - bigram
  - education
---

# The bigram language: {V} tokens, {SHIPPED_WIDTH} numbers each

A factored bigram model, logits = E[x] @ U: a row of E for the token that is there, a column of U for each token that
may come next. It is small enough to read number by number, and its language is known exactly, so that it can be
checked what a table of vectors learned: words that the same words follow end up with like vectors.

| file | content |
| --- | --- |
| `model.safetensors` | `wte.weight` = E ({V}, {SHIPPED_WIDTH}) and `lm_head.weight` = U transposed ({V}, {SHIPPED_WIDTH}), F32; {results.shipped.tables.n_parameters} parameters |
| `tokenizer.json` | whole words in lower case (WordLevel), parted at spaces and before the full stop |
| `config.json` | `model_type` is `bigram`, our own |
| `steps/` | the same files after {", ".join(f"{step:,}" for step in SNAPSHOTS)} steps |

Look inside:

```
inspect-embed similarity checkpoints/bigram cat dog chased
inspect-embed neighbors checkpoints/bigram cat
```

## The language

A sentence takes one phrase for each place, by chance, independently of the others. So all subjects are followed by
the same six verbs with the same probabilities, and all verbs by the same objects.

{grammar_table()}

```
{examples}
```

Words of one role, that is, followed by the same words:

{groups}

Of the other tokens, `the` and `a` come before a noun or an adjective, and `red`, `small`, `loud`, `old` and `at` are
each followed by one word alone. `{UNKNOWN}` stands for any word that is not of the language. It never occurs in the text,
so its row of E is what chance made it at the start: training changed it by {unknown_moved:g}.

**The grammar is ours.** The reference figures below were published for a model of this shape over {V} tokens whose
grammar was not published. Ours has every property that is known of that one. Our own are: the eighth subject, the
old king; the token `{UNKNOWN}`; and the probabilities. All phrases of a place are as likely as each other, but for the
sentence's ending: {ENDING_PROBABILITY} is the probability that there is one, chosen for the entropy that it gives. The
best that a bigram model can do in this language is {entropy:.4f} nats per token.

## Training

Text: {results.n_training:,} sentences ({int(results.training.sum()):,} tokens) to train on, and {results.n_held_out:,} others
({int(results.held_out.sum()):,} tokens) held out.

Plain gradient descent on the mean cross-entropy per token, over the whole text at every step, in float64. Both tables
start from 0.1 x standard normal, and both texts and the starts come from seed {results.seed}. The script's own seed was chosen
among the first 500 for what the reference reports: the losses of the table of counts, the widths at which descent
diverges, and the cosines near 0 between different roles, which chance decides more than training does.

Every width was trained as the reference was, with learning rate {SETTINGS[0].rate:g} for {SETTINGS[0].steps:,} steps, and where that
diverged, with rate {SETTINGS[1].rate:g} for {SETTINGS[1].steps:,} steps. What diverged:

{divergences}

**The shipped model** was trained more gently: learning rate {SHIPPED_SETTING.rate:g}, {SHIPPED_SETTING.steps:,} steps. Its training loss
is {training_loss:.4f}, its validation loss {held_out_loss:.4f}. At rate {SETTINGS[0].rate:g} the groups of words form too early for the
snapshots to show it (below).

Cross-entropy in nats per token, the reference's in parentheses. "To counts" is how far the validation loss lies above
that of the full table of counts; "agree" says whether both losses are within {LOSS_TOLERANCE} of the reference.

{loss_table(results)}

## Likeness

The cosine of two rows of E.

{cosine_table(E)}

{neighbor_table(E)}

## When the groups form

A word is *grouped* when the tokens nearest to it are exactly the other words of its role. "Same role" and "other role"
are mean cosines over all pairs of words that have one.

{formation_table(results)}

The learning rate decides how early that is. From the same start:

{rate_table(results)}

## What agrees with the reference, and what does not

{claim_table(results)}

The loss of width 1 depends on the start: other seeds ended anywhere between 1.9 and 2.2.

The last two rows belong together. The reference does not say at which learning rate it looked after {FORMATION_STEP} steps. At the
rate of its table our groups had formed by then from every start that was tried; at a gentler rate they have not, and
the model that comes out is about as good. That is why the shipped model was trained at the gentler one.

## Limits

It knows {V} tokens and one kind of sentence. It sees one token back: it may write "the cat chased the dog", which the
grammar does not, because after `the` it has forgotten whether a verb came before. The columns of E mean nothing one by
one: turn E by any rotation and U back, and the model is the same. It is for lessons and tests.

## Make it again

```
python scripts/train_bigram.py --out checkpoints/bigram
```

takes a few seconds and needs numpy alone. On another machine the last digits may differ.

## Licence

Apache-2.0, the tables and the language alike.
"""


# ---------------------------------------------------------------- the command


def whole_number(minimum: int) -> Callable[[str], int]:
    """A type of argument: a whole number, at least so large."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {minimum} or more")
        return int(text)

    return parse


def parser() -> argparse.ArgumentParser:
    description, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write the checkpoint of width 8 and its card here"
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=401,
        help="of the texts and of the start (default: %(default)s)",
    )
    parser.add_argument(
        "--sentences",
        type=whole_number(1),
        default=20_000,
        help="how many to train on (default: %(default)s)",
    )
    parser.add_argument(
        "--held-out", type=whole_number(1), default=5_000, help="how many to hold out (default: %(default)s)"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    results = train_all(options.sentences, options.held_out, options.seed)
    print("Cross-entropy in nats per token; the reference's in parentheses.\n")
    print(loss_table(results), end="\n\n")
    for line in (line for f in results.fits for line in f.divergences):
        print(f"{line}; trained with the gentler setting.")
    print()
    print(claim_table(results))
    if options.out:
        write_checkpoint(options.out, results)
        print(f"\nWritten to {options.out}.")


if __name__ == "__main__":
    try:
        main()
    except DivergedError as error:
        sys.exit(str(error))
