"""Where weights come from, what is unpickled, and what is said when something does not fit."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from reward_service.errors import ScorerLoadError
from reward_service.models import sources
from reward_service.models.checkpoint import load_exactly, read_state
from reward_service.models.devices import pick_device, pick_dtype


class Hub:
    """Stands in for huggingface_hub: a folder per repository, and a list of what was asked for."""

    def __init__(self, root: Path, offline: bool = False) -> None:
        self.root = root
        self.constants = SimpleNamespace(HF_HUB_OFFLINE=offline)
        self.asked: list[Any] = []

    def hf_hub_download(self, repo: str, filename: str) -> str:
        self.asked.append((repo, filename))
        path = self.root / repo / filename
        if not path.exists():
            raise ConnectionError("no route to the hub")
        return str(path)

    def model_info(self, repo: str) -> Any:
        files = [SimpleNamespace(rfilename=path.name) for path in (self.root / repo).iterdir()]
        return SimpleNamespace(siblings=files)

    def snapshot_download(self, repo: str, allow_patterns: list[str]) -> str:
        self.asked.append((repo, sorted(allow_patterns)))
        return str(self.root / repo)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    repo = tmp_path / "org" / "model"
    repo.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "weights.pt"):
        (repo / name).write_bytes(b"x")
    hub = Hub(tmp_path)
    monkeypatch.setattr(sources, "_hub", lambda: hub)
    monkeypatch.chdir(tmp_path / "org")
    return hub


def test_a_file_of_the_hub(hub: Hub) -> None:
    """Without a path the hub is asked for the one file."""
    assert sources.weights_file(None, "org/model", "weights.pt").name == "weights.pt"
    assert hub.asked == [("org/model", "weights.pt")]


def test_a_local_file_or_folder_asks_no_hub(hub: Hub, tmp_path: Path) -> None:
    """weights_path wins, whether it is the file or its folder; so does a model_name that is a folder."""
    file = tmp_path / "org" / "model" / "weights.pt"
    assert sources.weights_file(str(file), "org/model", "other.pt") == file
    assert sources.weights_file(str(file.parent), "org/model", "weights.pt") == file
    assert sources.weights_file(None, str(file.parent), "weights.pt") == file
    assert sources.weights_folder(None, str(file.parent), ["config.json"]) == file.parent
    assert hub.asked == []


def test_a_missing_file_is_named(hub: Hub, tmp_path: Path) -> None:
    """A folder without the file, a path to nothing, and a hub that does not answer say what is missing."""
    with pytest.raises(FileNotFoundError, match=r"no absent\.pt at .*org/model"):
        sources.weights_file(str(tmp_path / "org" / "model"), "org/model", "absent.pt")
    with pytest.raises(FileNotFoundError, match="weights_path is /nowhere"):
        sources.weights_file("/nowhere", "org/model", "weights.pt")
    with pytest.raises(FileNotFoundError, match=r"absent\.pt of org/model .*ConnectionError.*hf download org/model"):
        sources.weights_file(None, "org/model", "absent.pt")
    with pytest.raises(FileNotFoundError, match=r"no a\.json or b\.json in "):
        sources.weights_folder(str(tmp_path / "org" / "model"), "org/model", ["a.json|b.json"])


def test_one_kind_of_weights_is_fetched(hub: Hub) -> None:
    """Of a repository that has safetensors and pickles, the safetensors are fetched."""
    folder = sources.weights_folder(None, "org/model", ["config.json", sources.WEIGHTS], ["*.txt"])
    assert folder.name == "model"
    assert hub.asked == [("org/model", ["*.txt", "config.json", "model.safetensors"])]


def test_weights_in_pieces_are_fetched_whole(hub: Hub, tmp_path: Path) -> None:
    """An index brings the files that it lists."""
    repo = tmp_path / "org" / "model"
    (repo / "model.safetensors").rename(repo / "model.safetensors.index.json")
    sources.weights_folder(None, "org/model", [sources.WEIGHTS], [])
    assert hub.asked == [("org/model", ["model-*.safetensors", "model.safetensors.index.json"])]


STATE = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}


@pytest.mark.parametrize("wrap", [None, "state_dict", "model", "module"])
@pytest.mark.parametrize("old_format", [False, True])
def test_torch_files(wrap: str | None, old_format: bool, tmp_path: Path) -> None:
    """Tables of tensors are read, bare or wrapped as training scripts do, in the new format and the old."""
    path = tmp_path / "weights.pt"
    torch.save({wrap: STATE, "epoch": 3} if wrap else STATE, path, _use_new_zipfile_serialization=not old_format)
    state = read_state(path)
    assert state.keys() == STATE.keys()
    assert torch.equal(state["a.weight"], STATE["a.weight"])


def test_safetensors(tmp_path: Path) -> None:
    """A safetensors file is read as one."""
    save_file(STATE, tmp_path / "weights.safetensors")
    assert torch.equal(read_state(tmp_path / "weights.safetensors")["b"], STATE["b"])


class Bomb:
    """An object whose unpickling writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_nothing_in_a_checkpoint_runs(tmp_path: Path) -> None:
    """A file with an object that runs code is refused with the way out, and the code does not run."""
    trap = tmp_path / "ran"
    torch.save({"state_dict": STATE, "note": Bomb(trap)}, tmp_path / "bomb.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Bomb(trap), protocol=2))
    for name in ("bomb.pt", "plain.pt"):
        with pytest.raises(ScorerLoadError, match=r"can run code.*safetensors"):
            read_state(tmp_path / name)
    assert not trap.exists()


@pytest.mark.parametrize(("name", "content"), [("a.pt", b"no checkpoint"), ("a.safetensors", b"no"), ("b.pt", b"")])
def test_what_is_no_checkpoint(name: str, content: bytes, tmp_path: Path) -> None:
    """A damaged file is named."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ScorerLoadError, match=name):
        read_state(tmp_path / name)


def test_a_table_of_other_things(tmp_path: Path) -> None:
    """A file that holds numbers instead of tensors is not taken for a checkpoint."""
    torch.save({"lr": 0.1, "steps": [1, 2]}, tmp_path / "options.pt")
    with pytest.raises(ScorerLoadError, match="no table of tensors"):
        read_state(tmp_path / "options.pt")


def test_keys_must_fit() -> None:
    """Missing, left-over and misshapen keys are named, ignored ones are not; at most eight of a kind."""
    module = torch.nn.Linear(3, 2)
    source = Path("weights.pt")
    good = {"weight": torch.ones(2, 3), "bias": torch.zeros(2), "position_ids": torch.zeros(1)}
    load_exactly(module, good, source, ignore=["position_.*"])
    assert module.weight.sum() == 6
    with pytest.raises(ScorerLoadError, match=r"weights\.pt .* with unknown position_ids$"):
        load_exactly(module, good, source)
    with pytest.raises(ScorerLoadError, match=r"without bias; with wrong shapes: weight \(3, 3\) instead of \(2, 3\)"):
        load_exactly(module, {"weight": torch.ones(3, 3)}, source)
    many = {f"extra{index}": torch.ones(1) for index in range(20)}
    with pytest.raises(ScorerLoadError, match="and 12 more"):
        load_exactly(module, {**good, **many}, source, ignore=["position_ids"])


def test_devices_and_types() -> None:
    """The CPU is there; what is not, and what is none, are errors with the way out."""
    assert pick_device("cpu").type == "cpu"
    assert pick_dtype("bfloat16") is torch.bfloat16
    for name in ("cuda:99", "gpu", "xpu:7", "meta "):
        with pytest.raises(ScorerLoadError, match=f"device '{name}' cannot be used"):
            pick_device(name)
    with pytest.raises(ValueError, match="dtype is 'half'; choose one of: float32, float16, bfloat16"):
        pick_dtype("half")


def test_numbers_of_tiny_checkpoints_do_not_depend_on_torch() -> None:
    """The filling is numpy's: known values for a known seed."""
    from reward_service.testing.tiny import fill

    arrays = fill({"b.weight": (2, 2), "a.norm1.weight": (2,)}, seed=0, std=0.1)
    assert arrays["a.norm1.weight"] == pytest.approx(1 + 0.1 * np.array([0.12573022, -0.13210486]))
    assert arrays["b.weight"].dtype == np.float32
