"""Videos: bytes are checked for size and container, paths for lying below a configured root."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from ..errors import BadMedia
from .refusals import beginning, describe

ACCEPTED = "MP4/MOV, WebM/Matroska, AVI, MPEG-TS, MPEG-PS, FLV, Ogg, WMV/ASF, GIF"

_BEGINNINGS = (
    b"\x1aE\xdf\xa3",  # EBML: WebM, Matroska
    b"\x00\x00\x01\xba",  # MPEG programme stream
    b"\x00\x00\x01\xb3",  # MPEG video stream
    b"FLV\x01",
    b"OggS",
    b"\x30\x26\xb2\x75\x8e\x66\xcf\x11",  # ASF: WMV
    b"GIF87a",
    b"GIF89a",
)
# QuickTime files from before `ftyp` begin with one of the others.
_MP4_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"})
_TS_PACKET, _M2TS_PACKET, _TS_SYNC = 188, 192, 0x47

# One text for every path that is not below a root: it must not tell whether the path exists.
_OUTSIDE = (
    "video_path is not an absolute path below one of the roots that this service reads videos from; "
    "put the file there, or send its bytes as video_b64"
)
_NO_ROOTS = "video_path is switched off: no video roots are configured; send the bytes as video_b64"


def check_video(blob: bytes, *, max_bytes: int) -> None:
    """Raise `BadMedia` if a video file is empty, larger than *max_bytes* or no known container.

    Whether the streams inside can be decoded is found out by the scorer.
    """
    _check_bytes(len(blob), max_bytes)
    if not _is_container(blob):
        raise BadMedia(f"not a video that is accepted ({ACCEPTED}): {beginning(blob)}")


def resolve_video_path(path: str, roots: Sequence[Path], *, max_bytes: int) -> Path:
    """The real path of a regular, readable, non-empty file below one of *roots*, free of symbolic links.

    *path* is absolute, without ``..``, and begins with a root as configured or as resolved; links below
    it may not lead out of the roots. Everything else raises `BadMedia`, with one and the same message
    for whatever is not below a root, whether it exists or not.
    """
    if not roots:
        raise BadMedia(_NO_ROOTS)
    resolved = _resolve_below(path, roots)
    try:
        status = resolved.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise BadMedia(f"no such video file: {path!r}") from None
    except OSError as error:
        raise BadMedia(f"the video file {path!r} cannot be reached: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise BadMedia(f"{path!r} is not a regular file; name a video file")
    _check_bytes(status.st_size, max_bytes)
    if not os.access(resolved, os.R_OK):
        raise BadMedia(f"the video file {path!r} may not be read by the service; change its permissions")
    return resolved


def _resolve_below(path: str, roots: Sequence[Path]) -> Path:
    named = Path(path)
    real_roots = [Path(os.path.realpath(root)) for root in roots]
    # By its text first: a path that only a look at the disk could rule out would tell what is on the disk.
    if (
        not named.is_absolute()
        or ".." in named.parts
        or not any(named.is_relative_to(root) for root in (*roots, *real_roots))
    ):
        raise BadMedia(_OUTSIDE)
    try:
        resolved = Path(os.path.realpath(named))
    except (OSError, ValueError):
        # A NUL byte, or a character that no file name can hold.
        raise BadMedia(_OUTSIDE) from None
    if not any(resolved.is_relative_to(root) for root in real_roots):
        raise BadMedia(_OUTSIDE)
    return resolved


def _check_bytes(size: int, max_bytes: int) -> None:
    if size == 0:
        raise BadMedia("the video is empty (0 bytes)")
    if size > max_bytes:
        raise BadMedia(f"video of {size:,} bytes; the bound is {max_bytes:,}, send a shorter or smaller clip")


def _is_container(blob: bytes) -> bool:
    if blob.startswith(_BEGINNINGS):
        return True
    if blob[4:8] in _MP4_BOXES:
        # AVIF and HEIF share the container with MP4.
        return describe(blob) in (None, "an MP4 or MOV video")
    if blob[:4] == b"RIFF":
        return blob[8:12] == b"AVI "
    return _is_transport_stream(blob, 0, _TS_PACKET) or _is_transport_stream(blob, 4, _M2TS_PACKET)


def _is_transport_stream(blob: bytes, offset: int, packet: int) -> bool:
    syncs = blob[offset : offset + 3 * packet : packet]
    return len(blob) >= packet and syncs.count(_TS_SYNC) == len(syncs) > 0
