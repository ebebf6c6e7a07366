"""The report's style sheet and its one script, which sorts tables."""

from __future__ import annotations

CSS = """
*{box-sizing:border-box}
body{margin:0;background:#f4f5f7;color:#1f2937;
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1020px;margin:0 auto;padding:28px 16px 60px}
h1{font-size:26px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:0 0 12px}
h3{font-size:15px;margin:0 0 6px}
.sub{color:#6b7280;margin:0 0 14px}
nav{display:flex;flex-wrap:wrap;gap:6px;margin:0 0 18px}
nav a{font-size:13px;text-decoration:none;color:#1d4ed8;background:#fff;border:1px solid #dbe1ea;
border-radius:14px;padding:2px 10px}
section{background:#fff;border:1px solid #e5e7eb;border-radius:10px;padding:20px 24px;
margin:0 0 16px;scroll-margin-top:8px}
p,ul{margin:0 0 10px}
ul{padding-left:20px}
.small,figcaption{color:#6b7280;font-size:13px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;
margin:0 0 14px}
.cards div{background:#f8fafc;border:1px solid #e5e7eb;border-radius:8px;padding:10px 12px;
display:flex;flex-direction:column}
.cards span{color:#6b7280;font-size:12.5px}
.cards b{font-size:22px;line-height:1.3;overflow-wrap:anywhere}
.cards small{color:#6b7280;font-size:12.5px;line-height:1.4}
.callout{border-left:5px solid #94a3b8;background:#f8fafc;border-radius:6px;padding:12px 16px;
margin:0 0 14px}
.callout strong{display:block;margin-bottom:6px;font-size:16px}
.callout ul{margin:0;font-size:14px}
.callout.good{border-color:#16a34a;background:#f0fdf4}
.callout.unclear{border-color:#d97706;background:#fffbeb}
.callout.bad{border-color:#dc2626;background:#fef2f2}
figure{margin:0 0 20px;min-width:0}
figure svg{display:block;width:100%;height:auto;font-family:inherit}
figure path.l:hover{stroke-width:4}
svg .h{stroke:#fff;stroke-width:4px;paint-order:stroke}
.narrow{display:none}
.halves{display:grid;grid-template-columns:1fr 1fr;gap:8px 20px}
.scroll{overflow-x:auto;margin:0 0 12px;max-height:70vh;background:
linear-gradient(to right,#fff 40%,#fff0) left/48px 100% local,
linear-gradient(to left,#fff 40%,#fff0) right/48px 100% local,
linear-gradient(to right,#33415566,#33415500) left/18px 100% scroll,
linear-gradient(to left,#33415566,#33415500) right/18px 100% scroll,#fff;
background-repeat:no-repeat}
table{border-collapse:collapse;font-size:13px;width:100%}
th,td{padding:5px 9px;text-align:left;border-bottom:1px solid #eef0f3;vertical-align:top}
th{background:#f8fafc;position:sticky;top:0;white-space:nowrap;font-weight:600}
.sort th{cursor:pointer}
.sort th::after{content:" \\2195";color:#b6bdc8}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.mark td{background:#fff3e6}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
code{background:#f1f3f6;border-radius:4px;padding:1px 4px;font-size:.92em;overflow-wrap:anywhere}
pre{background:#111827;color:#e5e7eb;border-radius:8px;padding:12px 14px;overflow-x:auto;
font-size:12.5px;line-height:1.5;margin:0 0 12px;max-height:60vh}
td code{overflow-wrap:normal}
.long{min-width:17em}
summary{cursor:pointer;color:#1d4ed8;margin:0 0 8px}
@media (max-width:760px){
main{padding:16px 8px 40px}
section{padding:14px 12px}
h1{font-size:21px}
.wide{display:none}.narrow{display:block}
.halves{grid-template-columns:1fr}
.cards{grid-template-columns:1fr 1fr}
.cards b{font-size:19px}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
}
@media print{body{background:#fff}section{break-inside:avoid;border:0;padding:0}nav{display:none}}
""".replace("\n", "")

SCRIPT = """
document.querySelectorAll('table.sort').forEach(t=>t.tHead.addEventListener('click',e=>{
const th=e.target.closest('th');if(!th)return;
const i=th.cellIndex,b=t.tBodies[0],d=th.dataset.d=th.dataset.d==='1'?'-1':'1';
const v=r=>r.cells[i].textContent.trim();
b.append(...[...b.rows].sort((p,q)=>{const x=v(p),y=v(q),m=+x-+y;
return d*(isNaN(m)?x.localeCompare(y,undefined,{numeric:true}):m)}));
}));
"""
