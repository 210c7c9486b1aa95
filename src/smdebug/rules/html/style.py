"""How a page looks, by day and by night."""

from __future__ import annotations

COLORS = 6

_DAY = """
--page:#f6f7f9;--card:#fff;--text:#1d2430;--muted:#667085;--line:#e4e7ec;--grid:#eceef2;--on:#fff;
--c0:#2f6fde;--c1:#d97706;--c2:#12916b;--c3:#b0357b;--c4:#6d5bd0;--c5:#7a6a4f;
"""
_NIGHT = """
--page:#12151b;--card:#1a1f27;--text:#e6e9ef;--muted:#98a2b3;--line:#2b323d;--grid:#262c36;
--on:#0e1116;
--c0:#7aa5f8;--c1:#f0a94e;--c2:#56c7a2;--c3:#e584b8;--c4:#a99bf0;--c5:#c4b08a;
"""
_RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1160px;margin:0 auto;padding:36px 20px 56px}
h1,h2,h3,p,dt,dd,li,td:last-child{overflow-wrap:anywhere}
h1{font-size:26px;line-height:1.25;margin:0;font-weight:650}
h2{font-size:18px;margin:40px 0 12px;font-weight:650}
h3{font-size:15px;margin:0 0 8px;font-weight:600}
.sub,.note,footer{color:var(--muted)}
.sub{margin:4px 0 0}
.note{font-size:13px;margin:8px 0 0}
h2+.note{margin:-8px 0 12px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(136px,1fr));gap:12px;
 margin:24px 0 0}
.facts div,.card{background:var(--card);border:1px solid var(--line);border-radius:10px}
.facts div{padding:14px 16px}
.facts dt{color:var(--muted);font-size:13px}
.facts dd{margin:2px 0 0;font-size:22px;font-weight:600;font-variant-numeric:tabular-nums}
.facts small{display:block;font-size:13px;font-weight:400;color:var(--muted)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,440px),1fr));gap:16px;
 align-items:start}
.card{padding:16px 18px;min-width:0}
.wide{grid-column:1/-1}
svg{display:block;width:100%;height:auto;font-size:12px}
svg text{fill:var(--muted)}
svg .item,svg .count{fill:var(--text)}
svg .on{fill:var(--on)}
.end{text-anchor:end}
.middle{text-anchor:middle}
.grid{stroke:var(--grid)}
.axis{stroke:var(--line)}
.mark{stroke:var(--muted);stroke-dasharray:3 4}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.thin{stroke-width:1.5}
.median{stroke:var(--text);stroke-width:2}
.hint{fill:transparent}
.see{fill-opacity:.6}
.cell{fill:color-mix(in srgb,var(--c0) calc(var(--share)*100%),var(--grid))}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 8px;padding:0;
 font-size:13px;color:var(--muted)}
.legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:7px 12px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--muted);font-weight:500;font-size:13px}
tr:last-child td{border-bottom:0}
table .n{text-align:right;white-space:nowrap}
footer{margin-top:40px;font-size:13px}
@media print{body{background:#fff}.card,.facts div{break-inside:avoid}}
"""
_CHARTS = "".join(
    f".s{color}{{stroke:var(--c{color})}}.f{color}{{fill:var(--c{color})}}"
    f".b{color}{{background:var(--c{color})}}"
    for color in range(COLORS)
)

STYLE = (
    f":root{{color-scheme:light dark;{_DAY}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{_NIGHT}}}}}{_RULES}{_CHARTS}"
)
