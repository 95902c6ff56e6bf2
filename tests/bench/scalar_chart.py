"""Scalars of runs over their steps as one SVG that reads in light and dark pages, without a library."""
import math

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
WIDTH, HEIGHT, COLUMNS = 300, 190, 3  # of one chart, and how many stand in a row
LEFT, TOP, RIGHT, BOTTOM = 58, 30, 12, 30  # around its lines


def _ticks(low, high):
    """Round values that hold low to high, five steps at most."""
    if not high > low:
        low, high = low - abs(low) / 2 - 1e-9, high + abs(high) / 2 + 1e-9
    scale = 10 ** math.floor(math.log10((high - low) / 5))
    step = next(m * scale for m in (1, 2, 5, 10) if m * scale * 5 >= high - low)
    first = math.floor(low / step)
    return [step * i for i in range(first, math.ceil(high / step) + 1)]


def _chart(left, top, title, runs):
    """runs: {name: [(step, value)]}."""
    points = [point for line in runs.values() for point in line]
    ticks = _ticks(min(v for _, v in points), max(v for _, v in points))
    first, last = min(s for s, _ in points), max(s for s, _ in points)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(step):
        return left + LEFT + inner_width * (step - first) / max(1, last - first)

    def y(value):
        return top + TOP + inner_height * (1 - (value - ticks[0]) / (ticks[-1] - ticks[0]))

    out = [f'<text x="{left + LEFT}" y="{top + 18}" font-weight="bold">{title}</text>']
    for tick in ticks:
        out.append(f'<path d="M{left + LEFT} {y(tick):.1f}h{inner_width}" stroke="#8884"/>')
        out.append(f'<text x="{left + LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">'
                   f"{tick:.4g}</text>")
    for step in (first, last):
        out.append(f'<text x="{x(step):.1f}" y="{top + HEIGHT - BOTTOM + 16}" '
                   f'text-anchor="middle">{step}</text>')
    for (name, line), colour in zip(runs.items(), COLOURS):
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5">'
                   f"<title>{name}</title></polyline>")
    return out


def svg(charts):
    """charts: {tag: {run: [(step, value)]}}, drawn in rows; all have the same runs."""
    names = list(next(iter(charts.values())))
    rows = -(-len(charts) // COLUMNS)
    width, height = WIDTH * min(COLUMNS, len(charts)), HEIGHT * rows + 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" font-family="sans-serif" font-size="11">',
           "<style>text{fill:#444}@media(prefers-color-scheme:dark){text{fill:#ccc}}</style>"]
    for i, (tag, runs) in enumerate(charts.items()):
        out += _chart(i % COLUMNS * WIDTH, i // COLUMNS * HEIGHT, tag, runs)
    for i, (name, colour) in enumerate(zip(names, COLOURS)):
        out.append(f'<path d="M{LEFT + i * 200} {height - 10}h20" stroke="{colour}" '
                   f'stroke-width="2"/><text x="{LEFT + 26 + i * 200}" y="{height - 6}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])
