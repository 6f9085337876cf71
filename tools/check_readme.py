# SPDX-License-Identifier: MIT
"""The documents rendered and looked at: see check_readme.sh. check_readme.py [FOLDER]"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from page_browser import Browser, Page  # noqa: E402

#: of a page of text, as wide as a forge shows it, and what is seen at once on a usual screen
WIDTH, SCREEN = 1012, 1200
#: what the README's first screen ends with
LAST = "make test"
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><base href="file://{folder}/"><title>{title}</title><style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: {width}px; margin: 0 auto; padding: 0 16px }}
img {{ max-width: 100% }} table {{ display: block; overflow: auto; border-collapse: collapse; font-size: 14px }} td, th {{ border: 1px solid #8886; padding: 4px 10px }}
pre {{ overflow: auto; padding: 10px; background: #8882 }} code {{ font: 13px ui-monospace, monospace }}
h1, h2 {{ border-bottom: 1px solid #8886 }} p, table, pre {{ margin: 0 0 12px }} p {{ overflow-wrap: anywhere }}
</style></head><body>{body}</body></html>"""


def rows_of(path):
    """Rows of tables, with the number of cells in each and in its table's head."""
    inside, head = False, None
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        inside ^= line.startswith("```")
        if inside or not line.startswith("|"):
            head = None
            continue
        n_cells = len(re.findall(r"(?<!\\)\|", line.rstrip())) - 1
        head = head or n_cells
        yield number, n_cells, head


def render(path, into):
    command = ["cmark-gfm", "--unsafe", "-e", "table", "-e", "autolink", path]
    body = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    folder = os.path.join(ROOT, os.path.dirname(path))
    name = os.path.join(into, path.replace("/", "_") + ".html")
    with open(name, "w", encoding="utf-8") as file:
        file.write(PAGE.format(folder=folder, title=path, body=body, width=WIDTH))
    return name


def problems_of(page, path):
    """What is amiss in the page that is open."""
    for source in page.evaluate("[...document.images].filter((i) => !i.naturalWidth || !i.alt).map((i) => i.src)"):
        yield f"an image is not there, or has no words: {source}"
    # What belongs to a table is in none: a row that its writer broke
    for text in page.evaluate(
        "[...document.querySelectorAll('p, li')].map((p) => p.textContent).filter((t) => /^\\||\\|\\s*-{3}/m.test(t))"
    ):
        yield f"a table that is none: {text[:60]}"
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        yield "wider than the window"
    yield from (f"says: {error}" for error in page.errors)
    if path == "README.md":
        bottom = page.evaluate(
            "Math.max(0, ...[...document.querySelectorAll('pre')].filter((p) => p.textContent.includes("
            f"'{LAST}')).slice(0, 1).map((p) => p.getBoundingClientRect().bottom + scrollY))"
        )
        if not 0 < bottom <= SCREEN:
            yield f"'{LAST}' ends at {bottom:.0f} of {SCREEN} points"


def main():
    pictures = sys.argv[1] if len(sys.argv) > 1 else None
    os.chdir(ROOT)
    documents = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "python/README.md", "models/demo/README.md"]
    documents += sorted(glob.glob("docs/*.md"))
    failed = []
    for path in documents:
        for number, n_cells, n_wanted in rows_of(path):
            if n_cells != n_wanted:
                failed.append(f"{path}:{number}: {n_cells} cells in a table of {n_wanted}")
    browser = Browser(shutil.which("chromium") or "chromium")
    try:
        with tempfile.TemporaryDirectory() as into:
            for scheme in ("light", "dark"):
                page = Page(browser)
                page.media(prefers_color_scheme=scheme)
                page.size(1280, SCREEN)
                for path in documents:
                    page.errors.clear()
                    page.open("file://" + render(path, into))
                    page.wait("[...document.images].every((i) => i.complete)", "images")
                    failed += [f"{path} ({scheme}): {what}" for what in problems_of(page, path)]
                    if pictures and path == "README.md":
                        page.screenshot(f"{pictures}/readme-{scheme}.png")
                        page.size(1280, page.evaluate("document.documentElement.scrollHeight"))
                        page.screenshot(f"{pictures}/readme-{scheme}-whole.png")
                        page.size(1280, SCREEN)
                page.close()
    finally:
        browser.close()
    for what in failed:
        print("readme:", what, file=sys.stderr)
    if failed:
        sys.exit(1)
    print(f"readme: {len(documents)} documents, in two schemes")


main()
