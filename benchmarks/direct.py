"""The yardstick: the same parsing, decoding and scoring in one process, without HTTP, queues or processes.

    python benchmarks/direct.py --rewards noop,sleep --seconds 4 BODY.json …

Prints one line of JSON: for both codecs, and for one and two threads, items per second and CPU milliseconds
per item, as medians over rounds that take turns. Codec ``pil`` is Pillow with the standard library's base64;
``simplejpeg`` is simplejpeg with pybase64: the same pixels in less time.

With two threads, a request's images are shared out between them, then its rewards. A request of one item leaves
nothing to share out, so that there a third figure, ``apart``, lets two threads take whole requests.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pybase64
import simplejpeg
from PIL import Image

from reward_service.config import load_config
from reward_service.scorers.base import BaseScorer, ScoreItem
from reward_service.scorers.registry import get_scorer_cls

CONFIG = Path(__file__).with_name("config.yaml")
LEAST_ROUNDS = 3
# Requests of one item per round: changing the codec at every request would cost each of them its warm memory.
REQUESTS_PER_ROUND = 16

Decode = Callable[[str], Image.Image]
Score = Callable[[list[ScoreItem]], Sequence[object]]
# Codec, then threads ("1", "2" or "apart"), then what was measured.
Figures = dict[str, dict[str, dict[str, float]]]
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def with_pil(text: str) -> Image.Image:
    """base64 and JPEG with what everybody has."""
    return Image.open(io.BytesIO(base64.b64decode(text))).convert("RGB")


def with_simplejpeg(text: str) -> Image.Image:
    """base64 and JPEG with the fastest packages known."""
    return Image.fromarray(simplejpeg.decode_jpeg(pybase64.b64decode(text, validate=True)))


CODECS: dict[str, Decode] = {"pil": with_pil, "simplejpeg": with_simplejpeg}


def scorers_of(config: Path, names: Sequence[str]) -> list[Score]:
    """The scorers of the rewards *names* in *config*, built as the service builds them; each one call at a time."""
    rewards = {reward.name: reward for reward in load_config(config).rewards}
    return [_one_at_a_time(get_scorer_cls(rewards[name].scorer)(**rewards[name].params)) for name in names]


def _one_at_a_time(scorer: BaseScorer) -> Score:
    lock = threading.Lock()

    def score(items: list[ScoreItem]) -> Sequence[object]:
        with lock:
            return scorer.score(items)

    return score


def score_one(raw: bytes, decode: Decode, scorers: Sequence[Score], share_out: Map) -> None:
    """One request from bytes to scores."""
    turns = [request["history"][0] for request in orjson.loads(raw)["requests"]]
    images = list(share_out(lambda turn: decode(turn["image_b64"]), turns))
    items = [ScoreItem(history=[(turn["text"], image)]) for turn, image in zip(turns, images, strict=True)]
    scores = list(share_out(lambda score: score(items), scorers))
    if any(len(of_one) != len(items) for of_one in scores):
        raise RuntimeError("a scorer answered with another number of results than items")


def measure(raws: Sequence[bytes], scorers: Sequence[Score], seconds: float) -> Figures:
    """Rounds of every codec and use of threads in turn, for about *seconds* and at least `LEAST_ROUNDS`."""
    items = len(orjson.loads(raws[0])["requests"])
    per_round, uses = (REQUESTS_PER_ROUND, ("1", "2", "apart")) if items == 1 else (1, ("1", "2"))
    laps: dict[tuple[str, str], list[tuple[float, float]]] = {(codec, use): [] for codec in CODECS for use in uses}
    with ThreadPoolExecutor(2) as pool:
        until, rounds = time.perf_counter() + seconds, 0
        while rounds <= LEAST_ROUNDS or time.perf_counter() < until:
            batch = [raws[(rounds + number) % len(raws)] for number in range(per_round)]
            for (codec, use), timed in laps.items():
                timed.append(_round(batch, CODECS[codec], scorers, use, pool))
            rounds += 1
    # The first round pays for first calls.
    figures = {variant: _figure(timed[1:], per_round * items) for variant, timed in laps.items()}
    return {codec: {use: figures[codec, use] for use in uses} for codec in CODECS}


def _figure(laps: Sequence[tuple[float, float]], items: int) -> dict[str, float]:
    wall, cpu = (statistics.median(values) / items for values in zip(*laps, strict=True))
    return {"item_s": round(1 / wall, 1), "cpu_ms": round(1e3 * cpu, 3)}


def _round(
    batch: Sequence[bytes], decode: Decode, scorers: Sequence[Score], use: str, pool: ThreadPoolExecutor
) -> tuple[float, float]:
    across: Map = pool.map if use == "apart" else map
    inside: Map = pool.map if use == "2" else map
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in across(lambda raw: score_one(raw, decode, scorers, inside), batch):
        pass
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Measure the body files given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bodies", nargs="+", type=Path, help="files with one request body each")
    parser.add_argument("--rewards", required=True, help="names from the config, with commas")
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--seconds", type=float, default=4.0)
    args = parser.parse_args()
    scorers = scorers_of(args.config, args.rewards.split(","))
    print(json.dumps(measure([path.read_bytes() for path in args.bodies], scorers, args.seconds)))


if __name__ == "__main__":
    main()
