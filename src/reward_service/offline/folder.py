"""A folder of pictures as rows: captions beside the pictures, or one table for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from reward_service.errors import ConfigError
from reward_service.offline.rows import PROMPT_NAMES, Source, Values, open_table

TABLE_NAMES = ("captions.jsonl", "metadata.jsonl", "captions.csv", "metadata.csv")
PICTURE_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"})


def open_folder(path: Path) -> Source:
    """The rows of the folder *path*; raises ConfigError when it holds two tables."""
    tables = [path / name for name in TABLE_NAMES if (path / name).is_file()]
    if len(tables) > 1:
        names = " and ".join(table.name for table in tables)
        raise ConfigError(f"{path}: has {names}; name the one to use as the input")
    return open_table(tables[0]) if tables else CaptionedFolder(path)


@dataclass(frozen=True)
class CaptionedFolder:
    """Pictures of the folder and those below it, by name; ``a.png`` is captioned by ``a.txt`` or ``a.json``.

    A row has `image` (the path relative to the folder), `prompt` (None without a caption), and what a JSON
    caption holds besides.
    """

    path: Path
    schema: Any = None

    @property
    def base(self) -> Path:
        """The folder itself."""
        return self.path

    def rows(self) -> Iterator[Values]:
        """See `Source.rows`."""
        for folder, below, names in os.walk(self.path):
            below.sort()
            for name in sorted(names):
                if os.path.splitext(name)[1].lower() in PICTURE_ENDINGS:
                    yield self._row(Path(folder, name))

    def _row(self, picture: Path) -> Values:
        image = picture.relative_to(self.path).as_posix()
        try:
            image.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{self.path}: the file name {image!r} is not UTF-8; rename the file") from error
        text, table = picture.with_suffix(".txt"), picture.with_suffix(".json")
        if text.is_file():
            return {"image": image, "prompt": _read(text).decode("utf-8", "replace").strip()}
        if table.is_file():
            return {"image": image, **_caption(table)}
        return {"image": image, "prompt": None}


def _read(path: Path) -> bytes:
    return path.read_bytes().removeprefix(b"\xef\xbb\xbf")


def _caption(path: Path) -> Values:
    try:
        caption = orjson.loads(_read(path))
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{path}: not valid JSON ({error.msg}); correct it, or write a .txt caption") from error
    if isinstance(caption, str):
        return {"prompt": caption}
    if isinstance(caption, dict):
        prompt = next((caption[name] for name in PROMPT_NAMES if name in caption), None)
        return {"prompt": prompt, **{k: v for k, v in caption.items() if k not in ("prompt", "image")}}
    raise ConfigError(
        f"{path}: a caption is a JSON text or an object with one of {', '.join(PROMPT_NAMES)}, "
        f"not a {type(caption).__name__}"
    )
