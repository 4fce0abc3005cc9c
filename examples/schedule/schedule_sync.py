"""A synchronous function, scheduled: retried, hedged and timed out like an async one, without a line of asyncio.

python examples/schedule/schedule_sync.py
"""

import json
import urllib.request

from qreward.testing import Delay, FakeJudge
from qreward.utils import schedule


def main() -> None:
    with FakeJudge(answer=lambda body: "8").in_thread() as judge:

        @schedule(timeout=5, retry_times=3, retry_interval=0.1, hedged_request_time=0.2)
        def score(text: str) -> int:
            body = json.dumps({"messages": [{"role": "user", "content": f"Rate 1-10: {text}"}]}).encode()
            with urllib.request.urlopen(f"{judge.url}/chat/completions", data=body) as answer:
                return int(json.load(answer)["choices"][0]["message"]["content"])

        print("a quiet day:        ", score("a poem"))
        judge.script(500, 503)
        print("two failures first: ", score("a poem"))
        judge.script(Delay(3))
        print("a stalled request:  ", score("a poem"))
        print(f"requests the judge saw: {judge.counters.received} (1 + 3 + 2)")


if __name__ == "__main__":
    main()
