"""Text that can be drawn: every character is in some installed font, or is shown by an escape or an id instead."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from inspect_embed.errors import shorten
from inspect_embed.spelling import encode, show, to_ascii

BASE = "DejaVu Sans"
"""The font that comes with matplotlib."""
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str) -> str:
    """The same text with an escape for every character that would show nothing, or break the line.

    Blank text is spelled as a token is: a space as a middle dot.
    """
    if not text.strip():
        return show(encode(text))
    return "".join(
        show(encode(char))
        if unicodedata.category(char) in _UNSHOWN or (char.isspace() and char != " ")
        else char
        for char in text
    )


class Lettering:
    """The fonts that some texts need, and what those texts become where no font has a character.

    `families` are names of fonts to be tried in turn; `notes` say what could not be drawn.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        wanted = {ord(char) for text in texts for char in visible(text)}
        self.families = [BASE]
        missing = wanted - _characters_of(BASE)
        if missing:
            for family in _other_families():
                found = missing & _characters_of(family)
                if found:
                    self.families.append(family)
                    missing -= found
                if not missing:
                    break
        self._missing = missing
        self._replaced: dict[str, str] = {}

    def spell(self, text: str, row: int | None = None) -> str:
        """What is drawn for this text: itself, or its id where a character has no font, or an escape."""
        shown = visible(text)
        if not any(ord(char) in self._missing for char in shown):
            return shown
        if row is not None:
            spelled = f"id {row}"
        else:
            spelled = "".join(to_ascii(char) if ord(char) in self._missing else char for char in shown)
        self._replaced[text] = spelled
        return spelled

    @property
    def n_replaced(self) -> int:
        """How many texts could not be drawn as they are."""
        return len(self._replaced)

    @property
    def notes(self) -> tuple[str, ...]:
        """One note on all texts that no installed font could draw; none where there are none."""
        if not self._replaced:
            return ()
        count = len(self._replaced)
        shown = shorten(f"{spelled} for {visible(text)}" for text, spelled in self._replaced.items())
        note = (
            f"No installed font can draw {count:,} of the texts, which are shown by id or escape: {shown}. "
            f"A font that has their script (Noto, for instance), once installed, is used."
        )
        return (note,)


@lru_cache(maxsize=64)
def _characters_of(family: str) -> frozenset[int]:
    """The characters that the font matplotlib takes for this name has."""
    from matplotlib.font_manager import FontProperties, fontManager
    from matplotlib.ft2font import FT2Font

    try:
        path = fontManager.findfont(FontProperties(family=[family]), fallback_to_default=False)
        return frozenset(FT2Font(path).get_charmap())
    except (ValueError, RuntimeError, OSError):
        # A font that is listed and yet cannot be opened has nothing to draw with.
        return frozenset()


def _other_families() -> list[str]:
    """The installed families, upright and of normal weight; those without serifs first.

    Fonts of coloured pictures have no outlines to draw.
    """
    from matplotlib.font_manager import fontManager

    names = {
        entry.name
        for entry in fontManager.ttflist
        if entry.style == "normal"
        and entry.weight in (400, "normal", "regular", "book")
        and "Color" not in entry.name
        and not entry.name.startswith(("cm", "STIX", "DejaVu Sans Display", "Last"))
    } - {BASE}
    return sorted(names, key=lambda name: ("Sans" not in name, "Mono" in name, name))
