"""One picture of what drive.py has measured: bars, as SVG that is legible on light and on dark pages."""
import statistics
from xml.sax.saxutils import escape

import report

LEFT, BAR, GAP, ROW, TOP = 210, 250, 60, 17, 44  # names, bars of one thread count, between two such, a line, the title
FULL = 1.5  # times the reference, where a bar ends at the latest
COLOURS = {"by_hand": "#8c8c8c", "trainer": "#4c8bd6", "callbacks": "#86b3e6", "tuned": "#2fa36b",
           "tuned_bf16": "#86cba8"}
OTHERS = "#d98a3d"
STYLE = """text { font: 12px system-ui, sans-serif; fill: #3d444d }
  .faint { fill: #6e7781 } .title { font-weight: 600 } .line { stroke: #6e7781; stroke-dasharray: 3 3 }
  .error { stroke: #3d444d; stroke-width: 1.2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #d1d7e0 } .faint { fill: #9198a1 } .line { stroke: #9198a1 } .error { stroke: #f0f6fc }
  }"""


def text(x, y, words, kind="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def bar(x, y, variant, span):
    """With a line over the middle half of the rounds; an arrow if it does not fit."""
    low, middle, high = (x + BAR / FULL * min(ratio, FULL) for ratio in span)
    colour = COLOURS.get(variant, OTHERS)
    box = f'<rect x="{x:.1f}" y="{y - 11:.1f}" width="{middle - x:.1f}" height="12" rx="2" fill="{colour}"/>'
    number = f"{span[1]:.2f}" if span[1] <= FULL else f"→ {span[1]:.2f}"
    return [box, line(low, y - 5, high, y - 5, "error"), text(high + 5, y, number)]


def svg(results):
    tables = {(table["workload"], table["threads"]): table for table in results["tables"]}
    workloads = list(dict.fromkeys(workload for workload, _ in tables))
    threads = sorted({number for _, number in tables})
    parts, y = [], TOP
    for workload in workloads:
        there = [tables[workload, number] for number in threads if (workload, number) in tables]
        variants = [v for v in report.LABELS if v != report.REFERENCE and any(v in t["variants"] for t in there)]
        parts.append(text(8, y + ROW, report.WORKLOADS[workload], "title"))
        y += 2 * ROW
        for table in there:
            x = LEFT + (BAR + GAP) * threads.index(table["threads"])
            one, bottom = x + BAR / FULL, y + ROW * len(variants)
            unit = report.duration(statistics.median(table["variants"][report.REFERENCE]["wall_us"]))
            parts.append(line(one, y, one, bottom, "line"))
            parts.append(text(one, y - 4, f"1 = {unit}", "faint", "middle"))
            for i, variant in enumerate(variants):
                if variant in table["variants"]:
                    parts += bar(x, y + ROW * (i + 1) - 4, variant, report.ratios(table, variant, "wall_us"))
        for i, variant in enumerate(variants):
            parts.append(text(LEFT - 8, y + ROW * (i + 1) - 4, report.LABELS[variant], "", "end"))
        y += ROW * len(variants) + 8
    width, height = LEFT + (BAR + GAP) * len(threads), y + 8
    heads = [text(8, 16, "Time of a training step, on the wall. 1 is a loop like PyTorch's C++ examples.", "title")]
    for i, number in enumerate(threads):
        heads.append(text(LEFT + (BAR + GAP) * i, 36, "one thread" if number == 1 else f"{number} threads", "faint"))
    body = "\n".join(heads + parts)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{body}\n</svg>\n'
