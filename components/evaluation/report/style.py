"""Style: the sheet of the page. Made for 390 pixels first; wide screens and paper get more of the same."""

SHEET = """
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5c6776;--line:#dde2e8;--card:#f5f7f9;--page:#fff;--good:#136f4d;--bad:#a8281b;
--good-soft:#e5f4ec;--bad-soft:#fbe9e6;--a:#4a6fa5;--b:#136f4d}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#9aa7b6;--line:#333c48;--card:#1c222b;--page:#12161c;--good:#5cc79a;
--bad:#f08a7c;--good-soft:#16322a;--bad-soft:#3a1f1d;--a:#8fb0e0;--b:#5cc79a}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
overflow-wrap:anywhere}
main,header,footer{max-width:60rem;margin:0 auto;padding:0 1rem}
h1{font-size:1.25rem;margin:1rem 0 0}
h2{font-size:1.15rem;margin:2rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
p{margin:.5rem 0}
.subtitle,.quiet,caption,figcaption,footer{color:var(--soft);font-size:.875rem}
p.good,h3.good{color:var(--good)}p.bad,h3.bad{color:var(--bad)}
nav{display:flex;flex-wrap:wrap;gap:.25rem .5rem;margin:.75rem 0}
nav a{color:inherit;text-decoration:none;border:1px solid var(--line);border-radius:1rem;padding:.2rem .7rem;font-size:.875rem}
.banner{border-radius:.75rem;padding:1rem;margin:1rem 0;background:var(--card)}
.banner.good{background:var(--good-soft)}.banner.bad{background:var(--bad-soft)}
.banner.good .word{color:var(--good)}.banner.bad .word{color:var(--bad)}
.word{font-size:1.6rem;font-weight:700;line-height:1.2}
.numbers{display:flex;flex-wrap:wrap;gap:.5rem 1.5rem;margin:.75rem 0 0}
.numbers div{display:flex;flex-direction:column-reverse}
.numbers dt{color:var(--soft);font-size:.8125rem}
.numbers dd{margin:0;font-size:1.35rem;font-weight:600;color:var(--ink);font-variant-numeric:tabular-nums}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding-bottom:.25rem}
th,td{text-align:right;padding:.3rem .5rem;border-bottom:1px solid var(--line);vertical-align:top}
th,td{overflow-wrap:normal}th:first-child{text-align:left;overflow-wrap:anywhere}
.text{overflow-wrap:anywhere}.figure{white-space:nowrap}.scroll{overflow-x:auto}
thead th{font-size:.8125rem;color:var(--soft);font-weight:600}
tbody th{font-weight:600}
tr.good th{color:var(--good)}tr.bad th{color:var(--bad)}tr.quiet{color:var(--soft)}
figure{margin:1rem 0}
figure img{display:block;width:100%;max-width:44rem;height:auto}
figcaption{margin-top:.25rem}
pre,code{font:.8125rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;direction:ltr;text-align:left}
.quoted{background:var(--card);border-radius:.4rem;padding:.4rem .6rem;margin:.35rem 0;overflow:hidden}
.label{color:var(--soft);font-size:.75rem;font-weight:600}
.sides{display:grid;gap:0 .75rem}
.left .quoted{border-left:3px solid var(--a)}.right .quoted{border-left:3px solid var(--b)}
details{margin:.35rem 0}
summary{cursor:pointer;color:var(--soft);font-size:.875rem;padding:.25rem 0}
.commands dt{margin-top:.6rem}.commands dd{margin:0;color:var(--soft);font-size:.875rem}
.commands code{display:block;background:var(--card);border-radius:.4rem;padding:.4rem .6rem}
footer{margin:2rem auto;border-top:1px solid var(--line);padding-top:.75rem}
@media (max-width:599px){table{font-size:.8125rem}thead th{font-size:.75rem}th,td{padding:.3rem .2rem}
th:first-child{padding-left:0;min-width:5rem}.text{min-width:5.25rem}}
@media (min-width:800px){.sides{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}}
@media print{
:root{color-scheme:light;--ink:#000;--soft:#444;--line:#bbb;--card:#f4f4f4;--page:#fff;--good:#136f4d;--bad:#a8281b;
--good-soft:#fff;--bad-soft:#fff;--a:#4a6fa5;--b:#136f4d}
body{font-size:11pt}nav{display:none}
.banner{border:1px solid #bbb}
h2,h3{break-after:avoid}figure,tr,.quoted{break-inside:avoid}
details::details-content{content-visibility:visible;height:auto;display:block}
}
"""
