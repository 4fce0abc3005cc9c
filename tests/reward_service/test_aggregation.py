"""One number per sample: the rules of `Aggregation`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_service.aggregation import Aggregation

METHODS = ["weighted_sum", "mean", "min", "max"]
finite = st.floats(-1e6, 1e6)
names = st.sampled_from(["clip", "hpsv2", "ocr", "wise"])
sub_metrics = st.dictionaries(st.text("abc", min_size=1, max_size=2), finite, min_size=1, max_size=4)
results = st.dictionaries(names, sub_metrics, min_size=1)
broken = st.sampled_from([None, True, False, "1.0", math.nan, math.inf, -math.inf, [], 10**400])


@given(result=results, weights=st.dictionaries(names, st.floats(0.1, 10)))
def test_weighted_sum_is_the_weighted_mean_of_the_first_sub_metrics(result, weights):
    """Σ w·s / Σ w, a missing weight counting 1.0."""
    firsts = {name: next(iter(values.values())) for name, values in result.items()}
    total = sum(weights.get(name, 1.0) for name in firsts)
    expected = sum(weights.get(name, 1.0) * score for name, score in firsts.items()) / total
    assert Aggregation(weights=weights).aggregate(result, list(result)) == expected


@given(result=results, weights=st.dictionaries(names, finite), method=st.sampled_from(METHODS[1:]))
def test_mean_min_and_max_ignore_the_weights(result, weights, method):
    """The same number with and without weights, and the obvious one."""
    firsts = [next(iter(values.values())) for values in result.values()]
    expected = {"mean": sum(firsts) / len(firsts), "min": min(firsts), "max": max(firsts)}[method]
    assert Aggregation(method, weights).aggregate(result, list(result)) == expected


@given(result=results, method=st.sampled_from(METHODS), reduce=st.sampled_from(["first", "mean", "max"]))
def test_the_number_lies_between_the_smallest_and_the_largest_value(result, method, reduce):
    """No method leaves the range of the values it is made from."""
    values = [value for metrics in result.values() for value in metrics.values()]
    number = Aggregation(method, sub_metric_reduce=reduce).aggregate(result, list(result))
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert min(values) - slack <= number <= max(values) + slack


@given(result=results, bad=broken, method=st.sampled_from(METHODS), at_end=st.booleans())
def test_a_reward_with_an_unusable_sub_metric_counts_as_if_it_were_absent(result, bad, method, at_end):
    """None, a bool, a word, NaN and infinity fail the reward, wherever they stand in it."""
    guilty, *others = result
    metrics = {**result[guilty], "bad": bad} if at_end else {"bad": bad, **result[guilty]}
    rule = Aggregation(method)
    with_guilty = rule.aggregate({**result, guilty: metrics}, list(result))
    assert with_guilty == rule.aggregate({name: result[name] for name in others}, list(result))


@pytest.mark.parametrize("method", METHODS)
def test_no_success_is_none_and_not_zero(method):
    """A sample whose rewards all failed has no number."""
    rule = Aggregation(method)
    assert rule.aggregate({}, ["clip"]) is None
    assert rule.aggregate({"clip": {}}, ["clip"]) is None
    assert rule.aggregate({"clip": {"clip": None}, "ocr": {"ocr": math.nan}}, ["clip", "ocr"]) is None
    assert rule.aggregate({"clip": {"clip": 1.0}}, []) is None


def test_only_required_rewards_count_and_each_once():
    """A reward that nobody asked for is ignored; a name given twice has no double weight."""
    result = {"clip": {"clip": 1.0}, "ocr": {"ocr": 3.0}, "extra": {"extra": 100.0}}
    assert Aggregation("mean").aggregate(result, ["clip", "ocr", "clip"]) == 2.0


@pytest.mark.parametrize(("reduce", "expected"), [("first", 3.0), ("mean", 2.0), ("max", 3.5)])
def test_sub_metrics_reduce_in_their_order(reduce, expected):
    """first is the order of the answer, not of the alphabet."""
    result = {"wise": {"z": 3.0, "a": 3.5, "m": -0.5}}
    assert Aggregation(sub_metric_reduce=reduce).aggregate(result, ["wise"]) == expected


def test_weights_that_do_not_sum_above_zero_give_zero():
    """The rule of the trainers for Σ w ≤ 0."""
    result = {"clip": {"clip": 5.0}, "ocr": {"ocr": 3.0}}
    assert Aggregation(weights={"clip": 0.0, "ocr": 0.0}).aggregate(result, ["clip", "ocr"]) == 0.0
    assert Aggregation(weights={"clip": -2.0}).aggregate(result, ["clip", "ocr"]) == 0.0


def test_arithmetic_beyond_floats_is_no_number():
    """An overflow is a failure, not infinity."""
    huge = {"clip": {"clip": 1e308}, "ocr": {"ocr": 1e308}}
    assert Aggregation("mean").aggregate(huge, ["clip", "ocr"]) is None


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"method": "median"}, "median"),
        ({"sub_metric_reduce": "last"}, "last"),
        ({"weights": {"clip": math.nan}}, "clip"),
        ({"weights": {"clip": "2"}}, "clip"),
        ({"weights": {"clip": True}}, "clip"),
        ({"weights": {3: 1.0}}, "3"),
        ({"weights": [1.0]}, "1.0"),
        ({"weight": {}}, "weight"),
    ],
)
def test_bad_fields_are_refused_by_name(fields, word):
    """The message holds the value that is wrong."""
    with pytest.raises(ValueError, match=word):
        Aggregation.from_mapping(fields)


@given(
    method=st.sampled_from(METHODS),
    weights=st.none() | st.dictionaries(names, finite),
    reduce=st.sampled_from(["first", "mean", "max"]),
)
def test_the_wire_form_comes_back_as_it_was(method, weights, reduce):
    """to_mapping and from_mapping are inverse."""
    rule = Aggregation(method, weights, reduce)
    assert Aggregation.from_mapping(rule.to_mapping()) == rule
