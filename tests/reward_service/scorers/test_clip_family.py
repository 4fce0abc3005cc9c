"""clip and pickscore: the official numbers, batches, odd prompts and pictures, wrong checkpoints, missing devices."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from reward_service.errors import BadMedia, ScorerLoadError
from reward_service.scorers.base import ScoreItem
from reward_service.scorers.registry import get_scorer_cls
from reward_service.testing.pictures import cases, picture

NAMES = ("clip", "pickscore")
Tiny = Callable[[str], Path]


def load(name: str, folder: Path, **params: Any) -> Any:
    return get_scorer_cls(name)(weights_path=str(folder), device="cpu", **params)


def items(prompts: list[str] | None = None) -> list[ScoreItem]:
    if prompts is not None:
        return [ScoreItem([(prompt, picture(224, 224, index))]) for index, prompt in enumerate(prompts)]
    return [ScoreItem([(case.prompt, case.image)]) for case in cases()]


def values(scorer: Any, batch: list[ScoreItem]) -> list[float]:
    (name,) = scorer.sub_metric_names
    return [entry[name] for entry in scorer.score(batch)]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def scorer(name: str, tiny: Tiny) -> Any:
    return load(name, tiny(name))


def test_official_numbers(name: str, scorer: Any, reference: Callable[[str], dict[str, Any]]) -> None:
    """Every case scores what the official code gave on the same weights, within the stated tolerance."""
    stored = reference(name)
    ours = dict(zip([case.name for case in cases()], values(scorer, items()), strict=True))
    assert len(stored["values"]) == len(ours) - 1  # the official processor takes no 1×1 picture
    for case, expected in stored["values"].items():
        assert ours[case] == pytest.approx(expected[name], abs=stored["tolerance"]), case
    assert max(ours.values()) - min(ours.values()) > 100 * stored["tolerance"]


def test_a_batch_scores_as_its_items_do(name: str, tiny: Tiny) -> None:
    """Neighbours, their texts' lengths and the cache change nothing."""
    together = values(load(name, tiny(name)), items())
    fresh = load(name, tiny(name))
    alone = [values(fresh, [item])[0] for item in reversed(items())][::-1]
    assert together == pytest.approx(alone, abs=1e-5)


def test_prompts_that_are_odd(scorer: Any) -> None:
    """Empty, blank, very long and non-Latin prompts, and special tokens in them, all get a finite number."""
    prompts = ["", "   \n\t", "word " * 5000, "日本語 😀", "<|endoftext|> a <|startoftext|>", "\x00\ud800"]
    scored = values(scorer, items(prompts))
    assert all(-5 < value < 5 for value in scored)


def test_the_end_of_a_long_prompt_does_not_count(scorer: Any) -> None:
    """What stands beyond the context is cut off."""
    start = "a red circle on the car " * 40
    one, other = scorer.score(
        [ScoreItem([(start + end, picture(224, 224, 0))]) for end in ("and a dog", "and nothing at all")]
    )
    assert one == other


def test_equal_prompts_are_encoded_once(scorer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of pictures of one prompt costs one pass of the text tower, and a later group none."""
    encoded: list[int] = []
    embed = scorer.towers._text_embedding

    def count(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        encoded.append(len(ids))
        return embed(ids, mask)

    monkeypatch.setattr(scorer.towers, "_text_embedding", count)
    values(scorer, items(["a cat", "a cat", "a dog", "a cat"]))
    values(scorer, items(["a dog", "a cat"]))
    assert encoded == [2]


def test_only_the_last_turn_counts(scorer: Any) -> None:
    """Earlier turns are not read."""
    last = ("a red circle", picture(224, 224, 3))
    one, two = scorer.score([ScoreItem([last]), ScoreItem([("before", picture(50, 50, 1)), last])])
    assert one == two


def test_an_item_without_a_picture_costs_nobody_else(name: str, scorer: Any) -> None:
    """A missing picture, and one too thin to resize, are errors of their items."""
    first, missing, thin, last = scorer.score([
        ScoreItem([("a", picture(64, 64, 1))]), ScoreItem([("a", None)]),
        ScoreItem([("a", Image.new("RGB", (70_000, 2)))]), ScoreItem([("a", picture(64, 64, 1))]),
    ])  # fmt: skip
    assert first[name] == pytest.approx(last[name], abs=1e-6)
    assert isinstance(missing, BadMedia)
    assert "no image" in str(missing)
    assert isinstance(thin, BadMedia)
    assert "70000×2" in str(thin)
    assert scorer.score([]) == []


def test_two_threads_at_once(scorer: Any) -> None:
    """Calls that overlap give what they give alone."""
    expected = values(scorer, items())
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: values(scorer, items()), range(8)):
            assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_near(name: str, dtype: str, tiny: Tiny) -> None:
    """Half precision moves a score by a few thousandths of its range, not more."""
    exact = values(load(name, tiny(name)), items())
    half = values(load(name, tiny(name), dtype=dtype), items())
    assert half == pytest.approx(exact, abs=0.05)
    assert half != exact


def test_a_local_path_touches_no_network(name: str, tiny: Tiny, no_network: None) -> None:
    """Weights, processor and tokenizer of a local folder are enough."""
    assert len(values(load(name, tiny(name)), items())) == len(cases())


def test_model_name_may_be_a_folder(name: str, tiny: Tiny, no_network: None) -> None:
    """A local folder given as model_name is one; weights_path wins over model_name."""
    folder = str(tiny(name))
    by_name = get_scorer_cls(name)(model_name=folder, device="cpu")
    by_path = get_scorer_cls(name)(model_name="nobody/nothing", weights_path=folder, device="cpu")
    assert values(by_name, items()) == pytest.approx(values(by_path, items()))


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "vocab.json"])
def test_a_missing_file_is_named(name: str, missing: str, tiny: Tiny, tmp_path: Path, no_network: None) -> None:
    """A folder that lacks a file says which."""
    folder = Path(shutil.copytree(tiny(name), tmp_path / "copy"))
    (folder / missing).unlink()
    with pytest.raises(FileNotFoundError, match=missing.replace(".", r"\.")):
        load(name, folder)


def test_a_path_that_leads_nowhere(name: str) -> None:
    """A wrong path is said, and no hub is asked."""
    with pytest.raises(FileNotFoundError, match="weights_path is /nowhere/at/all"):
        load(name, Path("/nowhere/at/all"))


def test_offline_without_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hub switched off the error says what to fetch and how to give it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match=r"HF_HUB_OFFLINE is set.*hf download .*weights_path"):
        get_scorer_cls(name)(device="cpu")


def test_a_wrong_checkpoint_names_its_keys(name: str, tiny: Tiny, tmp_path: Path) -> None:
    """A key that is missing, one too many and one of another shape are all named."""
    folder = Path(shutil.copytree(tiny(name), tmp_path / "copy"))
    state = load_file(folder / "model.safetensors")
    del state["visual_projection.weight"]
    state["rm_head.weight"] = torch.zeros(2)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ScorerLoadError, match=r"without visual_projection\.weight; with unknown rm_head\.weight"):
        load(name, folder)
    del state["rm_head.weight"]
    state["visual_projection.weight"] = torch.zeros(32, 63)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ScorerLoadError, match=r"visual_projection\.weight.*63"):
        load(name, folder)


@pytest.mark.parametrize(
    ("params", "says"),
    [({"dtype": "float64"}, "dtype is 'float64'; choose one of: float32"), ({"max_batch_size": 0}, "at least 1")],
)
def test_parameters_out_of_range(name: str, params: dict[str, Any], says: str, tiny: Tiny) -> None:
    """A value that cannot work is refused with what would."""
    with pytest.raises(ValueError, match=says):
        load(name, tiny(name), **params)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_an_absent_device_is_an_error(name: str, tiny: Tiny) -> None:
    """Without a GPU the default device refuses to start instead of scoring on the CPU."""
    with pytest.raises(ScorerLoadError, match=r"device 'cuda' cannot be used .*device: cpu"):
        get_scorer_cls(name)(weights_path=str(tiny(name)))


def test_no_code_of_a_folder_runs(name: str, tiny: Tiny, tmp_path: Path) -> None:
    """A config that asks for code of its own is not obeyed."""
    folder = Path(shutil.copytree(tiny(name), tmp_path / "copy"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Evil"}}))
    (folder / "evil.py").write_text("raise SystemExit('ran')\n")
    assert len(values(load(name, folder), items(["a cat"]))) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # torch's own, while it compiles
def test_compiled_numbers(name: str, tiny: Tiny) -> None:
    """compile: true changes speed only."""
    compiled = load(name, tiny(name), compile=True)
    plain = load(name, tiny(name))
    for batch in (items(), items()[:3], items()[:1]):
        assert values(compiled, batch) == pytest.approx(values(plain, batch), abs=1e-4)
