"""Bad media fails per item, or refuses the request where the config says so; decoded memory stays bounded."""

from __future__ import annotations

import base64

import pytest

FINE = {"s": {"value": 1.0}}
VIDEO = b"\0\0\0\x18ftypisom" + bytes(100)


def video_item(**turn):
    return {"history": [{"text": "clip", **turn}], "required_rewards": ["s"]}


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("!!", "not base64"),
        ("", "empty"),
        (base64.b64encode(b"hello").decode(), "not a picture that is accepted"),
        (base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode(), "the file is damaged"),
        ("data:image/png,xyz", "data: URL is not base64"),
        ("https://example.com/x.png", "addresses are not fetched"),
    ],
)
async def test_a_bad_image_fails_its_item_and_reaches_no_model(serve, reward, item, script, image, words) -> None:
    """Every reward of that item gets the error, with the item's position; the neighbours are scored."""
    async with serve(reward(params=script.params), reward("length", "Noop")) as caller:
        answer = await caller.score(item("a"), item("bad", "s", "length", image=image), item("c"))
    assert answer.results == [FINE, {}, FINE]
    assert set(answer.errors[1]) == {"s", "length"}
    for error in answer.errors[1].values():
        assert error.startswith(("BadMedia('item 1: ", 'BadMedia("item 1: '))
        assert words in error
    assert sorted(script.seen) == ["a", "c"]


async def test_an_image_that_fails_while_it_is_decoded_fails_its_item(serve, reward, item, picture, script) -> None:
    """A cut-off file passes the header's check; every item with it fails, the memory comes back."""
    whole = base64.b64decode(picture("red", (200, 200)))
    cut = base64.b64encode(whole[: len(whole) // 2]).decode()
    async with serve(reward(params=script.params)) as caller:
        answer = await caller.score(item("a", image=cut), item("b"), item("c", image=cut))
    assert [set(errors) for errors in answer.errors] == [{"s"}, set(), {"s"}]
    assert "BadMedia" in answer.errors[0]["s"]
    assert script.seen == ["b"]


async def test_one_bad_turn_of_several_fails_the_item(serve, item, picture) -> None:
    """Also when the other turns are fine, whose memory is returned."""
    turns = [{"text": "x", "image_b64": image} for image in (picture(), "!!", picture("blue"))]
    async with serve() as caller:
        answer = await caller.score({"history": turns, "required_rewards": ["s"]}, item())
    assert answer.results == [{}, FINE]


async def test_on_bad_item_reject_refuses_the_request(serve, item) -> None:
    """400 with the item's position and reason, like the existing service; the next request is served."""
    async with serve(server={"on_bad_item": "reject"}) as caller:
        answer = await caller.score(item(), item(), item(image="!!"))
        assert answer.status == 400
        assert answer.detail.startswith("item 2: not base64")
        assert (await caller.score(item())).results == [FINE]


async def test_an_image_with_too_many_pixels_is_refused_from_its_header(serve, item, picture) -> None:
    """limits.max_image_pixels holds before anything is decoded."""
    async with serve(limits={"max_image_pixels": 100 * 100}) as caller:
        answer = await caller.score(item(image=picture("red", (101, 100))), item(image=picture("red", (100, 100))))
        assert "10,100 pixels; the bound is 10,000" in answer.errors[0]["s"]
        assert answer.results[1] == FINE
        assert caller.gateway.arena.peak <= 32_768


async def test_videos_are_bounded_and_checked(serve, reward, tmp_path) -> None:
    """limits.max_video_bytes holds for sent and named files; what is no video is refused."""
    (tmp_path / "long.mp4").write_bytes(VIDEO + bytes(200))
    sent = [base64.b64encode(data).decode() for data in (VIDEO, VIDEO + bytes(300), b"no video")]
    async with serve(server={"video_roots": [str(tmp_path)]}, limits={"max_video_bytes": 200}) as caller:
        answer = await caller.score(
            *(video_item(video_b64=video) for video in sent), video_item(video_path=str(tmp_path / "long.mp4"))
        )
    assert answer.results == [FINE, {}, {}, {}]
    assert "over 200 bytes (limits.max_video_bytes)" in answer.errors[1]["s"]
    assert "not a video that is accepted" in answer.errors[2]["s"]
    assert "the bound is 200" in answer.errors[3]["s"]


async def test_paths_outside_the_roots_tell_nothing(serve, tmp_path) -> None:
    """Existing and missing files outside, links that lead out and dots get one and the same answer."""
    root, outside = tmp_path / "root", tmp_path / "outside.mp4"
    root.mkdir()
    outside.write_bytes(VIDEO)
    (root / "link.mp4").symlink_to(outside)
    paths = ["/etc/passwd", "/no/such/file", str(root / "link.mp4"), f"{root}/../outside.mp4", "relative.mp4", "\0"]
    async with serve(server={"video_roots": [str(root)]}) as caller:
        answer = await caller.score(*(video_item(video_path=path) for path in paths))
    messages = {errors["s"].partition(": ")[2] for errors in answer.errors}
    assert len(messages) == 1
    assert "below one of the roots" in messages.pop()


async def test_without_roots_paths_are_off(serve, tmp_path) -> None:
    """No video_roots: no file is read."""
    (tmp_path / "clip.mp4").write_bytes(VIDEO)
    async with serve() as caller:
        answer = await caller.score(video_item(video_path=str(tmp_path / "clip.mp4")))
    assert "video_path is switched off" in answer.errors[0]["s"]


SMALL = {"decoded_bytes_in_flight": 65_536, "max_image_pixels": 21_845}


async def test_a_request_larger_than_the_arena_passes_through(serve, reward, item, picture) -> None:
    """Items wait for room and take turns: every pixel arrives, and the bound is never passed."""
    pictures = [picture((n, 0, 0), (100, 100)) for n in range(24)]
    async with serve(reward("sum", "Checksum", max_batch_size=2), limits=SMALL) as caller:
        answer = await caller.score(*(item("x", "sum", image=image) for image in pictures))
        assert 30_000 < caller.gateway.arena.peak <= 65_536
    assert answer.errors == [{}] * 24
    assert len({result["sum"]["image"] for result in answer.results}) == 24


async def test_many_requests_share_a_small_arena(serve, reward, item, picture, script, until) -> None:
    """Concurrent requests that each fill it get through, first come first served, none starves."""
    pictures = [picture((n, 0, 0), (100, 100)) for n in range(4)]
    async with serve(reward("sum", "Checksum"), limits=SMALL) as caller:
        calls = [caller.start(*(item("x", "sum", image=image) for image in pictures)) for _ in range(12)]
        answers = [await call for call in calls]
    expected = answers[0].results
    assert len({result["sum"]["image"] for result in expected}) == 4
    assert all(answer.results == expected for answer in answers)


async def test_an_item_that_can_never_fit_fails_alone(serve, item, picture) -> None:
    """Three pictures in one item that need more than there is: an error that names the limit, not a wait."""
    turns = [{"text": "x", "image_b64": picture((n, 0, 0), (100, 100))} for n in range(3)]
    async with serve(limits=SMALL) as caller:
        answer = await caller.score({"history": turns, "required_rewards": ["s"]}, item())
    assert answer.results == [{}, FINE]
    assert "98304 bytes decoded; at most 65536 (limits.decoded_bytes_in_flight)" in answer.errors[0]["s"]
