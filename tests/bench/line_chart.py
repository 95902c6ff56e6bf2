"""Line charts side by side as one SVG that reads in light and dark pages, without a library."""

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
WIDTH, HEIGHT = 300, 210  # of one chart
LEFT, TOP, RIGHT, BOTTOM = 56, 30, 12, 40  # around its lines


def _ticks(highest):
    """Round values from 0 up to at least `highest`, four steps at most."""
    for step in (m * 10**e for e in range(12) for m in (1, 2, 2.5, 5)):
        if step * 4 >= highest:
            count = -(-highest // step)
            return [step * i for i in range(int(count) + 1)]
    raise ValueError(f"no scale for {highest}")


def _chart(at, title, x_title, values, lines):
    """values: of the x axis, drawn evenly; lines: {name: heights}."""
    ticks = _ticks(max(max(heights) for heights in lines.values()))
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(i):
        return at + LEFT + inner_width * (i + 0.5) / len(values)

    def y(value):
        return TOP + inner_height * (1 - value / ticks[-1])

    out = [f'<text x="{at + LEFT}" y="16" font-weight="bold">{title}</text>',
           f'<text x="{at + LEFT + inner_width / 2}" y="{HEIGHT - 4}" text-anchor="middle">'
           f"{x_title}</text>"]
    for tick in ticks:
        out.append(f'<path d="M{at + LEFT} {y(tick):.1f}h{inner_width}" stroke="#8884"/>')
        out.append(f'<text x="{at + LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">'
                   f"{tick:,.0f}</text>")
    for i, value in enumerate(values):
        out.append(f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                   f"{value}</text>")
    for (name, heights), colour in zip(lines.items(), COLOURS):
        points = " ".join(f"{x(i):.1f},{y(height):.1f}" for i, height in enumerate(heights))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(i):.1f}" cy="{y(height):.1f}" r="3" fill="{colour}">'
                f"<title>{name}: {height:,.0f}</title></circle>"
                for i, height in enumerate(heights)]
    return out


def svg(charts, names):
    """charts: [(title, x title, values, {name: heights})]; names: of the legend, in order."""
    width = WIDTH * len(charts)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + 24}" '
           f'width="{width}" font-family="sans-serif" font-size="11">',
           "<style>text{fill:#444}@media(prefers-color-scheme:dark){text{fill:#ccc}}</style>"]
    for i, chart in enumerate(charts):
        out += _chart(i * WIDTH, *chart)
    for i, (name, colour) in enumerate(zip(names, COLOURS)):
        out.append(f'<path d="M{LEFT + i * 130} {HEIGHT + 12}h20" stroke="{colour}" '
                   f'stroke-width="2"/><text x="{LEFT + 26 + i * 130}" y="{HEIGHT + 16}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])
