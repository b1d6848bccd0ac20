"""Which ids have these words, and which words have these ids? How is a text cut? What is in the vocabulary?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from inspect_embed.checkpoint import Checkpoint
from inspect_embed.errors import NotOneTokenError, TokenError, UnknownTokenError
from inspect_embed.report import Block, Column, Grid, Note, Report, Result

if TYPE_CHECKING:
    from inspect_embed.vocabularies import Vocabulary


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """A token: its id, its spelling as people read it, the file's own spelling, and its kind.

    `raw` and `kind` are None for an id that no token has.
    """

    id: int
    token: str
    raw: str | None
    kind: str | None


@dataclass(frozen=True, slots=True)
class WordTokens:
    """What a query names: one token, or several where `single` is false."""

    query: str
    single: bool
    tokens: tuple[TokenFacts, ...]


@dataclass(frozen=True)
class Tokens(Result):
    """Tokens looked up (`words`), or listed (`listing`, None where words were looked up)."""

    checkpoint: str
    source: str
    model: str
    n_tokens: int
    words: tuple[WordTokens, ...]
    listing: tuple[TokenFacts, ...] | None
    notes: tuple[str, ...] = ()

    def report(self) -> Report:
        """One line a token; a listing has no title, so that it can be piped."""
        if self.listing is not None:
            heads = (Column("id", "d"), Column("token"), Column("raw"), Column("kind"))
            grid = Grid(heads, [(t.id, t.token, t.raw, t.kind) for t in self.listing])
            return Report("", self, (grid, *map(Note, self.notes)), grid)
        columns = (Column("query"), Column("id", "d"), Column("token"), Column("raw"), Column("kind"))
        rows = [(word.query, t.id, t.token, t.raw, t.kind) for word in self.words for t in word.tokens]
        grid = Grid(columns, rows)
        title = f"{self.checkpoint}: {self.n_tokens:,} tokens, {self.model}, from {self.source}"
        blocks: list[Block] = [grid, *map(Note, self.notes)]
        return Report(title, self, tuple(blocks), grid)


def tokens(
    checkpoint: Checkpoint,
    words: Sequence[str] = (),
    *,
    ids: Sequence[int] = (),
    text: str | None = None,
    grep: str | None = None,
    first: int | None = None,
) -> Tokens:
    """Which tokens are these?

    Each of `words` is looked up as one token (and, where it is several, shown as its pieces); `ids` are looked up
    the other way; `text` is cut as a whole; `grep` lists the tokens whose spelling matches a regular expression;
    with none of them the vocabulary is listed, the `first` ones or all.

    Errors: TokenError where there is no tokenizer, or no such token.

    >>> tokens(open_checkpoint("checkpoints/toy"), ["·girl"]).words[0].single
    True
    """
    vocabulary = checkpoint.vocabulary
    if vocabulary is None:
        raise TokenError(
            f"{checkpoint.location} has no tokenizer that can be read.", "Name one with --tokenizer PATH."
        )
    notes = [*vocabulary.notes]
    found = [_look_up(vocabulary, word, notes) for word in words]
    for id_ in ids:
        facts = _facts(vocabulary, id_)
        if facts.raw is None and id_ > vocabulary.max_id:
            raise UnknownTokenError(
                f"There is no id {id_:,}: the vocabulary's ids go to {vocabulary.max_id:,}.",
                "Ask for another id.",
            )
        found.append(WordTokens(f"id:{id_}", True, (facts,)))
    if text == "":
        raise TokenError("The text is empty: it has no tokens.", "Give a text of one word or more.")
    if text is not None:
        cut = tuple(_facts(vocabulary, id_) for id_ in vocabulary.cut(text))
        found.append(WordTokens(text, len(cut) == 1, cut))
        notes.append(f"{text!r} is {len(cut):,} tokens.")
    listing: tuple[TokenFacts, ...] | None = None
    if grep is not None:
        matches = islice(vocabulary.grep(grep), first)
        listing = tuple(TokenFacts(t.id, t.text, t.raw, t.kind) for t in matches)
        if not listing and first != 0:
            raise UnknownTokenError(
                f"No token of {vocabulary.source} matches {grep!r}.",
                "The expression is looked for anywhere in a token's spelling: ^·gir finds what begins so.",
            )
    elif not found:
        listing = tuple(_facts(vocabulary, id_) for id_ in islice(vocabulary.ids(), first))
    return Tokens(
        checkpoint.location,
        vocabulary.source,
        vocabulary.model,
        vocabulary.n_tokens,
        tuple(found),
        listing,
        () if listing is not None else tuple(dict.fromkeys(notes)),
    )


def _look_up(vocabulary: Vocabulary, word: str, notes: list[str]) -> WordTokens:
    try:
        found = vocabulary.find(word)
    except NotOneTokenError:
        pieces = tuple(_facts(vocabulary, id_) for id_ in vocabulary.pieces(word))
        notes.append(f"{word!r} is not one token but {len(pieces)}: {' + '.join(t.token for t in pieces)}.")
        return WordTokens(word, False, pieces)
    notes += found.notes
    if found.token is None and found.id > vocabulary.max_id:
        raise UnknownTokenError(
            f"There is no id {found.id:,}: the vocabulary's ids go to {vocabulary.max_id:,}.",
            "Ask for another id.",
        )
    return WordTokens(word, True, (_facts(vocabulary, found.id),))


def _facts(vocabulary: Vocabulary, id_: int) -> TokenFacts:
    token = vocabulary.token(id_)
    if token is None:
        return TokenFacts(id_, vocabulary.label(id_), None, None)
    return TokenFacts(id_, token.text, token.raw, token.kind)
