"""config= and ConfigWatcher: change limits of a running program by editing a file.

python examples/schedule/schedule_config_hot_reload.py
"""

import asyncio
import json
import tempfile
from pathlib import Path

from qreward.utils import schedule
from qreward.utils.scheduler import ConfigWatcher, ScheduleConfig


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "limits.json"
        path.write_text(json.dumps({"limit_size": 5}))
        loop = asyncio.get_running_loop()
        config = ScheduleConfig(limit_size=5, limit_window=1.0)
        done = 0

        @schedule(config=config)
        async def score(text: str) -> None:
            nonlocal done
            done += 1

        async def count(seconds: float) -> int:
            before = done
            await asyncio.sleep(seconds)
            return done - before

        changed = asyncio.Event()
        config.on_change(lambda _: loop.call_soon_threadsafe(changed.set))
        watcher = ConfigWatcher(config, source="file", file_path=str(path), cooldown=0.0)
        watcher.start()
        try:
            calls = [asyncio.create_task(score(f"poem {i}")) for i in range(200)]
            print("limit_size 5:  ", await count(1.0), "calls in a second")
            path.write_text(json.dumps({"limit_size": 50}))
            await changed.wait()
            print("limit_size 50: ", await count(1.0), "calls in a second, the waiting ones included")
            path.write_text(json.dumps({"limit_size": 0, "retry_interval": -1}))
            await asyncio.sleep(0.5)
            print("a bad file:     refused, limit_size is still", config.limit_size)
            path.write_text(json.dumps({"limit_size": 0}))
            await asyncio.gather(*calls)
            print("limit_size 0:   the rest at once")
        finally:
            watcher.stop()


if __name__ == "__main__":
    asyncio.run(main())
