"""A page: facts at the top, then sections of cards. It needs no network and no script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdebug.markup import escape
from smdebug.rules.html.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Fact:
    """One number that matters, with what it is and, if there is more to say, a few words."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Card:
    """A chart or a table with its title.

    Attributes:
        title: plain text.
        body: markup.
        note: plain text below it.
        wide: over the whole width.
    """

    title: str
    body: str
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """Cards under one heading."""

    title: str
    cards: Sequence[Card]
    note: str = ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table of plain texts.

    Args:
        head: the names of the columns.
        rows: the texts.
        numbers: the places of the columns that hold numbers.
    """

    def line(cells: Sequence[str], kind: str) -> str:
        marks = [' class="n"' if place in numbers else "" for place in range(len(cells))]
        inner = [
            f"<{kind}{mark}>{escape(cell)}</{kind}>"
            for cell, mark in zip(cells, marks, strict=True)
        ]
        return f"<tr>{''.join(inner)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f'<div class="scroll"><table>{line(head, "th")}{body}</table></div>'


def page(
    title: str, subtitle: str, facts: Sequence[Fact], sections: Sequence[Section], footer: str
) -> str:
    """The whole page as HTML; sections without cards are left out."""
    head = "".join(
        f"<div><dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}"
        f"{f'<small>{escape(fact.note)}</small>' if fact.note else ''}</dd></div>"
        for fact in facts
    )
    body = "".join(_section(section) for section in sections if section.cards)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p class="sub">{escape(subtitle)}</p>'
        f'<dl class="facts">{head}</dl>{body}<footer>{escape(footer)}</footer>'
        "</main></body></html>\n"
    )


def _section(section: Section) -> str:
    cards = "".join(
        f'<section class="card{" wide" if card.wide else ""}"><h3>{escape(card.title)}</h3>'
        f"{card.body}{_note(card.note)}</section>"
        for card in section.cards
    )
    return f'<h2>{escape(section.title)}</h2>{_note(section.note)}<div class="cards">{cards}</div>'


def _note(note: str) -> str:
    return f'<p class="note">{escape(note)}</p>' if note else ""
