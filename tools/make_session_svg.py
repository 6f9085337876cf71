#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records what commands write to a terminal and draws it as an SVG that plays it at its own speed.

make_session_svg.py OUT.svg COMMAND...: each COMMAND is a line of a shell, shown after a prompt as typed.
Colours follow the reader's scheme. Nothing but Python's own library."""
import html
import os
import pty
import re
import subprocess
import sys
import time

COLUMNS, LINE, CHAR, PAD = 100, 18, 7.85, 14
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b.")


def record(command):
    """[(seconds, text)] as the command wrote it to a terminal of COLUMNS."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "cols", str(COLUMNS), "rows", "40"], stdin=slave, check=True)
    start, pieces = time.monotonic(), []
    child = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
    os.close(slave)
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        pieces.append((time.monotonic() - start, data))
    if child.wait() != 0:
        sys.exit(f"{command}: ended with {child.returncode}")
    text, out = b"", []
    for at, data in pieces:  # characters are not cut
        text += data
        good = text.decode("utf-8", "ignore")
        out.append((at, good))
        text = text[len(good.encode()):]
    return out


class Screen:
    """Lines of cells: (second, character, kind). Knows of escapes what programs that write lines use:
    cursor left and right, erase to the end of the line, faint."""

    def __init__(self):
        self.lines, self.column, self.kind = [[]], 0, ""

    def put(self, at, text):
        for part in re.split(r"(\r\n|[\r\n\b]|\x1b\[[0-9;?]*[A-Za-z]|\x1b.)", text):
            if part in ("\r\n", "\n"):
                self.lines.append([])
                self.column = 0
            elif part == "\r":
                self.column = 0
            elif part == "\b":
                self.column = max(self.column - 1, 0)
            elif part and ESCAPE.fullmatch(part):
                self.escape(*ESCAPE.fullmatch(part).groups())
            elif part:
                self.write(at, part)

    def escape(self, numbers, letter):
        n = int(numbers) if numbers and numbers.isdigit() else 1
        if letter == "m":
            self.kind = "dim" if "2" in numbers.split(";") else ""
        elif letter == "K":
            del self.lines[-1][self.column:]
        elif letter in ("D", "C"):
            self.column = max(self.column + (n if letter == "C" else -n), 0)
        elif letter == "G":
            self.column = n - 1

    def write(self, at, text):
        for c in text:
            if self.column >= COLUMNS:
                self.lines.append([])
                self.column = 0
            line = self.lines[-1]
            line += [(at, " ", "")] * (self.column - len(line))
            line[self.column:self.column + 1] = [(at, c, self.kind)]
            self.column += 1


def runs(line):
    """[(column, second, text, kind)]: neighbours that came together."""
    out = []
    for column, (at, c, kind) in enumerate(line):
        if out and out[-1][1] == at and out[-1][3] == kind:
            out[-1][2] += c
        else:
            out.append([column, at, c, kind])
    return [r for r in out if r[2].strip()]


def draw(lines):
    while lines and not lines[-1]:
        lines.pop()
    width, height = int(COLUMNS * CHAR + 2 * PAD), len(lines) * LINE + 2 * PAD
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="A recorded session">',
        "<style>text { font: 13px ui-monospace, monospace; fill: #24292f; white-space: pre } .page { fill: #f6f8fa }",
        ".dim { fill: #6e7781 } .typed { font-weight: 600 } .late { opacity: 0; animation: come 1ms forwards }",
        "@keyframes come { to { opacity: 1 } } @media (prefers-reduced-motion: reduce) { .late { opacity: 1; animation: none } }",
        "@media (prefers-color-scheme: dark) { text { fill: #d0d7de } .page { fill: #14171a } .dim { fill: #8b949e } }</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
    ]
    for n, line in enumerate(lines):
        for column, at, text, kind in runs(line):
            classes = " ".join(c for c in ("late" if at > 0 else "", kind) if c)
            style = f' style="animation-delay:{at:.2f}s"' if at > 0 else ""
            x, y = PAD + column * CHAR, PAD + n * LINE + 13
            out.append(f'<text class="{classes}" x="{x:.1f}" y="{y}" textLength="{len(text) * CHAR:.1f}"{style}>{html.escape(text)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    screen, at = Screen(), 0.0
    for command in sys.argv[2:]:
        screen.write(at, "$ ")
        screen.kind = "typed"
        screen.put(at, command + "\n")
        screen.kind = ""
        pieces = record(command)
        for seconds, text in pieces:
            screen.put(at + 0.5 + seconds, text)
        at += 1.5 + (pieces[-1][0] if pieces else 0)
        screen.put(at, "\n")
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write(draw(screen.lines))


if __name__ == "__main__":
    main()
