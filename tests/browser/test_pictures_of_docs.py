"""Claims about the explorer's pictures in the documentation: each is made by tests, from its source."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest
import tutorial
from explorer_pictures import IMAGES, PICTURES, make, played
from trace_text import parse, write

from haloscope.scope.analysis.analyze import analyze

DOCS = IMAGES.parent
TRACES = Path(__file__).parents[1] / "unit" / "gpu_traces"


def test_every_picture_that_the_docs_show_has_its_maker() -> None:
    texts = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    shown = {name for text in texts for name in re.findall(r"images/(explorer-[\w-]+)\.png", text)}
    assert shown == PICTURES.keys()
    assert shown == {path.stem for path in IMAGES.glob("explorer-*.png")}


def _on_gpus(folder: Path) -> tuple[Path, Path]:
    """Two traces of GPUs that were worked out by hand."""
    folders = []
    for name in ("work_of_streams", "nccl"):
        lines = (TRACES / f"{name}.trace").read_text().splitlines()
        tables = (["breakdown"], ["late"])
        (folder / name).mkdir()
        write(parse("\n".join(x for x in lines if x.split()[:1] not in tables)), folder / name)
        analyze(folder / name)
        folders.append(folder / name)
    return folders[0], folders[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_pictures_are_made(chromium: Any, tmp_path: Path) -> None:
    sources = {"played": played(tmp_path), "gpus": _on_gpus(tmp_path)}
    if not tutorial.lacks():
        sources["tutorial"] = tutorial.follow(tmp_path / "tutorial")
    assert make(chromium, sources, tmp_path) == []
    for name, picture in PICTURES.items():
        if picture.source in sources:
            made = (tmp_path / f"{name}.png").read_bytes()
            assert struct.unpack(">2I", made[16:24]) == (1280, picture.height)
            assert len(made) > 40_000, name  # an empty page has less
