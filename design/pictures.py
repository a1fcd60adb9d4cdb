#!/usr/bin/env python3
"""Writes the pictures of the README: `python3 design/pictures.py`, from the tables of `design/figures.md`.

With `--check` it writes nothing, and fails where a picture is not what it would write.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
THEMES = {
    "light": {"text": "#1f2328", "faint": "#d0d7de", "note": "#59636e", "peer": "#afb8c1", "reuse": "#6e7781",
              "own": "#0969da", "least": "#cf222e", "block": "#ddf4ff"},
    "dark": {"text": "#f0f6fc", "faint": "#3d444d", "note": "#9198a1", "peer": "#4c545d", "reuse": "#7d8590",
             "own": "#4493f8", "least": "#ff7b72", "block": "#121d2f"},
}


def table(header: str) -> dict[str, list[str]]:
    """The rows below a header of `figures.md`, by their first cell."""
    lines = (HERE / "figures.md").read_text().splitlines()
    rows = {}
    for line in lines[lines.index(header) + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name] = cells
    return rows


def text(x: float, y: float, content: str, fill: str, size: int = 13, anchor: str = "start", more: str = "") -> str:
    place = f'x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size}" text-anchor="{anchor}"'
    return f"<text {place}{more}>{content}</text>"


def bar(x: float, y: float, width: float, height: float, fill: str, more: str = "") -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="2" fill="{fill}"{more}/>'


def page(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    font = 'font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif"'
    return "\n".join([f'{head} {font} role="img">', f"<title>{title}</title>", *parts, "</svg>", ""])


def memory(colour: dict[str, str]) -> str:
    """Memory of captures in PyTorch, as a multiple of the least that any placement needs."""
    held = table("| program | PyTorch | reuse on | reuse, expandable | regraph |")
    least = table(
        "| capture | minimum | MiB: PyTorch / regraph / with a plan | mappings |"
        " whole capture, ms: PyTorch / with a plan | to plan and to map, percent of the capture before |"
    )
    names = {
        "decoder": "decoder, 1 stream",
        "mixture of experts": "mixture of experts, 6 streams",
        "GoogLeNet": "GoogLeNet, 4 streams",
        "pipeline": "pipeline, 5 streams",
        "decoder, training step": "decoder, training step",
        "mixture, training step": "mixture of experts, training step",
        "two towers, training step": "two towers, training step, 2 streams",
    }
    left, top, row, unit = 236, 62, 50, 108
    bottom = top + row * len(names)
    parts = []
    kinds = [("PyTorch", "peer"), ("PyTorch, reuse and expandable segments", "reuse"), ("regraph", "own")]
    for series, (name, fill) in enumerate(kinds):
        x = left + (0, 86, 410)[series]
        parts.append(bar(x, 12, 12, 12, colour[fill]))
        parts.append(text(x + 18, 23, name, colour["text"]))
    parts.append(text(left + unit, 50, "the least", colour["least"], 12, "middle"))
    for times in (2, 3, 4):
        x = left + unit * times
        line = f'<line x1="{x}" x2="{x}" y1="{top - 6}" y2="{bottom}" stroke="{colour["faint"]}"/>'
        parts += [line, text(x, 50, f"{times} times", colour["note"], 12, "middle")]
    for number, (short, name) in enumerate(names.items()):
        y = top + row * number
        parts.append(text(left - 12, y + 26, name.removesuffix(", 2 streams"), colour["text"], 13, "end"))
        minimum = int(least[short][0])
        default, _, reuse, regraph = (int(cell) for cell in held[name])
        for series, (mib, fill) in enumerate([(default, "peer"), (reuse, "reuse"), (regraph, "own")]):
            over = unit * mib / minimum
            parts.append(bar(left, y + 14 * series, over, 11, colour[fill]))
            label = f"{mib} MiB" if series == 0 else f"{mib}"
            parts.append(text(left + over + 6, y + 14 * series + 10, label, colour["note"], 11))
    least_at = f'x1="{left + unit}" x2="{left + unit}" y1="{top - 6}" y2="{bottom}"'
    parts.append(f'<line {least_at} stroke="{colour["least"]}" stroke-width="2"/>')
    return page(760, bottom + 8, "Memory that a capture reserves inside PyTorch, over the least that it needs", parts)


def idea(colour: dict[str, str]) -> str:
    """Two streams, one edge, one block."""

    def node(x: int, y: int, lines: tuple[str, str]) -> list[str]:
        box = f'<rect x="{x}" y="{y}" width="150" height="46" rx="6" fill="none" stroke="{colour["text"]}"/>'
        name = text(x + 75, y + 20, lines[0], colour["text"], 13, "middle")
        return [box, name, text(x + 75, y + 37, lines[1], colour["note"], 12, "middle")]

    def arrow(path: str, stroke: str, width: float = 1.5) -> str:
        line = f'stroke="{stroke}" stroke-width="{width}" marker-end="url(#{stroke[1:]})"'
        return f'<path d="{path}" fill="none" {line}/>'

    def head(fill: str) -> str:
        tip = f'<path d="M0 0 8 4 0 8z" fill="{fill}"/>'
        size = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
        return f'<marker id="{fill[1:]}" {size} orient="auto">{tip}</marker>'

    own, plain = colour["own"], colour["text"]
    parts = [f"<defs>{head(own)}{head(plain)}</defs>"]
    parts += [text(12, 48, "stream a", colour["note"]), text(12, 132, "stream b", colour["note"])]
    parts += node(90, 20, ("kernel 1", "writes X")) + node(540, 20, ("kernel 4", "a goes on"))
    parts += node(90, 104, ("kernel 2", "has its own memory")) + node(540, 104, ("kernel 3", "writes Y"))
    parts += [arrow("M240 43H540", plain), arrow("M240 136H540", plain)]
    parts.append(arrow("M240 52C310 52 310 84 390 84S470 116 538 116", own, 2.5))
    parts.append(text(362, 73, "one edge: b waits for a", own))
    parts.append(text(252, 36, "free(X)", colour["note"], 12))
    parts.append(text(532, 154, "allocate(Y) on b", colour["note"], 12, "end"))
    parts.append(bar(90, 178, 150, 30, colour["block"], f' stroke="{own}"'))
    parts.append(bar(540, 178, 150, 30, colour["block"], f' stroke="{own}"'))
    parts += [text(165, 198, "X", plain, 13, "middle"), text(615, 198, "Y", plain, 13, "middle")]
    parts.append(text(12, 198, "memory", colour["note"]))
    parts.append(f'<path d="M240 193H540" stroke="{own}" stroke-dasharray="4 4"/>')
    parts.append(text(390, 186, "one block: Y lies where X lay", colour["note"], 12, "middle"))
    parts.append(text(390, 208, "proven: 1 is completed before 3 starts", colour["note"], 12, "middle"))
    return page(710, 222, "Two streams, one edge, one block", parts)


def main() -> None:
    wrong = []
    for name, draw in [("idea", idea), ("memory", memory)]:
        for theme, colour in THEMES.items():
            path, drawn = HERE / f"{name}-{theme}.svg", draw(colour)
            if "--check" not in sys.argv[1:]:
                path.write_text(drawn)
            elif not path.exists() or path.read_text() != drawn:
                wrong.append(path.name)
    if wrong:
        sys.exit(f"{', '.join(wrong)}: not what design/figures.md says; run python3 design/pictures.py")


if __name__ == "__main__":
    main()
