"""The demo: its pictures come from packages, and its configuration names what exists."""

from __future__ import annotations

import inspect
import socket
from pathlib import Path

import pytest
import yaml

from reward_service.demo_pictures import demo_samples
from reward_service.scorers.base import ScoreItem
from reward_service.scorers.registry import get_scorer_cls

CONFIG = Path(__file__).parents[2] / "configs" / "demo.yaml"


def test_the_pictures_come_without_a_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight RGB pictures with names and prompts of their own, with every connection refused."""
    pytest.importorskip("skimage", reason="the photographs are scikit-image's, of the extra demo")

    def refuse(*args: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    samples = demo_samples()
    assert len({sample.name for sample in samples}) == len(samples) == 8
    assert all(sample.prompt and sample.image.mode == "RGB" for sample in samples)
    assert len({sample.image.tobytes() for sample in samples}) == 8


@pytest.mark.parametrize(
    ("reward", "ranking"),
    [
        ("ocr", ["poster-right", "poster-misspelt", "poster-blank"]),
        ("jpeg_compressibility", ["astronaut-crushed", "astronaut-blurred", "astronaut"]),
    ],
)
def test_the_pictures_rank(reward: str, ranking: list[str]) -> None:
    """Each reward of the base environment puts the pictures that were made for it in the order meant."""
    for package in ("skimage", "rapidocr", "onnxruntime"):
        pytest.importorskip(package, reason=f"needs {package}, of the extra demo")
    samples = [sample for sample in demo_samples() if sample.name in ranking]
    results = get_scorer_cls(reward)().score([ScoreItem([(each.prompt, each.image)]) for each in samples])
    scores = {sample.name: result[reward] for sample, result in zip(samples, results, strict=True)}
    assert sorted(scores, key=scores.__getitem__, reverse=True) == ranking
    assert len(set(scores.values())) == len(ranking)


def test_the_configuration_names_what_exists() -> None:
    """Every reward of configs/demo.yaml has a scorer, parameters that it takes, and its requirements file."""
    rewards = yaml.safe_load(CONFIG.read_text())["rewards"]
    assert [reward["name"] for reward in rewards] == ["ocr", "brisque", "jpeg_compressibility"]
    for reward in rewards:
        assert reward["num_gpus"] == 0
        inspect.signature(get_scorer_cls(reward["scorer"])).bind(**reward.get("params", {}))
        if environment := reward.get("runtime_env"):
            assert (CONFIG.parent / environment).is_file()
    assert {reward["name"] for reward in rewards if "runtime_env" in reward} == {"brisque"}
