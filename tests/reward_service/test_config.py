"""Promises of `load_config`: what it reads, what it refuses, and where it says the problem is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from reward_service.config import (
    ServiceConfig,
    describe,
    format_bytes,
    load_config,
    load_config_text,
    parse_bytes,
)
from reward_service.errors import ConfigError
from reward_service.scorers import registry

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
REWARD = "rewards:\n  - {name: a, scorer: ocr}\n"


def problems(text: str, **options: Any) -> list[str]:
    """The lines of the refusal of *text*."""
    with pytest.raises(ConfigError) as caught:
        load_config_text(text, **options)
    return str(caught.value).splitlines()


def reward_problems(fields: str) -> list[str]:
    """The lines of the refusal of one reward with *fields*, without its place."""
    lines = problems(f"rewards:\n  - {{name: a, scorer: ocr, {fields}}}\n")
    assert all(line.startswith("<string>:2: rewards[0] (a)") for line in lines)
    return [line.removeprefix("<string>:2: rewards[0] (a)") for line in lines]


@pytest.fixture
def clip(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scorer name that MPS allows is registered, whatever this checkout ships."""
    monkeypatch.setitem(registry.SCORER_MODULES, "clip", "reward_service.scorers.clip")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_config_loads(path: Path) -> None:
    """Every file in configs/ is a configuration that the service accepts, and knows where it came from."""
    config = load_config(path)
    assert config.rewards
    assert config.source == path


def test_the_minimal_config_needs_no_gpu() -> None:
    """configs/service.minimal.yaml asks for one reward and no GPU."""
    (reward,) = load_config(next(path for path in CONFIGS if path.name == "service.minimal.yaml")).rewards
    assert (reward.name, reward.num_gpus, reward.runtime_env) == ("jpeg", 0.0, None)


def test_every_problem_is_reported_at_once_with_file_and_line(tmp_path: Path) -> None:
    """One refusal lists all problems of all sections, in the order of the file, each at its own line."""
    file = tmp_path / "service.yaml"
    file.write_text(
        """\
server:
  port: 80800
  score_timeout_s: .inf
limits: {max_json_depth: 201}
cluser: {ray_address: auto}
mps:
  mode: external
rewards:
  - name: small
    scorer: jpeg_compressibility
    num_gpu: 2
    num_gpus: 1.5
  - name: small
    scorer: orc
    num_replicas: 0
    params:
      deep: [1, .nan]
      tensor_parallel_size: true
  - scorer: ocr
    scorer: brisque
    mps: {active_thread_percent: 50}
  - just text
"""
    )
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    expected = [
        (2, "server.port: 80800 is too large; give at most 65535"),
        (3, "server.score_timeout_s: inf is not finite; give a finite number"),
        (4, "limits.max_json_depth: 201 is too large; give at most 200"),
        (5, "unknown key 'cluser'; did you mean 'cluster'?"),
        (7, "mps.pipe_directory: is missing; mode: external needs the daemon's CUDA_MPS_PIPE_DIRECTORY here"),
        (11, "rewards[0] (small): unknown key 'num_gpu'; did you mean 'num_gpus'?"),
        (12, "rewards[0] (small).num_gpus: 1.5 is neither a part of one GPU nor a number of whole GPUs, "
             "and Ray refuses it; use 1 or 2"),
        (13, "rewards[1] (small).name: 'small' is also the name of rewards[0]; names must differ"),
        (14, f"rewards[1] (small).scorer: {registry.unknown_message('orc')}"),
        (15, "rewards[1] (small).num_replicas: 0 is too small; give at least 1"),
        (17, "rewards[1] (small).params.deep[1]: nan is not finite; give a finite number"),
        (18, "rewards[1] (small).params.tensor_parallel_size: True is not a number of GPUs; "
             "write a whole number like 2"),
        (19, "rewards[2].name: is missing; add it"),
        (20, "rewards[2]: key 'scorer' was already given on line 19; keep one"),
        (21, "rewards[2].mps: unknown key 'active_thread_percent'; did you mean 'active_thread_percentage'?"),
        (22, "rewards[3]: 'just text' is not a mapping; write 'key: value' lines below it"),
    ]  # fmt: skip
    assert str(caught.value).splitlines() == [f"{file}:{line}: {text}" for line, text in expected]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ("num_replicas: 2.0", ".num_replicas: 2.0 is not a whole number; write one like 2"),
        ("num_replicas: '2'", ".num_replicas: '2' is text; remove the quotes"),
        ("num_replicas: true", ".num_replicas: true is not a whole number; write one like 2"),
        ("num_replicas: ", ".num_replicas: has no value; give one, or remove the line"),
        ("num_gpus: -1", ".num_gpus: -1 is too small; give at least 0"),
        ("num_gpus: [1]", ".num_gpus: a list is not a number; write one like 1 or 0.5"),
        ("num_cpus: 0.00001", ".num_cpus: 1e-05 is finer than Ray counts; use 0 or at least 0.0001"),
        ("scheduling: packed", ".scheduling: 'packed' is not possible here; use 'pack' or 'spread'"),
        ("warmup: 'yes'", ".warmup: 'yes' is not true or false; write one of them"),
        ("warmup: 'true'", ".warmup: 'true' is text; remove the quotes"),
        ("timeout_s: 0", ".timeout_s: 0 is too small; give more than 0"),
        ("max_wait_ms: -0.5", ".max_wait_ms: -0.5 is too small; give at least 0"),
        ("max_batch_size: 0", ".max_batch_size: 0 is too small; give at least 1"),
        ("hang_timeout_s: 0", ".hang_timeout_s: 0 is too small; give more than 0"),
        ("max_start_attempts: 0", ".max_start_attempts: 0 is too small; give at least 1"),
        ("params: [1]", ".params: a list is not a mapping; write 'key: value' lines below it"),
        ("params: {1: x}", ".params: key 1 is not text; put it in quotes"),
        (
            "params: {day: 2024-01-01}",
            ".params.day: '2024-01-01' is read as a date, which JSON cannot carry; put it in quotes",
        ),
        (
            "num_gpus: 2, params: {tensor_parallel_size: 4}",
            ".params.tensor_parallel_size: 4 GPUs are more than num_gpus: 2; raise num_gpus to 4 or lower this",
        ),
        (
            "params: {tensor_parallel_size: 1.0}",
            ".params.tensor_parallel_size: 1.0 is not a number of GPUs; write a whole number like 2",
        ),
        ("ray_address: auto", ": unknown key 'ray_address'; it belongs in 'cluster'"),
        ("limits: {}", ": unknown key 'limits'; it belongs at the top level; check the indentation"),
        ("5: x", ": key 5 is not text; put it in quotes"),
    ],
)
def test_a_reward_that_cannot_work_is_refused(fields: str, problem: str) -> None:
    """Each rule of a reward's fields is checked, and the message says the value and the way out."""
    assert reward_problems(fields) == [problem]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("server: {host: ' '}", "server.host: is blank; give a name or remove the line"),
        ("server: {port: -1}", "server.port: -1 is too small; give at least 0"),
        ("server: {score_timeout_s: 0}", "server.score_timeout_s: 0 is too small; give more than 0"),
        ("server: {on_bad_item: skip}", "'skip' is not possible here; use 'error' or 'reject'"),
        ("server: {video_roots: /tmp}", "'/tmp' is not a list; write '- ' entries below it"),
        ("server: [1]", "server: a list is not a mapping; write 'key: value' lines below it"),
        ("cluster: {ray_address: ''}", "cluster.ray_address: is blank; give a name or remove the line"),
        ("cluster: {namespace: ' '}", "cluster.namespace: is blank; give a name or remove the line"),
        ("limits: {max_body_bytes: 12M}", "'12M' has no unit known here; use B, KB, MB, GB, TB, KiB"),
        ("mps: {mode: managed}", "managed MPS is not available in this version; start the daemon yourself"),
        ("mps: {pipe_directory: /tmp/p}", "mps.pipe_directory: is given while mps.mode is disabled"),
        ("mps: {log_directory: /tmp/l}", "mps.log_directory: is given while mps.mode is disabled"),
        (f"mps: {{mode: external, pipe_directory: /{'p' * 80}}}", "has 81 characters"),
        (
            "mps: {mode: external, pipe_directory: /tmp/p}",
            "rewards: mps.mode is external, but no reward has an mps block",
        ),
        ("x-mine: {anything: 1}\ny-mine: 1", "unknown key 'y-mine'; known keys: server, limits, cluster"),
    ],
)
def test_a_section_that_cannot_work_is_refused(text: str, problem: str) -> None:
    """Each rule of the other sections is checked, one problem for one mistake."""
    (line,) = problems(f"{REWARD}{text}\n")
    assert problem in line


@pytest.mark.parametrize(
    ("limits", "line", "arithmetic"),
    [
        ("max_body_bytes: 1GiB", 4, "2 x 1GiB = 2GiB does not fit 256MiB"),
        ("body_bytes_in_flight: 255MiB", 4, "2 x 128MiB = 256MiB does not fit 255MiB"),
        ("max_image_pixels: 500_000_000", 4, "500000000 x 3 = 1.397GiB does not fit 384MiB"),
        ("max_queued_items: 5\n  decoded_bytes_in_flight: 95MiB", 5, "33554432 x 3 = 96MiB does not fit"),
    ],
)
def test_limits_that_exclude_each_other_are_refused_with_the_arithmetic(
    limits: str, line: int, arithmetic: str
) -> None:
    """A body must fit its budget twice and the largest image once; the line is the one that was written."""
    (problem,) = problems(f"{REWARD}limits:\n  {limits}\n")
    assert problem.startswith(f"<string>:{line}: limits.")
    assert arithmetic in problem


def test_limits_at_their_edge_are_accepted() -> None:
    """The budgets may be exactly as large as what they must hold."""
    text = "limits: {max_body_bytes: 1MiB, body_bytes_in_flight: 2MiB, max_image_pixels: 10, "
    limits = load_config_text(f"{REWARD}{text} decoded_bytes_in_flight: 30}}").limits
    assert (limits.body_bytes_in_flight, limits.decoded_bytes_in_flight) == (2 * 2**20, 30)


@pytest.mark.usefixtures("clip")
@pytest.mark.parametrize(
    ("reward", "problem"),
    [
        ("scorer: ocr, num_gpus: 0.5, mps: {}", ".mps: is for the scorers clip and pickscore, not 'ocr'"),
        ("scorer: clip, num_gpus: 1, mps: {}", ".mps: shares one GPU, but num_gpus is 1"),
        ("scorer: clip, num_gpus: 0, mps: {}", ".mps: shares one GPU, but num_gpus is 0"),
        (
            "scorer: clip, num_gpus: 0.5, params: {dtype: bfloat16}, mps: {active_thread_percentage: 50}",
            ".mps.active_thread_percentage: 50 with dtype bfloat16 corrupts scores",
        ),
        (
            "scorer: clip, num_gpus: 0.5, mps: {active_thread_percentage: 101}",
            ".mps.active_thread_percentage: 101 is too large; give at most 100",
        ),
        (
            "scorer: clip, num_gpus: 0.5, mps: {device_memory_limit: much}",
            ".mps.device_memory_limit: 'much' is not a size",
        ),
    ],
)
def test_an_mps_share_that_cannot_work_is_refused(reward: str, problem: str) -> None:
    """MPS needs a part of one GPU, a scorer known to stand it, and all threads in half precision."""
    (line,) = problems(f"rewards: [{{name: a, {reward}}}]")
    assert problem in line


@pytest.mark.usefixtures("clip")
def test_an_mps_share_is_read() -> None:
    """A valid external MPS configuration gives the directory, the share and the limit in bytes."""
    config = load_config_text(
        "mps: {mode: External, pipe_directory: /tmp/nvidia-mps}\n"
        "rewards:\n- {name: a, scorer: clip, num_gpus: 0.25, mps: {device_memory_limit: 20GiB}}\n"
    )
    share = config.rewards[0].mps
    assert (config.mps.mode, config.mps.pipe_directory) == ("external", "/tmp/nvidia-mps")
    assert share is not None
    assert (share.active_thread_percentage, share.device_memory_limit) == (100, "20GiB")
    assert share.device_memory_limit_bytes == 20 * 2**30


def test_the_values_of_the_yaml_arrive() -> None:
    """Case, units, exponents, empty sections and the author's own anchors read as people mean them."""
    config = load_config_text(
        """\
x-light: &light {num_gpus: 0.5, scheduling: SPREAD}
limits: {max_video_bytes: 1.5 GiB}
server:
rewards:
  - {<<: *light, name: a, scorer: "pkg.mod:Outer.Inner", params: {lr: 1e-3, ids: [1, x], none: null}}
  - {<<: *light, name: b, scorer: ocr, scheduling: pack, hang_timeout_s: null, params: }
"""
    )
    first, second = config.rewards
    assert (first.num_gpus, first.scheduling, second.scheduling) == (0.5, "spread", "pack")
    assert first.params == {"lr": 0.001, "ids": [1, "x"], "none": None}
    assert (second.params, second.hang_timeout_s) == ({}, None)
    assert config.limits.max_video_bytes == 3 * 2**29
    assert (config.server.port, config.source) == (8080, None)


def test_a_problem_in_an_anchor_is_reported_where_it_is_written() -> None:
    """What a merge brings in has the anchor's line, told once per reward; a key of one's own has its own."""
    lines = problems(
        """\
x-base: &base
  num_replicas: 0
  params: &params {a: 1, a: 2}
rewards:
  - {<<: *base, name: a, scorer: ocr}
  - <<: *base
    name: b
    scorer: ocr
    params: *params
    num_replicas: -1
"""
    )
    assert lines == [
        "<string>:2: rewards[0] (a).num_replicas: 0 is too small; give at least 1",
        "<string>:3: x-base.params: key 'a' was already given on line 3; keep one",
        "<string>:10: rewards[1] (b).num_replicas: -1 is too small; give at least 1",
    ]


def test_a_config_cannot_be_changed() -> None:
    """The models are frozen."""
    config = load_config_text(REWARD)
    with pytest.raises(ValidationError, match="frozen"):
        config.server.port = 1  # type: ignore[misc]


def test_a_relative_path_means_beside_the_file_then_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's folder wins; the working directory is the second place; absolute paths stay."""
    beside, cwd = tmp_path / "beside", tmp_path / "cwd"
    for folder in (beside, cwd, beside / "videos"):
        folder.mkdir()
    for file in (beside / "both.txt", cwd / "both.txt", cwd / "old.txt"):
        file.touch()
    (beside / "link").symlink_to(cwd)
    monkeypatch.chdir(cwd)
    (beside / "service.yaml").write_text(
        "server: {video_roots: [videos, link]}\n"
        "rewards:\n"
        "  - {name: a, scorer: ocr, runtime_env: both.txt}\n"
        "  - {name: b, scorer: ocr, runtime_env: old.txt}\n"
        f"  - {{name: c, scorer: ocr, runtime_env: {cwd / 'both.txt'}}}\n"
    )
    config = load_config("../beside/service.yaml")
    assert [reward.runtime_env for reward in config.rewards] == [
        beside / "both.txt", cwd / "old.txt", cwd / "both.txt",
    ]  # fmt: skip
    assert config.server.video_roots == (beside / "videos", cwd)


def test_a_path_that_is_nowhere_is_refused_with_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says where the file was looked for, and a directory is no requirements file."""
    monkeypatch.chdir(tmp_path)
    base = tmp_path / "base"
    base.mkdir()
    text = "rewards:\n  - {name: a, scorer: ocr, runtime_env: %s}\n"
    (line,) = problems(text % "envs/a.txt", base_dir=base)
    assert f"neither at {base}/envs/a.txt nor at {tmp_path}/envs/a.txt" in line
    (line,) = problems(text % base, base_dir=base)
    assert f"no file at {base};" in line
    (line,) = problems(f"{REWARD}server: {{video_roots: [/dev/null]}}")
    assert "<string>:3: server.video_roots[0]: no directory at /dev/null" in line


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    """A path that does not exist raises FileNotFoundError with the path."""
    with pytest.raises(FileNotFoundError, match=r"none\.yaml"):
        load_config(tmp_path / "none.yaml")


def test_what_is_no_text_file_is_refused_by_name(tmp_path: Path) -> None:
    """A directory and a file in another encoding are configuration errors, not tracebacks."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"rewards:\n  - {name: \xe9}\n")
    with pytest.raises(ConfigError, match=r"latin.yaml:2: not UTF-8"):
        load_config(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "<string>:1: the file is empty; give at least 'rewards:' with one entry"),
        ("# only a comment\n", "<string>:1: the file is empty; give at least 'rewards:' with one entry"),
        ("\n- a\n- b\n", "<string>:2: the file holds a list; it must be a mapping with 'rewards:'"),
        ("hello", "<string>:1: the file holds a single value; it must be a mapping with 'rewards:'"),
        ("server: {}\n", "<string>:1: rewards: is missing; add it"),
        ("rewards: []\n", "<string>:1: rewards: the list is empty; give at least one entry"),
        ("rewards:\n", "<string>:1: rewards: has no value; give one, or remove the line"),
        ("rewards: {a: 1}\n", "<string>:1: rewards: a mapping is not a list; write '- ' entries below it"),
        ("server:\n  port: 1\n port: 2\n", "<string>:3: not valid YAML"),
        ("server:\n\tport: 1\n", "<string>:2: not valid YAML"),
        ("a: 1\n---\nb: 2\n", "<string>:2: not valid YAML"),
        ("a: 1\nb: !!python/object:os.system {}\n", "<string>:2: not valid YAML"),
        ("a: 1\nb: 2024-13-45\n", "<string>:2: not valid YAML: '2024-13-45' is not a valid timestamp"),
        ("a: 1\nb: &me [*me]\n", "<string>:2: not valid YAML: an alias (*name) stands inside"),
        ("a: 1\nb: \x00\n", "<string>:2: not valid YAML: unprintable character '\\x00'"),
        ("[" * 5000, "<string>:1: not valid YAML: nested too deeply"),
    ],
)
def test_what_is_no_configuration_is_refused_at_its_line(text: str, problem: str) -> None:
    """Empty files, other shapes and broken YAML get one message with the line."""
    (line,) = problems(text)
    assert line.startswith(problem)


@pytest.mark.parametrize("spec", ["pkg.mod:", ":Cls", "pkg mod:Cls", "pkg.mod:9x", "a:b:c", "pkg..mod:Cls"])
def test_a_scorer_path_must_have_the_shape_of_one(spec: str) -> None:
    """With a colon only the shape is checked, since the module may exist in another environment only."""
    (line,) = problems(f"rewards:\n  - {{name: a, scorer: '{spec}'}}\n")
    assert f"rewards[0] (a).scorer: {spec!r} is not package.module:Class" in line


@pytest.mark.parametrize(
    ("written", "count"),
    [
        (1, 1),
        ("1", 1),
        ("64MiB", 2**26),
        ("64 mib", 2**26),
        ("1.5KiB", 1536),
        ("2GB", 2 * 10**9),
        ("1_000", 1000),
    ],
)
def test_sizes_are_bytes_or_text_with_a_unit(written: int | str, count: int) -> None:
    """Binary and decimal units mean what they say."""
    assert parse_bytes(written) == count


@pytest.mark.parametrize("written", [0, -1, True, 1.5, None, "", "MiB", "1M", "-1KiB", "0.5B", "1.3KiB", "nan", "١MiB"])
def test_what_is_no_size_is_refused(written: object) -> None:
    """Fractions of a byte, unknown units and other types are ValueErrors that show the value."""
    with pytest.raises(ValueError, match=r"size|unit|byte") as caught:
        parse_bytes(written)
    assert repr(written) in str(caught.value)


@given(number=st.integers(1, 1023), unit=st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB"]))
def test_a_formatted_size_reads_back(number: int, unit: str) -> None:
    """`format_bytes` writes what `parse_bytes` reads."""
    assert format_bytes(parse_bytes(f"{number}{unit}")) == f"{number}{unit}"


_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
_known_keys = ["server", "rewards", "mps", "params", "name", "scorer", "num_gpus", "port", "max_body_bytes"]
_keys = st.sampled_from(_known_keys) | st.text(max_size=4) | st.integers() | st.booleans()
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150)
@given(st.dictionaries(_keys, _values, max_size=5))
def test_any_mapping_is_read_or_refused_line_by_line(data: dict[Any, Any]) -> None:
    """Whatever values a mapping holds, the answer is a config or a ConfigError with a line per problem."""
    text = yaml.safe_dump(data)
    try:
        assert isinstance(load_config_text(text), ServiceConfig)
    except ConfigError as error:
        lines = str(error).split("\n")
        numbers = [int(line.split(":")[1]) for line in lines]
        assert numbers == sorted(numbers)
        assert numbers[-1] <= text.count("\n") + 1


@settings(max_examples=150)
@given(st.text(alphabet="ab1:-[]{}&*!<>,'\"#|? \n\t\r.%@~é\x07", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text raises anything but ConfigError."""
    with pytest.raises(ConfigError, match=r"^<string>:\d+: "):
        load_config_text(text)


def test_reading_a_config_imports_nothing_heavy() -> None:
    """`load_config` works where Ray, torch, transformers and FastAPI are not wanted."""
    code = (
        "import sys; from reward_service.config import load_config, describe; "
        "describe(load_config(sys.argv[1])); "
        "print(*sorted({'ray', 'torch', 'transformers', 'fastapi', 'vllm', 'numpy'} & set(sys.modules)))"
    )
    minimal = next(path for path in CONFIGS if path.name == "service.minimal.yaml")
    run = subprocess.run([sys.executable, "-c", code, minimal], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


@pytest.mark.usefixtures("clip")
def test_the_summary_has_a_line_per_reward_and_the_totals() -> None:
    """`describe` shows what to compare with a cluster, says what has no effect, and hides params."""
    config = load_config_text(
        "rewards:\n"
        "  - {name: a, scorer: clip, num_gpus: 0.5, num_replicas: 4, mps: {}, params: {api_key: s3cret}}\n"
        f"  - {{name: longer, scorer: ocr, num_cpus: 3, runtime_env: {__file__}}}\n"
    )
    head, first, second, total, blank, address, note = describe(config).splitlines()
    assert head.split() == ["reward", "scorer", "environment", "replicas", "GPUs", "CPUs"]
    assert first.split(maxsplit=4) == ["a", "clip", "base", "4", "4 x 0.5 = 2  4 x 1 = 4"]
    assert second.split() == ["longer", "ocr", "test_config.py", "1", "1", "3"]
    assert total.split() == ["total", "5", "3", "7"]
    assert blank == ""
    assert address == "listens on 0.0.0.0:8080, Ray started locally"
    assert note == "mps.mode is disabled, so the mps blocks of a have no effect"
    assert "s3cret" not in describe(config)
