"""What a picture's header promises, and the bounds that every reader of headers keeps."""

from __future__ import annotations

from typing import NamedTuple

# Readers walk a file's parts in Python; a file made of millions of tiny ones would hold a thread for long.
MAX_PARTS = 100_000


class Header(NamedTuple):
    """A still picture before decoding; width and height are as stored, before `orientation` is applied."""

    kind: str
    width: int
    height: int
    # EXIF tag 0x0112: 1 is upright, 5 to 8 exchange width and height.
    orientation: int = 1
    # A JPEG that its codec turns into RGB by itself.
    direct: bool = False

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) after the orientation is applied."""
        return (self.height, self.width) if self.orientation > 4 else (self.width, self.height)
