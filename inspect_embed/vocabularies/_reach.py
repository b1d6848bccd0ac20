"""Can a text reach a token: does cutting the token's own text give the token back?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, cast

from inspect_embed.errors import TokenError
from inspect_embed.vocabularies._library import library_call

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from inspect_embed.vocabularies import Vocabulary

Reach = Literal["text", "unreachable", "partial UTF-8", "special"]
"""How a token can be met: `text` cuts to it; its own text cuts to others (`unreachable`); it is no text by itself
(`partial UTF-8`), or a control token, which no text is meant to hold (`special`)."""

_NEVER_IN_UTF8 = frozenset(b"\xc0\xc1" + bytes(range(0xF5, 0x100)))
_BATCH = 8192
_MOST_SEPARATORS = 3


def holds_impossible_byte(data: bytes) -> bool:
    """Whether these bytes hold one that no UTF-8 text holds: 0xC0, 0xC1, and 0xF5 to 0xFF.

    Source: RFC 3629, section 1.
    """
    return not _NEVER_IN_UTF8.isdisjoint(data)


def find_reach(vocabulary: Vocabulary) -> dict[int, Reach]:
    """Which tokens can a text reach? By id.

    A token counts as reached where its own text, alone or behind a sign that joins with nothing, is cut to it: a
    piece that continues a word needs something before it. TokenError where this vocabulary cannot cut text,
    `Refusal` where the library fails on one.
    """
    if problem := vocabulary.cut_problem:
        raise TokenError(f"Which tokens a text can reach is not known. {problem}")
    reach: dict[int, Reach] = {}
    texts: dict[int, str] = {}
    for id_ in vocabulary.ids():
        token = vocabulary.token(id_)
        if token is not None and token.kind == "special":
            reach[id_] = "special"
            continue
        try:
            texts[id_] = cast(bytes, vocabulary.bytes_of(id_)).decode()
        except UnicodeDecodeError:
            reach[id_] = "partial UTF-8"
    # As it is; without the space before it, which some tokenizers do not know; behind a sign.
    ways: list[tuple[str, str]] = [("", ""), ("", " "), *((sign, "") for sign in _separators(texts.values()))]
    for before, dropped in ways:
        missing = {id_: text.removeprefix(dropped) for id_, text in texts.items() if id_ not in reach}
        lead = next(_cut_all(vocabulary, [before])) if before else []
        cuts = _cut_all(vocabulary, [before + text for text in missing.values()])
        for id_, pieces in zip(missing, cuts, strict=True):
            if pieces == [*lead, id_]:
                reach[id_] = "text"
    return {id_: reach.get(id_, "unreachable") for id_ in vocabulary.ids()}


def _separators(texts: Iterable[str]) -> list[str]:
    """Signs that are tokens and that no longer token begins with: letters, which join words, and others."""
    cores = {text.strip(" ") for text in texts}
    begun = {core[0] for core in cores if len(core) > 1}
    free = sorted(core for core in cores if len(core) == 1 and core not in begun)
    letters = [sign for sign in free if sign.isalpha()]
    others = [sign for sign in free if not sign.isalnum() and sign.isprintable()]
    return [*letters[:_MOST_SEPARATORS], *others[:_MOST_SEPARATORS]]


def _cut_all(vocabulary: Vocabulary, texts: Sequence[str]) -> Iterator[list[int]]:
    """As Vocabulary.cut, of texts as they are, many at a time."""
    cutter = cast("Tokenizer", vocabulary._cutter)
    for start in range(0, len(texts), _BATCH):
        batch = list(texts[start : start + _BATCH])
        if vocabulary._prepends_space:
            batch = [text.removeprefix(" ") for text in batch]
        with library_call():
            found = cutter.encode_batch(batch, add_special_tokens=False)
        for pieces in found:
            yield [vocabulary._own_id(raw, id_) for raw, id_ in zip(pieces.tokens, pieces.ids, strict=True)]
