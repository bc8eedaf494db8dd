"""The commands of ``deploy/tuning.md``, and its pictures: ``python tests/deploy/tuning_page.py`` makes them anew.

The pictures are parts of the pages that the commands write, as a browser shows them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parents[2]
PAGE: Final = TOP / "deploy" / "tuning.md"
LOG: Final = TOP / "deploy" / "simulate" / "morning.jsonl.gz"
IMAGES: Final = TOP / "deploy" / "images"
WIDTH_PX: Final = 760
PICTURES: Final = {"budget.png": ("sweep.html", "avoidable failed requests")}
"""Each picture: the page, and words of its caption; of several the last one."""


def commands() -> list[list[str]]:
    """The commands of the page that need no sidecar, each as words without the name of the program."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    every = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in every if words and words[1] in ("simulate", "backtest")]


def lay_out(directory: Path) -> None:
    """Write the files that the page shows, and the shipped log."""
    for name, text in re.findall(r"```toml\n# ([\w.-]+\.toml)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        (directory / name).write_text(text)
    copy = directory / LOG.relative_to(TOP)
    copy.parent.mkdir(parents=True)
    shutil.copyfile(LOG, copy)


def main() -> None:
    """Run the commands, and photograph the pages."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - slow, and not for tests

    from harness.binaries import require  # noqa: PLC0415 - as above
    from sidecar.cli import application  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as name, chdir(name), sync_playwright() as playwright:
        lay_out(Path(name))
        for words in commands():
            application.run(words, {})
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=options)
        page = browser.new_page(viewport={"width": WIDTH_PX, "height": 900})
        for picture, (file, caption) in PICTURES.items():
            page.goto(Path(name, file).as_uri())
            figure = page.locator(f'figure:has(> figcaption:text("{caption}"))').last
            figure.screenshot(path=str(IMAGES / picture))
        browser.close()


if __name__ == "__main__":
    sys.path[:0] = [str(TOP), str(TOP / "tests")]
    main()
