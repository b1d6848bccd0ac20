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

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

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
# Words that are followed by something that no other word is followed by.
LONERS = ("the", "a", "old", "red", "small", "loud", "at")
TOKENS: tuple[str, ...] = (UNKNOWN, STOP, *LONERS, *itertools.chain.from_iterable(ROLES.values()))
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
    return shares / shares.sum()


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
        return np.log(counts / np.maximum(totals, 1))


def log_softmax(logits: FloatArray) -> FloatArray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_p


def loss_and_gradients(
    E: FloatArray, U: FloatArray, shares: FloatArray
) -> tuple[float, FloatArray, FloatArray]:  # fmt: skip
    """The factored model's cross-entropy on a text, and its gradients by E (V, d) and by U (d, V).

    shares (V, V): the text's bigram counts, divided by their sum.

    Source: the derivative of softmax cross-entropy by the logits is (predicted - observed), here weighted by how
    often each token occurs; the chain rule through E @ U gives the rest.
    """
    log_p = log_softmax(E @ U)
    by_logits = shares.sum(axis=1, keepdims=True) * np.exp(log_p) - shares
    return cross_entropy(log_p, shares), by_logits @ U.T, E.T @ by_logits


class DivergedError(ArithmeticError):
    """Gradient descent left the region where it descends."""

    def __init__(self, step: int, loss: float) -> None:
        super().__init__(f"diverged: the loss was {loss:.4g} at step {step:,}")
        self.step = step


@dataclass(frozen=True)
class Tables:
    """A factored model: E (V, d) and U (d, V)."""

    E: FloatArray
    U: FloatArray

    def loss(self, bigrams: FloatArray) -> float:
        return cross_entropy(log_softmax(self.E @ self.U), bigrams)


def initial_tables(width: int, seed: int) -> Tables:
    """Both tables as they start: 0.1 x standard normal."""
    rng = np.random.default_rng([seed, width])
    return Tables(0.1 * rng.standard_normal((V, width)), 0.1 * rng.standard_normal((width, V)))


def descend(
    start: Tables, shares: FloatArray, rate: float, steps: int, keep: Collection[int] = ()
) -> tuple[Tables, dict[int, Tables]]:
    """Plain gradient descent: the tables after that many steps, and those after each of the steps to keep.

    Raises DivergedError when a loss is not finite, or when the last one is no better than guessing evenly.
    """
    E, U = start.E, start.U
    kept: dict[int, Tables] = {}
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # a divergence overflows; it is reported, not warned of
        for step in range(steps + 1):
            loss, dE, dU = loss_and_gradients(E, U, shares)
            if not math.isfinite(loss):
                raise DivergedError(step, loss)
            if step in keep:
                kept[step] = Tables(E, U)
            if step == steps:
                break
            E, U = E - rate * dE, U - rate * dU
    if loss >= math.log(V):
        raise DivergedError(steps, loss)
    return Tables(E, U), kept


# From the bold setting to the gentle one: (learning rate, steps).
SETTINGS = ((10.0, 3000), (3.0, 4000))
WIDTHS = (1, 2, 3, 4, 6, 8, 16, 34)


@dataclass(frozen=True)
class Fit:
    """One width, trained: with what setting, to what losses, and which settings diverged before."""

    width: int
    rate: float
    steps: int
    training_loss: float
    held_out_loss: float
    tables: Tables
    kept: Mapping[int, Tables]
    troubles: tuple[str, ...]

    @property
    def n_parameters(self) -> int:
        return self.tables.E.size + self.tables.U.size


def fit(
    width: int, training: FloatArray, held_out: FloatArray, seed: int, keep: Collection[int] = ()
) -> Fit:  # fmt: skip
    """Train one width on the training text's counts with the first setting that does not diverge."""
    shares = training / training.sum()
    troubles: list[str] = []
    for rate, steps in SETTINGS:
        try:
            tables, kept = descend(initial_tables(width, seed), shares, rate, steps, keep)
        except DivergedError as error:
            troubles.append(f"width {width} at learning rate {rate:g} {error}")
            continue
        losses = tables.loss(training), tables.loss(held_out)
        return Fit(width, rate, steps, *losses, tables, kept, tuple(troubles))
    raise SystemExit("\n".join(troubles) + "\nno gentler setting is left")
