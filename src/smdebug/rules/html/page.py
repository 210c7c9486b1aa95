"""A page: facts at the top, then sections of cards. It needs no network and no script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from smdebug.rules.html.svg import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

_STYLE = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1d2430;--muted:#667085;--line:#e4e7ec;
--grid:#eceef2;--on:#fff;--c0:#2f6fde;--c1:#d97706;--c2:#12916b;--c3:#b0357b;--c4:#6d5bd0;--c5:#7a6a4f}
@media(prefers-color-scheme:dark){:root{--page:#12151b;--card:#1a1f27;--text:#e6e9ef;--muted:#98a2b3;
--line:#2b323d;--grid:#262c36;--on:#0e1116;--c0:#7aa5f8;--c1:#f0a94e;--c2:#56c7a2;--c3:#e584b8;--c4:#a99bf0;
--c5:#c4b08a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",
Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1160px;margin:0 auto;padding:36px 20px 56px}
h1{font-size:26px;line-height:1.25;margin:0;font-weight:650}
h2{font-size:18px;margin:40px 0 12px;font-weight:650}
h3{font-size:15px;margin:0 0 8px;font-weight:600;overflow-wrap:anywhere}
.sub,.note{color:var(--muted);margin:4px 0 0;overflow-wrap:anywhere}.note{font-size:13px;margin-top:8px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:24px 0 0;padding:0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.facts dt{color:var(--muted);font-size:13px;overflow-wrap:anywhere}
.facts dd{margin:2px 0 0;font-size:22px;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.facts small{display:block;font-size:13px;font-weight:400;color:var(--muted)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:16px;
align-items:start}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;min-width:0}
.wide{grid-column:1/-1}
svg{display:block;width:100%;height:auto;font-size:12px}
svg text{fill:var(--muted)}svg .item{fill:var(--text)}svg .count{fill:var(--text)}svg .on{fill:var(--on)}
.end{text-anchor:end}.middle{text-anchor:middle}
.grid{stroke:var(--grid)}.axis{stroke:var(--line)}.mark{stroke:var(--muted);stroke-dasharray:3 4}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.thin{stroke-width:1.5}
.median{stroke:var(--text);stroke-width:2}.hint{fill:transparent}.see{fill-opacity:.6}
.cell{fill:color-mix(in srgb,var(--c0) calc(var(--share)*100%),var(--grid))}
COLORS
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 8px;padding:0;font-size:13px;
color:var(--muted)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
.legend li{overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:7px 12px 7px 0;border-bottom:1px solid var(--line);overflow-wrap:anywhere;
vertical-align:top}
th{color:var(--muted);font-weight:500;font-size:13px}tr:last-child td{border-bottom:0}
.n{text-align:right}
footer{margin-top:40px;color:var(--muted);font-size:13px}
@media print{body{background:#fff}.card,.facts div{break-inside:avoid}}
""".replace(
    "COLORS",
    "".join(
        f".s{color}{{stroke:var(--c{color})}}.f{color}{{fill:var(--c{color})}}"
        f".b{color}{{background:var(--c{color})}}"
        for color in range(6)
    ),
).strip()


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
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>"
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
