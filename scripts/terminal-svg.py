#!/usr/bin/env python3
"""Turns the output of a terminal program into a picture: terminal-svg.py TITLE <output >picture.svg"""

import html
import re
import sys

WIDTH, LINE, PAD, CHAR = 118, 17, 14, 7.8
lines = []
for raw in sys.stdin.read().splitlines():
    bold = "\x1b[1m" in raw
    text = re.sub(r"\x1b\[[0-9;]*m", "", raw)
    while len(text) > WIDTH:
        lines.append((text[:WIDTH], bold))
        text = "    " + text[WIDTH:]
    lines.append((text, bold))
w, h = WIDTH * CHAR + 2 * PAD, (len(lines) + 2) * LINE + 2 * PAD
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w:.0f} {h}" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13">')
print(f'<title>{html.escape(sys.argv[1])}</title><rect width="100%" height="100%" rx="8" fill="#10151c"/>')
print(f'<text x="{PAD}" y="{PAD + 12}" fill="#7d8996">{html.escape(sys.argv[1])}</text>')
y = PAD + 2 * LINE + 6
for text, bold in lines:
    color = "#9ecbff" if bold else "#ffd479" if text.startswith("warning") else "#d6dde4"
    weight = ' font-weight="bold"' if bold else ""
    if text.strip():
        print(f'<text x="{PAD}" y="{y}" fill="{color}" xml:space="preserve"{weight}>{html.escape(text)}</text>')
    y += LINE
print("</svg>")
