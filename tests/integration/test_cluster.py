"""Services on a cluster that others started: two nodes, two services, gateways that share replicas."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import Service, item, picture, reward

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
