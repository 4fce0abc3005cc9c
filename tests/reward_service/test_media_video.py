"""Videos from clients: containers and bounds of bytes, and paths that may not leave the roots."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reward_service.errors import BadMedia
from reward_service.media import check_video, resolve_video_path

BOUND = 1 << 20


def gif() -> bytes:
    file = io.BytesIO()
    frames = [Image.new("L", (4, 4), shade) for shade in (0, 128, 255)]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    return file.getvalue()


def refusal(path: str, *roots: Path, max_bytes: int = BOUND) -> str:
    with pytest.raises(BadMedia) as caught:
        resolve_video_path(path, roots, max_bytes=max_bytes)
    return str(caught.value)


@pytest.mark.parametrize(
    "blob",
    [
        b"\0\0\0\x20ftypisom" + bytes(24),
        b"\0\0\0\x14ftypqt  " + bytes(12),
        b"\0\0\0\x08wide\0\0\0\0mdat",
        b"\0\0\0\x6cmoov" + bytes(100),
        b"\x1aE\xdf\xa3" + bytes(40),
        b"RIFF\0\0\0\0AVI LIST",
        (b"\x47" + bytes(187)) * 3,
        (bytes(4) + b"\x47" + bytes(187)) * 3,
        b"\x47" + bytes(187),
        b"\0\0\1\xba" + bytes(20),
        b"FLV\x01\x05",
        b"OggS" + bytes(20),
        bytes.fromhex("3026b2758e66cf11a6d9") + bytes(20),
        gif(),
    ],
    ids=[
        "mp4",
        "mov",
        "wide",
        "moov",
        "webm",
        "avi",
        "ts",
        "m2ts",
        "packet",
        "ps",
        "flv",
        "ogg",
        "asf",
        "gif",
    ],
)
def test_known_containers_are_accepted(blob: bytes) -> None:
    """Each container of the list in the docs passes."""
    check_video(blob, max_bytes=BOUND)


@pytest.mark.parametrize(
    ("blob", "said"),
    [
        (b"", "empty"),
        (b"\0\0\0\x20ftypavif" + bytes(24), "this is an AVIF picture"),
        (b"\0\0\0\x20ftypheic" + bytes(24), "this is a HEIF picture"),
        (b"RIFF\0\0\0\0WAVEfmt ", "this is a WAV sound"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "this is a WebP picture"),
        (b"\x89PNG\r\n\x1a\n", "this is a PNG picture"),
        (b"\xff\xd8\xff\xe0", "this is a JPEG picture"),
        (b"AAAAIGZ0eXBpc29t", "the file begins with 41 41 41 41 49 47 5a 30"),
        (b"\x47" + bytes(186), "not a video"),
        (b"\x47" + bytes(400), "not a video"),
    ],
)
def test_other_files_are_refused_and_named(blob: bytes, said: str) -> None:
    """Bytes that are no video are `BadMedia`, and the message says what they are."""
    with pytest.raises(BadMedia, match=said):
        check_video(blob, max_bytes=BOUND)


def test_the_bound_of_bytes_is_kept_and_said() -> None:
    """A video of exactly the bound passes; one byte more is refused with both numbers."""
    blob = b"\x1aE\xdf\xa3" + bytes(96)
    check_video(blob, max_bytes=100)
    with pytest.raises(BadMedia, match="100 bytes; the bound is 99"):
        check_video(blob, max_bytes=99)


@given(st.binary(max_size=600))
def test_any_bytes_pass_or_are_bad_media(blob: bytes) -> None:
    """No bytes raise anything but `BadMedia`, and without a known beginning none pass."""
    try:
        check_video(b"\x01" + blob, max_bytes=500)
    except BadMedia:
        return
    assert blob[3:7] in {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"} or blob[3] == 0x47


def test_a_file_below_a_root_is_resolved(tmp_path: Path) -> None:
    """Paths below a root give the real file, also through links inside it and through a linked root."""
    root = tmp_path / "real"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "a.mp4").write_bytes(b"x")
    (root / "link.mp4").symlink_to(root / "deep" / "a.mp4")
    (tmp_path / "alias").symlink_to(root)
    for path in (root / "deep" / "a.mp4", root / "link.mp4"):
        assert resolve_video_path(str(path), [root], max_bytes=1) == root / "deep" / "a.mp4"
    alias = tmp_path / "alias"
    assert resolve_video_path(f"{alias}/deep/a.mp4", [alias], max_bytes=1) == root / "deep" / "a.mp4"
    assert resolve_video_path(f"{root}/deep/a.mp4", [alias], max_bytes=1) == root / "deep" / "a.mp4"
    other = tmp_path / "other"
    other.mkdir()
    assert resolve_video_path(f"{root}/link.mp4", [other, root], max_bytes=1) == root / "deep" / "a.mp4"


def test_without_roots_every_path_is_refused(tmp_path: Path) -> None:
    """No path is readable unless roots are configured, and the message says so."""
    (tmp_path / "a.mp4").write_bytes(b"x")
    said = refusal(str(tmp_path / "a.mp4"))
    assert "no video roots are configured" in said
    assert refusal("/nowhere") == said


def test_paths_outside_the_roots_share_one_message(tmp_path: Path) -> None:
    """Whatever is not below a root gets the same answer, whether it exists, is a link, or cannot be named."""
    root = tmp_path / "root"
    root.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.mp4").write_bytes(b"x")
    (root / "a.mp4").write_bytes(b"x")
    (root / "out").symlink_to(outside)
    (root / "out.mp4").symlink_to(outside / "a.mp4")
    (root / "dangling").symlink_to(outside / "none.mp4")
    (outside / "in").symlink_to(root)
    (tmp_path / "root2").mkdir()
    refused = {
        str(path): refusal(str(path), root)
        for path in (
            outside / "a.mp4",
            outside / "none.mp4",
            outside / "in" / "a.mp4",
            root / "out" / "a.mp4",
            root / "out" / "none.mp4",
            root / "out.mp4",
            root / "dangling",
            tmp_path / "root2" / "a.mp4",
            f"{root}/../outside/a.mp4",
            f"{root}/../root/a.mp4",
            f"{outside}/../root/a.mp4",
            f"{tmp_path}/none/../root/a.mp4",
            os.path.relpath(root / "a.mp4"),
            "a.mp4",
            "",
            "~/a.mp4",
            "/etc/passwd",
            "/" + "x" * 5000,
            "/" + "x/" * 5000,
            "/nul\0byte",
            f"{root}/a.mp4\0",
            f"{root}/\ud800",
            f"file://{root}/a.mp4",
        )
    }
    assert len(set(refused.values())) == 1, refused
    assert str(tmp_path) not in next(iter(refused.values()))


def test_inside_a_root_the_reason_is_said(tmp_path: Path) -> None:
    """Below a root the message tells a missing file from a directory, a device, an empty or a large file."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "empty.mp4").touch()
    (root / "large.mp4").write_bytes(bytes(1000))
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    assert "no such video file" in refusal(f"{root}/none.mp4", root)
    assert "no such video file" in refusal(f"{root}/large.mp4/none", root)
    assert "not a regular file" in refusal(f"{root}/folder", root)
    assert "not a regular file" in refusal(str(root), root)
    assert "not a regular file" in refusal(f"{root}/pipe", root)
    assert "empty" in refusal(f"{root}/empty.mp4", root)
    assert "1,000 bytes; the bound is 999" in refusal(f"{root}/large.mp4", root, max_bytes=999)
    assert "cannot be reached" in refusal(f"{root}/loop", root)
    assert "cannot be reached" in refusal(f"{root}/" + "x" * 5000, root)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    """A file below a root that the service may not read is refused before a scorer meets it."""
    (tmp_path / "a.mp4").write_bytes(b"x")
    (tmp_path / "a.mp4").chmod(0)
    assert "may not be read" in refusal(f"{tmp_path}/a.mp4", tmp_path)
