"""msgpack bodies carry files raw, and answers come in the format that the client asks for."""

from __future__ import annotations

import base64
import zlib

import msgspec
import pytest

PACKED = "application/x-msgpack"
VIDEO = b"\0\0\0\x18ftypisom" + bytes(100)


def pack(*items, **fields) -> bytes:
    return msgspec.msgpack.encode({"requests": list(items), **fields})


async def test_raw_files_score_like_base64(serve, reward, item, picture) -> None:
    """The same picture and video, sent both ways, are the same to a scorer."""
    image = picture((9, 8, 7))
    raw = {
        "history": [{"text": "x", "image": base64.b64decode(image), "video": VIDEO}],
        "required_rewards": ["sum"],
        "request_id": "r",
    }
    async with serve(reward("sum", "Checksum")) as caller:
        packed = await caller.post(pack(raw, item("x", "sum", image=image)), Content_Type=PACKED)
    pixels = float(zlib.crc32(bytes((9, 8, 7)) * 256))
    assert packed.results == [
        {"sum": {"image": pixels, "video": float(zlib.crc32(VIDEO))}}, {"sum": {"image": pixels, "video": 0.0}},
    ]  # fmt: skip
    assert packed.body["identities"][0]["request_id"] == "r"


@pytest.mark.parametrize(
    ("content", "accept", "expected"),
    [
        (PACKED, PACKED, PACKED),
        (PACKED, "*/*", "application/json"),
        ("application/json", "text/html, application/msgpack;q=0.9", PACKED),
        ("application/vnd.msgpack; charset=binary", "application/json", "application/json"),
    ],
)
async def test_the_answer_has_the_format_that_was_asked_for(serve, item, content, accept, expected) -> None:
    """Accept decides, whatever the body was; refusals too."""
    encode = msgspec.msgpack.encode if "msgpack" in content else msgspec.json.encode
    decode = msgspec.msgpack.decode if expected == PACKED else msgspec.json.decode
    async with serve() as caller:
        for items, status in (([item(), item("nan")], 200), ([item("x", "nope")], 400)):
            answer = await caller.post(encode({"requests": items}), Content_Type=content, Accept=accept)
            assert (answer.status, answer.headers["content-type"]) == (status, expected)
            body = decode(answer.raw)
            if status == 200:
                assert body["results"] == [{"s": {"value": 1.0}}, {"s": {"value": None}}]
            else:
                assert "unknown reward 'nope'" in body["detail"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"a": b"raw"}}, "metadata is JSON"),
        ({"metadata": {"a": {b"k": 1}}}, "metadata is JSON"),
        ({"metadata": {"a": {1: 1}}}, "metadata is JSON"),
        ({"metadata": {1: 1}}, "metadata"),
        ({"metadata": {"a": msgspec.msgpack.Ext(5, b"abc")}}, "metadata is JSON"),
        ({"history": [{"text": "x", "image": b"a", "image_b64": "b"}]}, "both image_b64 and image"),
        ({"history": [{"text": "x", "video": b"a", "video_path": "/b"}]}, "more than one of"),
        ({"history": [{"text": "x"}]}, "no media"),
    ],
)
async def test_what_msgpack_can_say_and_json_cannot_is_refused(serve, item, change, words) -> None:
    """422, with an idempotency key as without, and named."""
    async with serve() as caller:
        for key in (None, "k"):
            body = pack({**item(), "idempotency_key": key, **change})
            answer = await caller.post(body, Content_Type=PACKED)
            assert (answer.status, words in answer.detail) == (422, True)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91" * 10_000, b"\xdf\xff\xff\xff\xff", b"\x81\x01\x02", b"{}"])
async def test_what_is_not_msgpack_is_422(serve, body) -> None:
    """Also nesting beyond reason and sizes that are not there."""
    async with serve() as caller:
        assert (await caller.post(body, Content_Type=PACKED)).status == 422


async def test_raw_bytes_in_a_json_body_are_refused(serve, item) -> None:
    """The fields of msgpack bodies are not for text."""
    async with serve() as caller:
        answer = await caller.score({**item(), "history": [{"text": "x", "image": "QUJD"}]})
    assert (answer.status, "raw bytes of msgpack bodies" in answer.detail) == (422, True)


async def test_a_large_body_is_parsed_off_the_loop_with_the_same_result(serve, reward, picture) -> None:
    """Hundreds of pictures in one msgpack body arrive in order."""
    images = [base64.b64decode(picture((n, n, n), (256, 256), "BMP")) for n in range(40)]
    items = [{"history": [{"text": "x", "image": image}], "required_rewards": ["sum"]} for image in images]
    async with serve(reward("sum", "Checksum")) as caller:
        answer = await caller.post(pack(*items), Content_Type=PACKED)
    assert [result["sum"]["image"] for result in answer.results] == [
        float(zlib.crc32(bytes((n, n, n)) * 65_536)) for n in range(40)
    ]
