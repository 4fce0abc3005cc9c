"""Fixtures of the SDK's tests: a fake server, and pictures."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image

from reward_service.client import RewardRequest
from reward_service.testing.fake_server import FakeRewardServer


@pytest.fixture
def server() -> Iterator[FakeRewardServer]:
    """One running server that offers clip and ocr; a score is the length of the prompt."""
    with FakeRewardServer(("clip", "ocr")) as running:
        yield running


@pytest.fixture
def second_server() -> Iterator[FakeRewardServer]:
    """Another one."""
    with FakeRewardServer(("clip", "ocr")) as running:
        yield running


@pytest.fixture
def dead_url() -> str:
    """A URL where nobody listens any more."""
    with FakeRewardServer() as stopped:
        return stopped.url


@pytest.fixture
def picture() -> Image.Image:
    """A small RGB picture with structure."""
    ramp = Image.linear_gradient("L").resize((24, 16))
    return Image.merge("RGB", (ramp, ramp.rotate(180), ramp))


@pytest.fixture
def asking(picture: Image.Image) -> Callable[..., RewardRequest]:
    """Makes a request from a prompt; its clip score is ``len(prompt)``."""

    def request(prompt: str, image: Any = None, **fields: Any) -> RewardRequest:
        return RewardRequest([(prompt, picture if image is None else image)], fields.pop("rewards", ["clip"]), **fields)

    return request


@pytest.fixture
def prompts() -> Callable[[list[dict[str, dict[str, float]]]], list[float]]:
    """The clip scores of a result."""
    return lambda results: [result["clip"]["clip"] for result in results]
