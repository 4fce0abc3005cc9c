"""How trouble becomes a `BadMedia`: codec failures, moving pictures, kinds that are not decoded."""

from __future__ import annotations

from ..errors import BadMedia

_MAX_REASON = 100

# Beginnings of files that people send by mistake or that are refused on purpose (docs/media.md says why).
_KNOWN_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 picture"),
    (b"\xff\x4f\xff\x51", "a JPEG 2000 picture"),
    (b"\x00\x00\x00\x0cJXL ", "a JPEG XL picture"),
    (b"\xff\x0a", "a JPEG XL picture"),
    (b"8BPS", "a Photoshop file"),
    (b"%PDF", "a PDF"),
    (b"%!PS", "PostScript"),
    (b"\xc5\xd0\xd3\xc6", "PostScript"),
    (b"<svg", "an SVG drawing"),
    (b"<?xml", "XML or an SVG drawing"),
    (b"<!DOCTYPE", "an HTML page"),
    (b"<html", "an HTML page"),
    (b"\x00\x00\x01\x00", "an icon file"),
    (b"DDS ", "a DDS texture"),
    (b"qoif", "a QOI picture"),
    (b"\x76\x2f\x31\x01", "an OpenEXR picture"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"P7\n", "a PAM picture"),
    (b"Pf", "a PFM picture with 32-bit samples"),
    (b"PF", "a PFM picture with 32-bit samples"),
    (b"P1", "a plain-text PBM picture"),
    (b"P2", "a plain-text PGM picture"),
    (b"P3", "a plain-text PPM picture"),
    (b"\x1aE\xdf\xa3", "a WebM or Matroska video"),
    (b"data:", "a data: URL (base64 applied twice?)"),
    (b"iVBORw0KGgo", "base64 text (base64 applied twice?)"),
    (b"/9j/", "base64 text (base64 applied twice?)"),
    (b"UklGR", "base64 text (base64 applied twice?)"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"II*\x00", "a TIFF picture"),
    (b"MM\x00*", "a TIFF picture"),
    (b"BM", "a BMP picture"),
)
_FTYP_PICTURES = {b"avif": "an AVIF picture", b"avis": "an AVIF animation", b"crx ": "a camera raw file"}
_FTYP_HEIF = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")


def describe(blob: bytes) -> str | None:
    """What a file is, by its first bytes, where it is one that people send; None if unknown."""
    if blob[4:8] == b"ftyp":
        brand = blob[8:12]
        return "a HEIF picture" if brand in _FTYP_HEIF else _FTYP_PICTURES.get(brand, "an MP4 or MOV video")
    if blob[:4] == b"RIFF":
        return {b"WEBP": "a WebP picture", b"AVI ": "an AVI video", b"WAVE": "a WAV sound"}.get(blob[8:12])
    return next((name for start, name in _KNOWN_BEGINNINGS if blob.startswith(start)), None)


def beginning(blob: bytes) -> str:
    """Ending of a message about a file that is not accepted: what it is, or how it begins."""
    known = describe(blob)
    return f"this is {known}" if known else f"the file begins with {blob[:8].hex(' ')}"


def moving(kind: str, frames: str) -> BadMedia:
    """The refusal of a picture with several frames; *frames* is their number in words."""
    return BadMedia(f"animated {kind} with {frames} frames; send one frame, or the clip as video")


def undecodable(what: str, error: Exception) -> BadMedia:
    """The `BadMedia` for whatever a codec raised, with the cause kept.

    No traceback goes along: a codec's frames hold the picture and the caller's buffer for as long as the
    error lives.
    """
    if isinstance(error, BadMedia):
        return error.with_traceback(None)
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    bad = BadMedia(f"{what} cannot be decoded: {_reason(error)}; encode it again")
    bad.__cause__ = error
    return bad


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    text = " ".join(str(error).split())
    # A text with an address, a path or a call speaks about this server, not about the file.
    if not text or not text.isprintable() or any(sign in text for sign in ("0x", "/", "<", "unpack")):
        return "the file is damaged or not what it claims to be"
    return text if len(text) <= _MAX_REASON else text[:_MAX_REASON] + "…"
