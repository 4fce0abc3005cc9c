"""Services on a cluster that others started: two nodes, two services, gateways that share replicas."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from .conftest import Service, alive, item, marked, picture, reward, wait_until

pytestmark = pytest.mark.integration
AUTH = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a cluster of two nodes on this machine, one CPU each."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in AUTH.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        nodes.add_node(num_cpus=1)
        try:
            yield nodes.address
        finally:
            nodes.shutdown()


def post(service: Service, *items: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        service.url + "/score", json.dumps({"requests": items}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture
def join(start: Callable[..., Service], cluster: str) -> Callable[..., Service]:
    """``join(reward(), …)``: a service on the cluster."""

    def run(*rewards: dict[str, Any], placement_timeout_s: float = 60.0, **options: Any) -> Service:
        section = {"ray_address": cluster, "namespace": "tests", "placement_timeout_s": placement_timeout_s}
        return start(*rewards, cluster=section, env=AUTH, **options)

    return run


def test_replicas_on_another_node_get_the_same_pixels(join: Callable[..., Service]) -> None:
    """Two replicas, one per node: pictures reach the remote one over TCP, with the pixels of the local one."""
    service = join(reward("sums", "Checksum", num_replicas=2, num_cpus=0.6, scheduling="spread", max_batch_size=1))
    service.wait_ready()
    items = [item("x", "sums", image=picture(colour, (40, 30))) for colour in ("red", "green", "blue") * 8]
    answer = post(service, *items)
    assert answer["errors"] == [{}] * len(items)
    images = [result["sums"]["image"] for result in answer["results"]]
    assert len(set(images)) == 3
    assert images == images[:3] * 8
    assert len({replica["pid"] for replica in service.replicas("sums")}) == 2
    assert sorted(replica["transport"] for replica in service.replicas("sums")) == ["shared memory", "tcp"]
    assert service.stop() == 0


def test_two_services_on_one_cluster(join: Callable[..., Service]) -> None:
    """They share nothing but the nodes: equal names do not collide, and one may end without the other."""
    first, second = join(reward("same", num_cpus=0.2)), join(reward("same", num_cpus=0.2))
    first.wait_ready()
    second.wait_ready()
    for service in (first, second):
        assert post(service, item("x", "same"))["results"] == [{"same": {"value": 1.0}}]
    assert first.stop() == 0
    assert post(second, item("x", "same"))["results"] == [{"same": {"value": 1.0}}]
    assert second.stop() == 0


def test_a_second_gateway_shares_the_replicas(join: Callable[..., Service]) -> None:
    """``--attach``: both gateways answer from one process; the second may leave without taking it along."""
    first = join(reward("shared", num_cpus=0.2))
    first.wait_ready()
    service_id = re.search(r"--attach (\w+)", first.output())
    assert service_id is not None
    second = join(reward("shared", num_cpus=0.2), options=("--attach", service_id[1]))
    second.wait_ready()
    assert second.replicas("shared")[0]["pid"] == first.replicas("shared")[0]["pid"]
    for service in (first, second):
        assert post(service, item("x", "shared"))["errors"] == [{}]
    assert second.stop() == 0
    assert post(first, item("x", "shared"))["errors"] == [{}]
    assert first.stop() == 0


def test_attaching_to_nothing_is_refused(join: Callable[..., Service]) -> None:
    """An unknown service id ends with exit code 2 and says what to do."""
    service = join(reward(num_cpus=0.2), options=("--attach", "cafe0000"))
    assert service.process.wait(90) == 2
    assert "cafe0000" in service.output()


def test_a_replica_without_a_place_is_failed_not_awaited_for_ever(join: Callable[..., Service]) -> None:
    """What fits on paper but is taken by others: `failed` with a reason after placement_timeout_s."""
    holder = join(reward("holder", num_cpus=0.9), reward("holder2", num_cpus=0.9))
    holder.wait_ready()
    late = join(reward("late", num_cpus=0.9, required=False), reward("small", num_cpus=0.0), placement_timeout_s=3.0)
    late.wait_ready()
    (replica,) = late.replicas("late")
    assert replica["state"] == "failed"
    assert "placement_timeout_s" in replica["reason"]
    answer = post(late, item("x", "late", "small"))
    assert answer["results"] == [{"small": {"value": 1.0}}]
    assert set(answer["errors"][0]) == {"late"}
    assert late.stop() == 0
    assert holder.stop() == 0


def test_a_placement_that_cannot_work_is_refused_with_its_arithmetic(join: Callable[..., Service]) -> None:
    """More CPUs than the cluster has: exit code 2, the sums, what to do, and no replica was started."""
    service = join(reward("large", num_cpus=0.8, num_replicas=3))
    assert service.process.wait(90) == 2
    for words in ("3 x 0.8 = 2.4", "2 x 1 = 2", "0.4 CPUs too few", "lower num_replicas or num_cpus"):
        assert words in service.output()
    assert "Traceback" not in service.output()


def test_a_killed_gateway_leaves_no_scorer_on_the_cluster(join: Callable[..., Service]) -> None:
    """kill -9 of the service on a cluster that lives on: its scorers on both nodes end, another service's do not."""
    other = join(reward("other", num_cpus=0.2))
    other.wait_ready()
    service = join(reward("gone", num_replicas=2, num_cpus=0.6, scheduling="spread"))
    service.wait_ready()
    scorers = [psutil.Process(replica["pid"]) for replica in service.replicas("gone")]
    actors = [scorer.parent() for scorer in scorers]
    assert len({actor.parent() for actor in actors}) == 2
    service.process.kill()
    wait_until(lambda: not any(map(alive, [*scorers, *actors])), "the end of scorers and actors")
    assert post(other, item("x", "other"))["errors"] == [{}]
    assert other.stop() == 0


@pytest.fixture
def head() -> Iterator[dict[str, str]]:
    """A head node as people start one, with Ray's defaults (it asks for a token); the environment to find it."""
    mark = uuid.uuid4().hex
    # Short, because Ray keeps sockets below it.
    with tempfile.TemporaryDirectory(prefix="rs") as folder:
        env = {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port", "0"]
        log = Path(folder) / "head.log"
        with log.open("wb") as output:
            node = subprocess.Popen(
                [*command, "--num-cpus", "1", "--include-dashboard", "false"],
                stdout=output, stderr=output, env={**os.environ, **env, "REWARD_SERVICE_TEST": mark},
            )  # fmt: skip
        try:
            wait_until(lambda: "Ray runtime started" in log.read_text(), "the head node")
            yield env
        finally:
            # `ray start --block` leaves a part of the node behind when it is ended.
            for one in [one for one in psutil.process_iter() if marked(one, mark)]:
                with contextlib.suppress(psutil.Error):
                    one.kill()
            node.wait(30)


def test_a_cluster_with_rays_defaults_is_joined_by_auto(start: Callable[..., Service], head: dict[str, str]) -> None:
    """`ray start --head`, then `ray_address: auto`: the token is found, and the cluster outlives the service."""
    for _ in range(2):
        service = start(reward(num_cpus=0.5), cluster={"ray_address": "auto"}, env=head)
        service.wait_ready()
        assert post(service, item())["results"] == [{"s": {"value": 1.0}}]
        assert service.stop(signal.SIGINT) == 0


def test_a_cluster_that_is_not_there_is_named(start: Callable[..., Service]) -> None:
    """Nobody at the address: exit code 2 at once, the address, and what to check."""
    service = start(reward(), cluster={"ray_address": "127.0.0.1:9"})
    assert service.process.wait(90) == 2
    assert "cluster.ray_address '127.0.0.1:9': Connection refused" in service.output()
    assert "Is the cluster up" in service.output()
    assert "Traceback" not in service.output()
