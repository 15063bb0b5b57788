"""Charts as SVG, readable on light and on dark pages."""

import math
from html import escape

STYLE = """<style>
text{font:13px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#24292f}
.page{fill:#fff}.axis{stroke:#57606a;stroke-width:1}.grid{stroke:#d0d7de;stroke-width:1}
.small{font-size:12px;fill:#57606a}.title{font-size:15px;font-weight:600}
.s0{stroke:#0969da;fill:#0969da}.s1{stroke:#bf5a00;fill:#bf5a00}.s2{stroke:#8250df;fill:#8250df}.s3{stroke:#1a7f37;fill:#1a7f37}
.tidegate{fill:#0969da}.peer{fill:#8c959f}.ceiling{fill:#d0d7de}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.page{fill:#0d1117}.axis{stroke:#8b949e}.grid{stroke:#30363d}.small{fill:#9da7b1}
.s0{stroke:#58a6ff;fill:#58a6ff}.s1{stroke:#f0883e;fill:#f0883e}.s2{stroke:#bc8cff;fill:#bc8cff}.s3{stroke:#3fb950;fill:#3fb950}
.tidegate{fill:#58a6ff}.peer{fill:#6e7681}.ceiling{fill:#30363d}}
</style>"""


def document(width, height, title, parts):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        STYLE,
        f'<rect class="page" width="{width}" height="{height}"/>',
        *parts,
        "</svg>\n",
    ])


def label(x, y, words, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def bars(title, unit, rows):
    """A bar for each row of (name, value, role, text), the best first as given."""
    left, width, height = 310, 800, 60 + 30 * len(rows)
    longest = max((value for _, value, _, _ in rows), default=1) or 1
    parts = [label(16, 24, title, kind="title"), label(16, 44, unit, kind="small")]
    for index, (name, value, role, words) in enumerate(rows):
        y = 56 + 30 * index
        length = max((width - left - 130) * value / longest, 1)
        parts.append(label(left - 10, y + 15, name, "end"))
        parts.append(f'<rect x="{left}" y="{y}" width="{length:.1f}" height="20" rx="2" class="{role}"/>')
        parts.append(label(left + length + 8, y + 15, words, kind="small"))
    return document(width, height, title, parts)


def ticks(most):
    """Round numbers from zero to beyond the most."""
    step = 10 ** math.floor(math.log10(most)) if most > 0 else 1
    step = next(step * part for part in (0.2, 0.5, 1, 2) if most / (step * part) <= 6)
    return [step * index for index in range(math.ceil(most / step) + 1)]


def short(value):
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def lines(title, x_label, y_label, series, is_linear=False):
    """A line for each of (name, [(x, low, middle, high)]), over a logarithmic x axis or a linear one."""
    width, height, left, right, top, bottom = 760, 380, 74, 24, 62, 60
    points = [point for _, line in series for point in line]
    xs = sorted({point[0] for point in points})
    marks = ticks(max(point[3] for point in points))
    scale = float if is_linear else math.log10
    low, high = scale(xs[0]), scale(max(xs[-1], xs[0] * 1.01))

    def at_x(x):
        return left + (width - left - right) * (scale(x) - low) / (high - low)

    def at_y(y):
        return height - bottom - (height - top - bottom) * y / marks[-1]

    parts = [label(16, 24, title, kind="title")]
    for mark in marks:
        y = at_y(mark)
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(label(left - 8, y + 4, f"{mark:g}", "end", "small"))
    for x in xs[:: max(len(xs) // 10, 1)]:
        parts.append(label(at_x(x), height - bottom + 20, short(x), "middle", "small"))
    parts.append(f'<line x1="{left}" x2="{width - right}" y1="{at_y(0):.1f}" y2="{at_y(0):.1f}" class="axis"/>')
    parts.append(label((left + width - right) / 2, height - 14, x_label, "middle"))
    parts.append(f'<text transform="translate(20 {(top + height - bottom) / 2:.1f}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>')
    for index, (name, line) in enumerate(series):
        kind = f"s{index % 4}"
        path = " ".join(f"{at_x(x):.1f},{at_y(middle):.1f}" for x, _, middle, _ in line)
        parts.append(f'<polyline points="{path}" class="{kind}" style="fill:none" stroke-width="2"/>')
        for x, least, middle, most in line:
            parts.append(f'<line x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{at_y(least):.1f}" y2="{at_y(most):.1f}" class="{kind}"/>')
            parts.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(middle):.1f}" r="3.5" class="{kind}"/>')
        at = left + index * 165
        parts.append(f'<rect x="{at}" y="38" width="14" height="4" class="{kind}"/>')
        parts.append(label(at + 20, 45, name, kind="small"))
    return document(width, height, title, parts)
