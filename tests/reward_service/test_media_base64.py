"""Base64 from clients: strict, with data: prefixes and MIME line breaks tolerated."""

from __future__ import annotations

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_service.errors import BadMedia
from reward_service.media import decode_base64

ALPHABET = string.ascii_letters + string.digits + "+/"


@given(st.binary(min_size=1))
def test_every_encoded_text_decodes_to_its_bytes(data: bytes) -> None:
    """What the standard library encodes comes back, bare, as a data: URL and wrapped in lines."""
    text = base64.b64encode(data).decode()
    assert decode_base64(text) == data
    assert decode_base64(f"data:image/png;base64,{text}") == data
    assert decode_base64(base64.encodebytes(data).decode()) == data


@pytest.mark.parametrize(
    "prefix",
    [
        "data:;base64,",
        "DATA:IMAGE/JPEG;BASE64,",
        "data:image/png;name=a.png;base64,",
        "data:video/mp4;Base64,",
    ],
)
def test_data_prefixes_are_skipped_in_any_case(prefix: str) -> None:
    """A data: prefix is accepted with any media type, parameters and case."""
    assert decode_base64(prefix + "YWJj") == b"abc"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("data:image/png;base64,", "is empty"),
        (" \n", "is empty"),
        ("data:image/png,YWJj", "not base64"),
        ("data:image/png;base64", "no comma"),
        ("data:" + "x" * 1000 + ",YWJj", "no comma"),
        ("ab-_", r"URL-safe base64: '-' at position 2"),
        ("ab_-", r"'\+' and '/' in place of"),
        ("YWJ", r"padding: 3 characters"),
        ("YWJjZA=", r"7 characters, of which 1 are '='"),
        ("YW==Jj", "padding"),
        ("=", "padding"),
        ("YWJj====", "padding"),
        ("YWJj!WJj", r"character '!' at position 4"),
        ("YWJj\u00e9", r"character '\\xe9' at position 4"),
        ("\ud800", r"character '\\ud800' at position 0"),
        ("YWJj%3D", r"character '%' at position 4"),
        ("https://example.org/a.png", "addresses are not fetched"),
    ],
)
def test_bad_base64_is_refused_with_its_reason(text: str, said: str) -> None:
    """A text that is not strict base64 is `BadMedia`, and the message says what is wrong with it."""
    with pytest.raises(BadMedia, match=said) as caught:
        decode_base64(text)
    assert len(str(caught.value)) < 250


@given(st.text(max_size=40) | st.text(alphabet=ALPHABET + "=-_ \n", max_size=40))
def test_any_text_decodes_or_is_bad_media(text: str) -> None:
    """No text raises anything but `BadMedia`, and none decodes to nothing."""
    try:
        data = decode_base64(text)
    except BadMedia:
        return
    assert data


def test_a_refused_text_is_not_kept_by_its_error() -> None:
    """The error of a refused text holds no copy of it, for it may be megabytes long."""
    with pytest.raises(BadMedia) as caught:
        decode_base64("!" * 1000)
    assert caught.value.__cause__ is None
    assert "!!" not in str(caught.value)
