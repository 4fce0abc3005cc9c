"""Every kind of input, both kinds of output, and what is sent for a row."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_tables(score, table, tmp_path, read, kind, ending):
    """Rows come out in their order with all their columns, one column per sub-metric, and one for errors."""
    rows = read(table)
    source = tmp_path / f"source.{kind}"
    if kind == "jsonl":
        source = table
    elif kind == "csv":
        with source.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), source)
    out = tmp_path / f"out{ending}"
    ran = score(source, out, "--batch-size", 3, rewards="clip,ocr")
    assert ran.code == 0, ran.err
    added = [{"clip.clip": i + 1.0, "clip.error": None, "ocr.ocr": i + 1.0, "ocr.error": None} for i in range(10)]
    assert read(out) == [row | new for row, new in zip(rows, added, strict=True)]
    assert str(out) in ran.err


@pytest.mark.parametrize("kind", ["txt", "json", "metadata.jsonl", "captions.csv"])
def test_folders(score, pictures, tmp_path, read, kind):
    """A folder has its captions beside the pictures, or in one table; sub-folders count."""
    (pictures / "deep").mkdir()
    shutil.move(pictures / "9.png", pictures / "deep" / "9.png")
    names = [f"{i}.png" for i in range(9)] + ["deep/9.png"]
    captions = {name: "x" * (i + 1) for i, name in enumerate(names)}
    for name, text in captions.items():
        if kind == "txt":
            (pictures / name).with_suffix(".txt").write_text(text + "\n")
        if kind == "json":
            (pictures / name).with_suffix(".json").write_text(json.dumps({"caption": text, "style": "flat"}))
    if kind == "metadata.jsonl":
        lines = [json.dumps({"file_name": name, "text": text}) for name, text in captions.items()]
        (pictures / kind).write_text("\n".join(lines))
    if kind == "captions.csv":
        lines = [f"{name},{text}" for name, text in captions.items()]
        (pictures / kind).write_text("\n".join(["image,caption", *lines]))
    out = tmp_path / "out.jsonl"
    assert score(pictures, out).code == 0
    rows = read(out)
    assert [row["clip.clip"] for row in rows] == [float(i + 1) for i in range(10)]
    assert rows[9].get("image", rows[9].get("file_name")) == "deep/9.png"
    if kind == "json":
        assert {row["style"] for row in rows} == {"flat"}


def test_files_travel_as_they_are(score, table, tmp_path, server):
    """Without --image-format the server gets the very bytes of each file; with it, the same pixels."""
    assert score(table, tmp_path / "a.jsonl", "--concurrency", 1).code == 0
    (post,) = server.posts
    assert [post.media(i) for i in range(10)] == [(tmp_path / f"pics/{i}.png").read_bytes() for i in range(10)]
    assert score(table, tmp_path / "b.jsonl", "--concurrency", 1, "--image-format", "webp").code == 0
    for i in range(10):
        sent = Image.open(io.BytesIO(server.posts[1].media(i)))
        assert sent.format == "WEBP"
        assert sent.convert("RGB").getpixel((0, 0)) == (25 * i, 0, 90)


def test_embedded_pictures(score, pictures, tmp_path, read, server):
    """Parquet may hold the encoded pictures themselves, bare or as the usual struct, and keeps its types."""
    data = [(pictures / f"{i}.png").read_bytes() for i in range(3)]
    schema = pyarrow.schema(
        [
            ("caption", pyarrow.string()),
            ("image", pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])),
            ("n", pyarrow.int16()),
            ("raw", pyarrow.binary()),
        ]
    )
    rows = [{"caption": "abc", "image": {"bytes": each, "path": None}, "n": 7, "raw": each} for each in data]
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), source)
    assert score(source, out).code == 0
    assert [server.posts[0].media(i) for i in range(3)] == data
    assert score(source, tmp_path / "raw.jsonl", "--image-column", "raw").code == 0
    assert [server.posts[1].media(i) for i in range(3)] == data
    written = parquet.read_table(out)
    assert written.schema.field("n").type == pyarrow.int16()
    assert written.schema.field("clip.clip").type == pyarrow.float64()
    assert [row["image"]["bytes"] for row in read(out)] == data


def test_two_turns_videos_and_metadata(score, pictures, tmp_path, write, server):
    """A list of pictures becomes one turn each; a video goes with the last turn; metadata is an object."""
    (pictures / "clip.mp4").write_bytes(b"not really a film")
    rows = [
        {"prompt": "edit", "image": ["0.png", "1.png"], "film": None, "meta": {"tag": "counting"}},
        {"prompt": "film", "image": None, "film": "clip.mp4", "meta": '{"n": 2}'},
    ]
    source = write(pictures / "in.jsonl", rows)
    ran = score(source, tmp_path / "o.jsonl", "--video-column", "film", "--metadata-column", "meta")
    assert ran.code == 0, ran.err
    edit, film = server.posts[0].requests
    assert [turn["text"] for turn in edit["history"]] == ["edit", "edit"]
    assert server.posts[0].media(0, turn=0) == (pictures / "0.png").read_bytes()
    assert server.posts[0].media(0, turn=1) == (pictures / "1.png").read_bytes()
    assert [edit["metadata"], film["metadata"]] == [{"tag": "counting"}, {"n": 2}]
    assert server.posts[0].media(1, kind="video") == b"not really a film"


def test_types_of_parquet_from_json(score, pictures, tmp_path, write):
    """From JSON, numbers stay numbers, and values without one type become text."""
    rows = [
        {"prompt": "a", "image": "0.png", "n": 1, "f": 1, "mixed": 3, "list": [1, 2], "flag": True},
        {"prompt": "b", "image": "1.png", "n": 2, "f": 0.5, "mixed": "x", "big": 2**63, "none": None},
    ]
    out = tmp_path / "out.parquet"
    assert score(write(pictures / "in.jsonl", rows), out).code == 0
    written = parquet.read_table(out)
    types = {name: str(written.schema.field(name).type) for name in written.schema.names}
    assert types == {
        "prompt": "string", "image": "string", "n": "int64", "f": "double", "mixed": "string", "list": "string",
        "flag": "bool", "big": "string", "none": "string", "clip.clip": "double", "clip.error": "string",
    }  # fmt: skip
    assert written.column("mixed").to_pylist() == ["3", "x"]
    assert written.column("list").to_pylist() == ["[1,2]", None]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("in.jsonl", '{"prompt": "a", "image": "a.png"}\n{oops\n', "in.jsonl:2: not valid JSON"),
        ("in.jsonl", "[1]\n", "in.jsonl:1: a list, not an object"),
        ("in.jsonl", '{"words": "a", "image": "a.png"}\n', "no prompt column"),
        ("in.jsonl", '{"prompt": "a"}\n', "no image column"),
        ("in.jsonl", '{"prompt": "a", "image": "a.png", "clip.clip": 1}\n', "a column 'clip.clip' already"),
        ("in.jsonl", "", "no rows"),
        ("in.csv", "prompt,image\na,b,c\n", "in.csv:2: more cells"),
        ("in.csv", 'prompt,image\n"a,b\n', "not CSV"),
        ("in.parquet", "nothing", "not a Parquet file"),
        ("in.txt", "a", "give a folder, or a file that ends in .jsonl, .csv, .parquet"),
    ],
)
def test_unusable_input(score, tmp_path, server, name, content, says):
    """An input that cannot be read is refused with its place before anything is sent."""
    (tmp_path / name).write_text(content)
    ran = score(tmp_path / name, tmp_path / "out.jsonl")
    assert ran.code == 2
    assert says in ran.err
    assert not server.posts
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--image-column", "picture"], "no column 'picture' for --image-column"),
        (["--summary", "gone/a.html"], "the folder gone does not exist"),
        (["--summary", "a.pdf"], ".html or .png"),
        (["--batch-size", "0"], "'0' is not a number of at least 1"),
        (["--image-format", "BMP"], "invalid choice"),
        (["--timeout", "-1"], "timeout must be above 0"),
    ],
)
def test_unusable_options(score, table, tmp_path, server, options, says):
    """A wrong option is exit code 2 and says what is wrong."""
    ran = score(table, tmp_path / "out.jsonl", *options)
    assert ran.code == 2
    assert says in ran.err
    assert not server.posts


def test_unusable_paths(score, table, tmp_path):
    """The output needs a known ending, a folder that exists, and another name than the input."""
    assert ".jsonl or .parquet" in score(table, tmp_path / "out.csv").err
    assert "create it" in score(table, tmp_path / "gone" / "out.jsonl").err
    assert "is the input" in score(table, table).err
    assert "no such file" in score(tmp_path / "gone.jsonl", tmp_path / "out.jsonl").err


def test_unknown_reward(score, table, tmp_path):
    """A reward that the service lacks is refused with the nearest name; the right one then works."""
    out = tmp_path / "out.jsonl"
    ran = score(table, out, rewards="clop")
    assert ran.code == 2
    assert "did you mean 'clip'?" in ran.err
    assert score(table, out, rewards="clip").code == 0
