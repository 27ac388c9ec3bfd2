"""The report's style sheet: one column, figures that line up, light, dark and printed."""

from kanab.report.colours import DARK, LIGHT

_LIGHT, _DARK = ("".join(f"--{name}:{colour};" for name, colour in colours.items()) for colours in (LIGHT, DARK))
_RECOLOURED = "\n".join(
    f'svg [fill="{colour}"]{{fill:var(--{name})}}\nsvg [stroke="{colour}"]{{stroke:var(--{name})}}'
    for name, colour in LIGHT.items()
)
"""Rules by which charts, which carry light colours of their own, follow the page's variables."""

STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%;text-size-adjust:100%}}
body{{margin:0;background:var(--page);color:var(--ink);font:1rem/1.55 -apple-system,BlinkMacSystemFont,
"Segoe UI",Roboto,"Noto Sans","Liberation Sans",Arial,sans-serif;overflow-wrap:break-word}}
main{{max-width:60rem;margin:0 auto;padding:2.5rem 1.25rem 3rem}}
h1,h2,h3,p,ul,dl,dd,figure{{margin:0;padding:0}}
h1{{font-size:2rem;line-height:1.2;letter-spacing:-.015em}}
h2{{font-size:1.3rem;line-height:1.3;letter-spacing:-.01em;margin-bottom:.9rem}}
h3{{font-size:1.1rem;line-height:1.3}}
section{{margin-top:2.25rem;padding-top:1.75rem;border-top:1px solid var(--line)}}
article+article{{margin-top:2.5rem}}
.kicker,.unit,footer,.evidence,.key{{color:var(--muted);font-size:.9rem}}
.kicker{{letter-spacing:.02em;margin-bottom:.15rem}}
.lede{{font-size:1.1rem;margin-top:.5rem}}
.lede+.lede{{margin-top:.1rem}}
.call{{border-left:4px solid var(--fine);padding:.1rem 0 .1rem .9rem;margin-bottom:1.25rem}}
.call strong{{color:var(--fine)}}
.call.alarm{{border-color:var(--alarm);border-left-width:8px}}
.call.alarm strong{{color:var(--alarm)}}
.call.caution{{border-color:var(--down);margin-bottom:.8rem}}
.verdicts{{list-style:none}}
.verdicts li{{position:relative;padding-left:1.6rem}}
.verdicts li+li,.said li+li{{margin-top:.8rem}}
.verdicts .claim{{display:block;font-weight:600}}
.verdicts .evidence{{display:block;line-height:1.45;margin-top:.1rem}}
.verdicts .mark{{position:absolute;left:0;color:var(--quiet)}}
.verdicts .better .mark{{color:var(--up)}}
.verdicts .worse .mark{{color:var(--down)}}
.said{{padding-left:1.2rem;max-width:46rem}}
.said li+li{{margin-top:.45rem}}
.pair{{display:grid;gap:1.5rem 2.5rem;margin:1rem 0 1.25rem;align-items:start}}
.pair>*,dd{{min-width:0}}
figure svg{{display:block;max-width:100%;height:auto}}
figure+figure,figure+.said,figure+p,.scroll+.said{{margin-top:1.5rem}}
.key{{max-width:46rem;margin:-.4rem 0 1.25rem}}
svg text{{font-family:inherit}}
{_RECOLOURED}
.scroll{{overflow-x:auto;margin-top:1rem}}
.scroll+p{{margin-top:1.5rem}}
table{{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}}
.wide{{width:100%}}
th,td{{padding:.4rem .7rem;text-align:left;vertical-align:baseline;border-bottom:1px solid var(--line)}}
th:first-child{{padding-left:0}}
td:last-child,thead th:last-child{{padding-right:0}}
thead th{{color:var(--muted);font-weight:500;white-space:nowrap;border-bottom-color:var(--muted)}}
tbody th{{font-weight:600}}
tbody .sub th{{font-weight:400;padding-left:1rem}}
.n{{text-align:right;white-space:nowrap}}
.whole{{white-space:nowrap}}
dl{{display:grid;grid-template-columns:fit-content(16rem) 1fr;gap:.4rem 1.5rem}}
dt{{color:var(--muted)}}
code{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.9em}}
footer{{margin-top:2.5rem;padding-top:1rem;border-top:1px solid var(--line)}}
@media (min-width:58rem){{.pair{{grid-template-columns:1fr 27.5rem}}.pair.words{{grid-template-columns:1fr}}}}
@media screen and (max-width:40rem){{
main{{padding:1.5rem 1rem 2rem}}
h1{{font-size:1.6rem}}
dl{{grid-template-columns:1fr;gap:0}}dd{{margin-bottom:.6rem}}
th,td{{padding:.35rem .5rem}}
.cards,.cards tbody,.cards th,.cards td{{display:block}}
.cards thead{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}
.cards tr{{display:grid;grid-template-columns:1fr 1fr;gap:.3rem 1rem;padding:.7rem 0;
border-bottom:1px solid var(--line)}}
.cards th,.cards td{{border:0;padding:0;text-align:left;white-space:normal}}
.cards tbody tr:last-child{{border-bottom:0}}
.few tr{{grid-template-columns:repeat(4,1fr)}}
.cards th{{grid-column:1/-1;min-width:0;overflow-wrap:anywhere}}
.cards .sub th{{padding-left:0}}
.cards td::before{{content:attr(data-label);display:block;color:var(--muted);font-size:.8rem;line-height:1.2}}
}}
@media print{{
@page{{margin:16mm 14mm}}
html{{font-size:10pt}}
body{{line-height:1.4}}
main{{max-width:none;padding:0}}
section{{margin-top:1.6rem;padding-top:1.2rem}}
h1,h2,h3,.kicker,.unit,.key,summary,p:has(+.scroll),.said:has(+.scroll),.said li:first-child{{break-after:avoid}}
article,figure,table,tr,li,.call,dd{{break-inside:avoid}}
.scroll+.said,.scroll+p,footer{{break-before:avoid}}
footer{{margin-top:1rem}}
p,li{{orphans:3;widows:3}}
.pair{{grid-template-columns:1fr 9.5cm;gap:.6cm}}.pair.words{{grid-template-columns:1fr}}
table{{font-size:.85rem}}th,td{{padding:.25rem .45rem}}
.scroll{{overflow:visible}}
svg *{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
}}
"""
