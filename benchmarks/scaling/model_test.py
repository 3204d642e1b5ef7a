#!/usr/bin/env python3
"""Tests of the model and of its tables, with numbers that can be checked by hand."""
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import assumed  # noqa: E402
import tables  # noqa: E402
from model import (MIB, Compute, Network, all_reduce, backward_with, bandwidth_needed, buckets, efficiency,  # noqa: E402
                   fit, step)

# Ten seconds, of which six are backward: 2 MiB after 2 s, 26 MiB after 4 s, 1 MiB at the end.
COMPUTE = Compute(3, 6, 1, ((2 * MIB, 2), (26 * MIB, 4), (1 * MIB, 6)))
FAST = Network(bandwidth=1e15, latency=0)


class AllReduce(unittest.TestCase):
    def test_a_ring_sends_each_byte_almost_twice(self):
        self.assertAlmostEqual(all_reduce(Network(100, 0), 4, 1000), 2 * 3 / 4 * 1000 / 100)

    def test_a_ring_pays_the_latency_of_each_message(self):
        self.assertAlmostEqual(all_reduce(Network(1e15, 0.5), 4, 0), 6 * 0.5)

    def test_a_tree_is_taken_where_it_is_faster(self):
        self.assertAlmostEqual(all_reduce(Network(1e15, 0.5, trees=True), 64, 0), 2 * 6 * 0.5)
        self.assertAlmostEqual(all_reduce(Network(1, 0, trees=True), 2, 10), 10)

    def test_one_rank_sends_nothing(self):
        self.assertEqual(all_reduce(Network(1, 1), 1, 1000), 0)


class Buckets(unittest.TestCase):
    def test_a_bucket_is_closed_by_the_gradient_that_fills_it(self):
        self.assertEqual(buckets(COMPUTE.arrivals), [(2 * MIB, 2), (26 * MIB, 4), (1 * MIB, 6)])
        self.assertEqual(buckets(((MIB // 2, 1), (MIB // 2, 2), (5 * MIB, 3), (20 * MIB, 4))), [(MIB, 2), (25 * MIB, 4)])

    def test_what_is_left_is_a_bucket(self):
        self.assertEqual(buckets(((10, 1), (10, 2))), [(20, 2)])


class Backward(unittest.TestCase):
    def test_what_fits_into_the_pass_is_hidden(self):
        self.assertAlmostEqual(backward_with(COMPUTE, [(2, 1), (4, 1)], busy=0), 6)

    def test_what_begins_at_its_end_is_not(self):
        self.assertAlmostEqual(backward_with(COMPUTE, [(2, 1), (6, 1.5)], busy=0), 7.5)

    def test_reductions_wait_for_each_other(self):
        self.assertAlmostEqual(backward_with(COMPUTE, [(2, 3), (4, 3)], busy=0), 2 + 3 + 3)

    def test_a_reduction_on_the_same_processor_hides_only_its_waiting(self):
        self.assertAlmostEqual(backward_with(COMPUTE, [(2, 2)], busy=1), 8)
        self.assertAlmostEqual(backward_with(COMPUTE, [(2, 2)], busy=0.5), 7)
        self.assertAlmostEqual(backward_with(COMPUTE, [(2, 2), (3, 1)], busy=0.5), 7.5)

    def test_a_pass_without_reductions_takes_its_time(self):
        self.assertAlmostEqual(backward_with(COMPUTE, [], busy=0.5), 6)


class Step(unittest.TestCase):
    def test_a_step_without_communication_is_computation(self):
        self.assertEqual(step(COMPUTE, Network(1, 1), 1), 10)
        self.assertAlmostEqual(step(COMPUTE, FAST, 8), 10, places=5)

    def test_after_backward_everything_is_added(self):
        network = Network(29 * MIB, 0)  # a second for all gradients of two ranks
        self.assertAlmostEqual(step(COMPUTE, network, 2, overlapped=False), 11)
        self.assertAlmostEqual(step(COMPUTE, network, 2, overlapped=False, scale=0.5), 10.5)
        self.assertAlmostEqual(step(COMPUTE, network, 2), 10 + 1 / 29)  # only the last bucket is not hidden

    def test_copies_and_small_messages_are_added(self):
        network = Network(1e15, 0.25, copying=1 / (29 * MIB))
        self.assertAlmostEqual(step(COMPUTE, network, 2, overlapped=False, messages=3), 10 + 1 + 0.5 + 3 * 0.5, places=5)

    def test_the_bandwidth_needed_gives_the_efficiency_asked_for(self):
        bandwidth = bandwidth_needed(COMPUTE, 1e-3, 64, 0.9)
        self.assertAlmostEqual(efficiency(COMPUTE, Network(bandwidth, 1e-3), 64), 0.9, places=2)
        self.assertIsNone(bandwidth_needed(COMPUTE, 1, 64, 0.9))


class Fit(unittest.TestCase):
    def test_a_ring_is_found_again(self):
        network = Network(2e9, 40e-6)
        points = [(size, all_reduce(network, 4, size)) for size in (8, 1 << 10, 1 << 20, 1 << 25)]
        latency, bandwidth = fit(points, 4)
        self.assertAlmostEqual(latency, 40e-6)
        self.assertAlmostEqual(bandwidth / 2e9, 1)

    def test_times_that_no_ring_takes_are_an_error(self):
        with self.assertRaises(ValueError):
            fit([(8, 1), (1 << 20, 0.5), (1 << 25, 0.1)], 2)


class Assumed(unittest.TestCase):
    def test_models_have_the_sizes_of_their_names(self):
        sizes = {name.split(",")[0]: compute.bytes / 4e6 for name, compute in assumed.MODELS.items()}
        self.assertAlmostEqual(sizes["ResNet-50"], 25.6, delta=0.1)
        self.assertAlmostEqual(sizes["GPT-2 small"], 124.4, delta=0.1)

    def test_gradients_come_in_order_until_backward_ends(self):
        for compute in assumed.MODELS.values():
            times = [when for _, when in compute.arrivals]
            self.assertEqual(times, sorted(times))
            self.assertAlmostEqual(times[-1], compute.backward)


def example():
    """What measure.py writes, of a machine on which the model is right."""
    network = Network(1e9, 50e-6)
    compute = Compute(0.003, 0.006, 0.001, ((2 * MIB, 0.002), (2 * MIB, 0.006)))
    phases = dict(forward_s=0.003, backward_s=0.006, update_s=0.001, arrivals=[list(entry) for entry in compute.arrivals])

    def points(ranks, scale):
        return [[size, all_reduce(network, ranks, size * scale), 0] for size in (64, 1 << 12, 1 << 20, 1 << 25)]

    def table(ranks, **steps):
        variants = {name: dict(wall_us=[1e6 * one] * 3, cpu_us=[1e6 * one] * 3) for name, one in steps.items()}
        return dict(workload="cnn", ranks=ranks, variants=variants, phases=phases, others=[0.01])

    sweeps = {"2": dict(float=points(2, 1), bf16=points(2, 2), copies=[[1 << 25, 0, 0]])}
    of_two = dict(local=compute.step, overlapped=step(compute, network, 2),
                  after=step(compute, network, 2, overlapped=False), trainer=step(compute, network, 2, messages=tables.MESSAGES))
    found = [table(1, local=0.01, overlapped=0.01005, trainer=0.01, trainer_world=0.01, trainer_shards=0.011),
             table(2, **of_two)]
    return dict(date="2026-01-01", preliminary=True, libtorch="2.15.0", pytorch=None, sweeps=sweeps, tables=found,
                machine=dict(cores=2, processor="a processor", family="family 1", virtual=True),
                software=dict(revision="0", system="Linux", compiler="g++"))


class Tables(unittest.TestCase):
    def test_a_model_that_is_right_has_no_error(self):
        for _, variant, predicted, measured in tables.predictions(example(), 2):
            self.assertAlmostEqual(predicted / measured, 1, places=6, msg=variant)

    def test_pages_say_what_was_measured(self):
        page = tables.scaling_page(example())
        self.assertIn("Preliminary", page)
        self.assertIn("+0.5 % [+0.5, +0.5]", page)
        self.assertIn("| one all-reduce after backward |", page)

    def test_rows_have_as_many_cells_as_their_heads(self):
        for block in re.findall(r"(?:^\|.*\n)+", tables.scaling_page(example()), re.M):
            self.assertEqual(len({line.count("|") for line in block.splitlines()}), 1, block)


if __name__ == "__main__":
    unittest.main()
