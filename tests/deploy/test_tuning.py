"""How to choose your numbers: every command of the page runs as it is written, and the page says what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy import tuning_page
from sidecar.cli import application


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the page shows, of a smaller fleet, and some minutes of the log."""
    path = tmp_path_factory.mktemp("tuning")
    tuning_page.lay_out(path, minutes=range(18, 24), containers=3)
    return path


def test_page_has_commands_of_both_kinds() -> None:
    assert {words[0] for words in tuning_page.commands()} == {"simulate", "backtest"}


@pytest.mark.parametrize("words", tuning_page.commands(), ids=" ".join)
def test_command_runs_as_it_is_written(
    words: list[str], directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(directory)
    assert application.run(words, {}) == 0, capsys.readouterr().err
    for file in words[words.index("--html") + 1 :][:1] if "--html" in words else []:
        assert (directory / file).read_text().startswith("<!DOCTYPE html>")


def test_every_picture_of_the_page_is_made_by_it_and_is_small() -> None:
    shown = {path.name for path in tuning_page.IMAGES.glob("*.png")}
    assert shown == tuning_page.PICTURES.keys()
    assert all(f"](images/{name})" in tuning_page.PAGE.read_text() for name in shown)
    assert all((tuning_page.IMAGES / name).stat().st_size < 100_000 for name in shown)
