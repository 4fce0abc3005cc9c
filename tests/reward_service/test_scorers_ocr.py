"""ocr: the target of a prompt, the formula, the reading order, and real reading of drawn words."""

from __future__ import annotations

import math
import socket
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from reward_service.errors import BadMedia, ItemError
from reward_service.scorers.base import ScoreItem
from reward_service.scorers.ocr import OcrScorer, edit_distance, reading_order, target_text, text_reward

words = st.text(alphabet="abcXYZ é中", max_size=12)
unquoted = st.text(st.characters(exclude_characters="\"'"), max_size=20)


@pytest.mark.parametrize(
    ("prompt", "target"),
    [
        ('a sign that says "OPEN"', "OPEN"),
        ('"first" and "second"', "first"),
        ("a sign that says 'OPEN'", "OPEN"),
        ("a 'small' sign that says \"OPEN\"", "OPEN"),
        ('a 6" nail', 'a 6" nail'),
        ("the cat's hat and the dog's", "s hat and the dog"),
        ("a red bus", "a red bus"),
        ('an empty ""', ""),
        ("", ""),
    ],
)
def test_target_text(prompt: str, target: str) -> None:
    """The first double-quoted span, else the first single-quoted one, else the whole prompt."""
    assert target_text(prompt) == target


@given(unquoted, st.text(st.characters(exclude_characters='"')), st.text())
def test_the_first_double_quoted_span_is_the_target(before: str, span: str, after: str) -> None:
    """Whatever stands inside the first pair of double quotes is the target, whatever follows it."""
    assert target_text(f'{before}"{span}"{after}') == span


@given(unquoted, unquoted, unquoted)
def test_single_quotes_count_without_double_ones(before: str, span: str, after: str) -> None:
    """Without double quotes the first single-quoted span is the target."""
    assert target_text(f"{before}'{span}'{after}") == span


@given(unquoted)
def test_a_prompt_without_quotes_is_its_own_target(prompt: str) -> None:
    """A prompt without quotes asks for itself."""
    assert target_text(prompt) == prompt


@pytest.mark.parametrize(
    ("target", "recognised", "reward"),
    [
        ("Hello World", "helo world", 0.9),
        ("Hello World", "xx helloworld yy", 1.0),
        ("Hello World", "", 0.0),
        ("Hello", "a very different and long text", 0.0),
        ("", "anything", 1.0),
        ("   ", "", 1.0),
        ("a\tb", "ab", 1 - 1 / 3),  # ASCII spaces only: a tab is a character
    ],
)
def test_text_reward(target: str, recognised: str, reward: float) -> None:
    """The published formula on worked examples."""
    assert text_reward(target, recognised) == pytest.approx(reward)


@given(words, words)
def test_text_reward_is_a_share(target: str, recognised: str) -> None:
    """The reward lies in 0 to 1 and is 1 minus the clipped edit distance unless the target is contained."""
    wanted, got = target.replace(" ", "").lower(), recognised.replace(" ", "").lower()
    reward = text_reward(target, recognised)
    assert 0.0 <= reward <= 1.0
    if wanted in got:
        assert reward == 1.0
    else:
        assert reward == pytest.approx(1 - min(table_distance(wanted, got), len(wanted)) / len(wanted))


@given(words, words, words)
def test_spaces_and_case_do_not_matter(before: str, target: str, after: str) -> None:
    """A target that is read in capitals, spread out and between other words is met."""
    assert text_reward(target, f"{before} {' '.join(target).upper()} {after}") == 1.0


@given(st.text(alphabet="abc", max_size=80), st.text(alphabet="abcd", max_size=80))
def test_edit_distance_is_levenshtein(a: str, b: str) -> None:
    """The bit vectors give what the textbook table gives, either way round."""
    assert edit_distance(a, b) == edit_distance(b, a) == table_distance(a, b)


def table_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]


def box(left: float, top: float, width: float, height: float) -> list[tuple[float, float]]:
    return [(left, top), (left + width, top), (left + width, top + height), (left, top + height)]


@given(st.data())
def test_reading_order_of_a_page(data: st.DataObject) -> None:
    """Words of a page come line by line, left to right, however they are shuffled and however they dance."""
    rows, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    dance = st.floats(-4, 4)
    boxes = [
        box(100 * column, 60 * row + data.draw(dance), 80, data.draw(st.floats(20, 40)))
        for row in range(rows)
        for column in range(columns)
    ]
    shuffled = data.draw(st.permutations(range(len(boxes))))
    order = reading_order([boxes[index] for index in shuffled])
    assert [shuffled[index] for index in order] == list(range(len(boxes)))


@given(
    st.lists(
        st.builds(box, *[st.floats(-1000, 1000)] * 2, *[st.floats(0, 1000)] * 2),
        max_size=12,
    )
)
def test_reading_order_loses_nothing(boxes: list[Any]) -> None:
    """Every box is read once, wherever the boxes lie."""
    assert sorted(reading_order(boxes)) == list(range(len(boxes)))


@pytest.fixture(scope="module")
def scorer() -> OcrScorer:
    for package in ("rapidocr", "onnxruntime"):
        pytest.importorskip(package, reason=f"real reading needs {package}, of the extra demo")
    return OcrScorer()


def drawn(text: str, size: int = 48, canvas: tuple[int, int] = (512, 512)) -> Image.Image:
    image = Image.new("RGB", canvas, "white")
    ImageDraw.Draw(image).text((30, 100), text, fill="navy", font=ImageFont.load_default(size=size))
    return image


def ocr(scorer: OcrScorer, *pairs: tuple[str, Image.Image]) -> list[float]:
    results = scorer.score([ScoreItem([pair]) for pair in pairs])
    assert all(list(result) == ["ocr"] for result in results)
    return [result["ocr"] for result in results]


def test_golden_rewards_of_drawn_words(scorer: OcrScorer) -> None:
    """Words that are drawn right, misspelt, on two lines, small, or not at all get exactly their reward."""
    assert ocr(
        scorer,
        ('a card with "HELLO WORLD"', drawn("HELLO WORLD")),
        ('a card with "Hello"', drawn("Helo", 60)),
        ("a card with 'New York Skyline'", drawn("New York\nSkyline", 60)),
        ('a card with "Open 24 Hours"', drawn("Open 24 Hours", 30, (1024, 1024))),
        ('a card with "HELLO"', drawn("")),
        ("no words wanted", drawn("something else")),
    ) == pytest.approx([1.0, 0.8, 1.0, 1.0, 0.0, 1 / 13])


def test_words_of_one_line_keep_their_order(scorer: OcrScorer) -> None:
    """Pieces of different size on one line are joined from left to right, then comes the next line."""
    image = Image.new("RGB", (700, 330), "white")
    draw = ImageDraw.Draw(image)
    for at, text, size in (((20, 110), "small", 50), ((250, 50), "BIG", 120), ((20, 240), "below", 50)):
        draw.text(at, text, fill="black", font=ImageFont.load_default(size=size))
    assert ocr(scorer, ('"small BIG below"', image)) == [1.0]


def test_a_failure_to_read_is_no_score(scorer: OcrScorer) -> None:
    """An item that cannot be read is a typed failure without inner details; its neighbours are scored."""
    good = ('"HELLO"', drawn("HELLO"))
    unreadable = ('"HELLO"', drawn("HELLO").convert("L"))  # the contract says RGB: the reader chokes on it
    items = [good, ('"HELLO"', None), ('"HELLO"', Image.new("RGB", (20, 2000))), unreadable, good]
    first, missing, thin, choked, last = scorer.score([ScoreItem([pair]) for pair in items])
    assert first == last == {"ocr": 1.0}
    assert isinstance(missing, BadMedia)
    assert "no image" in str(missing)
    assert isinstance(thin, BadMedia)
    assert "20×2000" in str(thin)
    assert isinstance(choked, ItemError)
    assert "512×512" in str(choked)
    assert "/" not in str(choked)
    assert choked.__cause__ is not None
    assert scorer.score([]) == []


def test_loading_and_reading_touch_no_network(monkeypatch: pytest.MonkeyPatch, scorer: OcrScorer) -> None:
    """The weights come from the package: a new scorer starts and reads with every connection refused."""

    def refuse(*args: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    fresh = OcrScorer(num_threads=2, det_max_side=320, min_confidence=0.0)
    fresh.warmup()
    assert ocr(fresh, ('"HELLO"', drawn("HELLO"))) == [1.0]


@pytest.mark.usefixtures("scorer")
def test_num_threads_bounds_the_threads() -> None:
    """With num_threads=1 a scorer adds no thread to its process; with 3 it adds some."""
    program = """if True:
        import os
        import cv2, numpy, onnxruntime
        from reward_service.scorers.ocr import OcrScorer

        def threads():
            return len(os.listdir("/proc/self/task"))

        counts, scorers = [threads()], []
        for num_threads in (1, 3):
            scorers.append(OcrScorer(num_threads=num_threads))
            scorers[-1].warmup()
            counts.append(threads())
        print(*counts)
    """
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    before, with_one, with_three = map(int, done.stdout.split())
    assert before == with_one < with_three


def test_less_confidence_reads_less(scorer: OcrScorer) -> None:
    """min_confidence=1 drops what is not certain, so that nothing is left to match."""
    strict = OcrScorer(min_confidence=1.0)
    (kept,), (dropped,) = (ocr(each, ('"blurred"', drawn("blurred", 18))) for each in (scorer, strict))
    assert kept > dropped


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"backend": "tesseract"}, "no backend 'tesseract'; choose one of: rapidocr"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"det_max_side": 100}, "det_max_side is 100; give at least 320"),
        ({"min_confidence": math.inf}, "min_confidence is inf"),
    ],
)
def test_parameters_out_of_range(params: dict[str, Any], says: str) -> None:
    """A parameter that cannot work is refused at the start, with its value and what to give instead."""
    with pytest.raises(ValueError, match=says):
        OcrScorer(**params)


def test_an_unknown_parameter_is_refused() -> None:
    """A parameter that the backend does not have is a TypeError that names it."""
    with pytest.raises(TypeError, match="num_thread"):
        OcrScorer(num_thread=1)
