"""From request items to works that scorers can take: media is checked, decoded once, and placed in shared memory.

Runs in decode threads, in chunks of items. An item gets room for all of its media at once or waits for it, so
that a request of any size passes through a bounded arena and nothing can wait for room while holding some.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reward_service.errors import BadMedia, ItemError
from reward_service.gateway.arena import Arena
from reward_service.gateway.encode import fragment, to_json
from reward_service.gateway.threads import Threads
from reward_service.gateway.work import RemoteForm, Work
from reward_service.media import PendingImage, check_video, decode_base64, open_image, resolve_video_path
from reward_service.schemas import ScoreItemRequest, Turn

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MediaRules:
    """What media is checked against, and whether encoded files are kept for scorers on other nodes."""

    max_image_pixels: int
    max_video_bytes: int
    video_roots: tuple[Path, ...]
    keep_encoded: bool


class _Block:
    """Media of one request in the arena, shared by equal images; freed when `users` drops to 0.

    A block is spent when it was freed: its source is gone, and an equal image is opened anew.
    """

    __slots__ = ("decoded", "encoded", "failure", "offset", "ref", "size", "source", "users")

    def __init__(self, source: PendingImage | bytes, encoded: bytes) -> None:
        self.source: PendingImage | bytes | None = source
        self.encoded = encoded
        self.size = len(source) if isinstance(source, bytes) else source.nbytes
        self.offset = -1
        self.users = 0
        self.ref: list[object] = []
        self.failure: BadMedia | None = None
        self.decoded = threading.Event()

    @property
    def spent(self) -> bool:
        return self.source is None and self.offset < 0


class _Shared:
    """What the chunks of one request share: equal media, kept until the request is through the intake.

    Keeping stops as soon as a chunk has to wait for room: nothing waits while holding what others need.
    """

    def __init__(self, *, keep: bool) -> None:
        self.seen: dict[object, tuple[str | bytes, _Block]] = {}
        self.keep = keep
        self.kept: list[_Block] = []


@dataclass
class _Item:
    """One item on its way: its opened media and, once prepared, what the scorers get."""

    index: int
    request: ScoreItemRequest
    work: Work
    opened: list[tuple[_Block | None, _Block | Path | None]] | None = None
    blocks: list[_Block] = field(default_factory=list)
    failure: ItemError | None = None


class _Chunk:
    """Items that one thread prepares in a row, for a request whose answer is complete once `done` is set."""

    def __init__(self, items: Sequence[_Item], shared: _Shared, done: asyncio.Future[None]) -> None:
        self.items = items
        self.shared = shared
        self.done = done
        self.position = 0
        # Set when it is this chunk's turn although others wait for room.
        self.first_in_line = False


class Intake:
    """Prepares the media of requests; one per gateway."""

    def __init__(self, arena: Arena, threads: int, rules: MediaRules) -> None:
        self.arena = arena
        # Parsing of large bodies runs there too.
        self.threads = Threads(threads, "decode")
        self._rules = rules
        self._thread_count = threads
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._active = 0
        # How often room was freed.
        self._freed = 0
        # Guards the users, offsets and sharing of blocks.
        self._lock = threading.Lock()

    async def prepare(
        self,
        items: Sequence[tuple[int, ScoreItemRequest, Work]],
        ready: Callable[[list[Work]], None],
        done: asyncio.Future[None],
    ) -> ItemError | None:
        """Prepare *items*, calling *ready* with works as they become available.

        Items with bad media are answered with the error; the first such error is returned. Items that are
        answered when *done* is set (their deadline has passed, say) do not wait for room any more.
        """
        todo = [_Item(*item) for item in items]
        shared = _Shared(keep=len(todo) > 1)
        self._active += 1
        try:
            count = min(len(todo), max(1, 2 * self._thread_count // self._active))
            size = -(-len(todo) // count)
            chunks = [_Chunk(todo[start : start + size], shared, done) for start in range(0, len(todo), size)]
            if len(chunks) == 1:
                await self._run(chunks[0], ready)
            else:
                await asyncio.gather(*(self._run(chunk, ready) for chunk in chunks))
        finally:
            self._active -= 1
            self._stop_keeping(shared)
        return next((item.failure for item in todo if item.failure is not None), None)

    async def _run(self, chunk: _Chunk, ready: Callable[[list[Work]], None]) -> None:
        while chunk.position < len(chunk.items):
            start, freed = chunk.position, self._freed
            await self.threads.run(functools.partial(self._work_on, chunk))
            self._hand_over(chunk.items[start : chunk.position], ready)
            if chunk.first_in_line:
                chunk.first_in_line = False
                if chunk.position > start:
                    self._wake_next()
            if chunk.position < len(chunk.items):
                self._stop_keeping(chunk.shared)
                await self._wait_for_room(chunk, again=chunk.position == start, missed=self._freed != freed)

    # ------------------------------------------------------------------ on the event loop

    def _hand_over(self, items: Sequence[_Item], ready: Callable[[list[Work]], None]) -> None:
        works = []
        for item in items:
            item.work.own(lambda blocks=item.blocks: self._release(blocks))  # type: ignore[misc]
            if item.failure is not None:
                item.work.fail_all(item.failure)
            elif item.work.pending:
                works.append(item.work)
        if works:
            ready(works)

    def _stop_keeping(self, shared: _Shared) -> None:
        with self._lock:
            kept, shared.kept, shared.keep = shared.kept, [], False
        if kept:
            self._release(kept)

    def _release(self, blocks: list[_Block]) -> None:
        freed = False
        with self._lock:
            for block in blocks:
                block.users -= 1
                if not block.users:
                    self.arena.free(block.offset, block.size)
                    block.offset = -1
                    freed = True
        if freed:
            self._freed += 1
            self._wake_next()

    async def _wait_for_room(self, chunk: _Chunk, *, again: bool, missed: bool) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if again and self._waiters:
            self._waiters.appendleft(woken)
        else:
            self._waiters.append(woken)
        if missed or not self.arena.used:
            # Room was freed between the attempt and here, when nobody waited who could be woken.
            self._wake_next()

        def given_up(_: object) -> None:
            if not woken.done() and not any(item.work.pending for item in chunk.items):
                woken.set_result(None)

        chunk.done.add_done_callback(given_up)
        await woken
        chunk.done.remove_done_callback(given_up)
        chunk.first_in_line = True

    def _wake_next(self) -> None:
        while self._waiters:
            woken = self._waiters.popleft()
            if not woken.done():
                woken.set_result(None)
                return

    # ------------------------------------------------------------------ in a decode thread

    def _work_on(self, chunk: _Chunk) -> None:
        """Prepare items until the chunk is done or there is no room for the next one."""
        while chunk.position < len(chunk.items):
            item = chunk.items[chunk.position]
            if item.work.pending:
                try:
                    if not self._prepare(item, chunk):
                        return
                except ItemError as error:
                    item.failure = type(error)(f"item {item.index}: {error}")
                except Exception as error:
                    log.exception("preparing an item failed")
                    item.failure = BadMedia(f"item {item.index}: {type(error).__name__} while preparing its media")
            chunk.position += 1

    def _prepare(self, item: _Item, chunk: _Chunk) -> bool:
        """Open, place and decode one item's media; False when there is no room now."""
        while True:
            if item.opened is None:
                item.opened = [self._open_turn(turn, chunk.shared) for turn in item.request.history]
            blocks = list(dict.fromkeys(b for pair in item.opened for b in pair if isinstance(b, _Block)))
            with self._lock:
                if any(block.spent for block in blocks):
                    item.opened = None
                    continue
                mine = [block for block in blocks if block.offset < 0]
                if mine and not self._allocate(mine, chunk):
                    return False
                for block in blocks:
                    block.users += 1
                item.blocks = blocks
            break
        for block in mine:
            self._fill(block)
        for block in blocks:
            # Decoded by another thread of this request, right now; never one that waits for room.
            block.decoded.wait()
            if block.failure is not None:
                raise block.failure
        self._encode(item)
        return True

    def _open_turn(self, turn: Turn, shared: _Shared) -> tuple[_Block | None, _Block | Path | None]:
        image = turn.image if turn.image is not None else turn.image_b64
        picture = None if image is None else self._open_image(image, shared)
        if turn.video_path is not None:
            return picture, resolve_video_path(
                turn.video_path, self._rules.video_roots, max_bytes=self._rules.max_video_bytes
            )
        video = turn.video if turn.video is not None else turn.video_b64
        return picture, None if video is None else self._open_video(video, shared)

    def _open_image(self, data: str | bytes, shared: _Shared) -> _Block:
        known = self._known(data, shared)
        if known is not None:
            return known
        blob = data if isinstance(data, bytes) else decode_base64(data)
        return self._remember(data, _Block(open_image(blob, max_pixels=self._rules.max_image_pixels), blob), shared)

    def _open_video(self, data: str | bytes, shared: _Shared) -> _Block:
        known = self._known(data, shared)
        if known is not None:
            return known
        most = self._rules.max_video_bytes
        if len(data) > most * 4 // 3 + 128:
            raise BadMedia(f"video over {most} bytes (limits.max_video_bytes)")
        blob = data if isinstance(data, bytes) else decode_base64(data)
        check_video(blob, max_bytes=most)
        return self._remember(data, _Block(blob, blob), shared)

    def _known(self, data: str | bytes, shared: _Shared) -> _Block | None:
        """The block of equal *data* in this request. The key is cheap; bulk is compared only when it matches."""
        with self._lock:
            known, block = shared.seen.get(_sketch(data), (None, None))
            return None if block is None or block.spent or known != data else block

    def _remember(self, data: str | bytes, block: _Block, shared: _Shared) -> _Block:
        """*block*, or the one that another thread opened for equal *data* in the meantime."""
        with self._lock:
            key = _sketch(data)
            known, first = shared.seen.get(key, (None, None))
            if first is not None and known == data and not first.spent:
                return first
            shared.seen[key] = (data, block)
            return block

    def _allocate(self, blocks: list[_Block], chunk: _Chunk) -> bool:
        need = sum(self.arena.rounded(block.size) for block in blocks)
        if need > self.arena.capacity:
            raise BadMedia(
                f"its media takes {need} bytes decoded; at most {self.arena.capacity} (limits.decoded_bytes_in_flight)"
            )
        if self._waiters and not chunk.first_in_line:
            return False
        placed: list[tuple[_Block, int]] = []
        for block in blocks:
            offset = self.arena.allocate(block.size)
            if offset is None:
                for other, start in placed:
                    self.arena.free(start, other.size)
                return False
            placed.append((block, offset))
        for block, offset in placed:
            block.offset = offset
        if chunk.shared.keep:
            for block in blocks:
                block.users += 1
            chunk.shared.kept += blocks
        return True

    def _fill(self, block: _Block) -> None:
        source, block.source = block.source, None
        view = self.arena.view[block.offset : block.offset + block.size]
        try:
            if isinstance(source, PendingImage):
                block.ref = ["a", block.offset, source.width, source.height]
                source.decode_into(view)
            elif source is not None:
                block.ref = ["a", block.offset, block.size]
                view[:] = source
        except BadMedia as error:
            block.failure = error
        except Exception as error:
            log.exception("decoding failed")
            block.failure = BadMedia(f"cannot be decoded: {type(error).__name__}")
        finally:
            view.release()
            if not self._rules.keep_encoded:
                block.encoded = b""
            block.decoded.set()

    def _encode(self, item: _Item) -> None:
        assert item.opened is not None
        request, work = item.request, item.work
        history = [
            (turn.text, None if picture is None else picture.ref)
            for turn, (picture, _) in zip(request.history, item.opened, strict=True)
        ]
        clips = [clip for _, clip in item.opened]
        videos = [clip.ref if isinstance(clip, _Block) else clip and ["p", str(clip)] for clip in clips]
        metadata = b"null" if request.metadata is None else to_json(request.metadata)
        has_video = any(clip is not None for clip in clips)
        work.fragment = fragment(history, videos if has_video else None, metadata)
        if self._rules.keep_encoded:
            work.blob = _remote_form(item, metadata, has_video=has_video)
        item.opened = None


def _remote_form(item: _Item, metadata: bytes, *, has_video: bool) -> RemoteForm:
    assert item.opened is not None
    place = {id(block): position for position, block in enumerate(item.blocks)}
    history = [
        (turn.text, None if picture is None else place[id(picture)])
        for turn, (picture, _) in zip(item.request.history, item.opened, strict=True)
    ]
    videos = [
        place[id(clip)] if isinstance(clip, _Block) else None if clip is None else str(clip) for _, clip in item.opened
    ]
    parts = [block.encoded for block in item.blocks]
    return RemoteForm(history, videos if has_video else None, metadata, parts)


def _sketch(data: str | bytes) -> object:
    """A key that almost always differs for different files, without reading them whole."""
    size = len(data)
    return size, data[size // 2 : size // 2 + 64], data[-64:]
