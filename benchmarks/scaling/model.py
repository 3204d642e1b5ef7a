"""How long a training step of several ranks takes: a model on paper (docs/internals/scaling.md says what it leaves out).

All times are seconds, all sizes bytes. A step computes a forward pass, a backward pass and an update. Gradients appear
during the backward pass; they are collected in buckets, and each full bucket is reduced while the pass goes on.
"""
import math
from dataclasses import dataclass

MIB = 1 << 20
FIRST_BUCKET, BUCKET = 1 * MIB, 25 * MIB  # as libtorch's Reducer fills them


@dataclass(frozen=True)
class Compute:
    """Of one rank, without communication."""

    forward: float
    backward: float
    update: float
    arrivals: tuple  # (bytes, seconds since the backward pass began) of each gradient, in their order

    @property
    def step(self):
        return self.forward + self.backward + self.update

    @property
    def bytes(self):
        return sum(size for size, _ in self.arrivals)


@dataclass(frozen=True)
class Network:
    bandwidth: float  # bytes a second that a rank sends, while it receives as much
    latency: float  # of a message between two ranks
    trees: bool = False  # besides rings, so that a small message needs log2(ranks) steps
    busy: float = 0  # share of an all-reduce during which it takes the processor from the backward pass
    copying: float = 0  # seconds a byte, to put gradients together and take them apart again
    largest: int = 1 << 30  # number of ranks


def all_reduce(network, ranks, size):
    """A ring sends 2 (n - 1) messages of size / n, one after another."""
    if ranks == 1:
        return 0
    ring = 2 * (ranks - 1) * (network.latency + size / ranks / network.bandwidth)
    if not network.trees:
        return ring
    return min(ring, 2 * math.ceil(math.log2(ranks)) * network.latency + 2 * size / network.bandwidth)


def buckets(arrivals, first=FIRST_BUCKET, other=BUCKET):
    """(bytes, when it is full): a bucket is closed by the gradient with which it reaches its size."""
    closed, size = [], 0
    for at, (more, when) in enumerate(arrivals):
        size += more
        if size >= (first if not closed else other) or at == len(arrivals) - 1:
            closed.append((size, when))
            size = 0
    return closed


def backward_with(compute, reductions, busy):
    """The backward pass with reductions [(when one may begin, seconds)], which run one after another meanwhile.

    The pass proceeds at the rate 1 - busy during a reduction, at 1 between two. Gradients are late by what it lost.
    """
    clock, done = 0.0, 0.0  # time, and how far the pass is
    for when, seconds in reductions:
        if done < when:
            clock, done = clock + when - done, when
        left = compute.backward - done
        if left <= seconds * (1 - busy):
            done = compute.backward
        else:
            done += seconds * (1 - busy)
        clock += seconds
    return clock + compute.backward - done


def step(compute, network, ranks, overlapped=True, scale=1.0, messages=0):
    """`scale`: bytes sent for a byte of gradients, 0.5 for bf16. `messages`: small all-reduces besides."""
    small = messages * all_reduce(network, ranks, 64)
    size = compute.bytes
    if ranks == 1:
        return compute.step
    if not overlapped:
        copies = network.copying * size
        return compute.step + copies + all_reduce(network, ranks, scale * size) + small
    # Half of the copies: gradients are put together, and then are views of the bucket.
    reductions = [(when, all_reduce(network, ranks, scale * size)) for size, when in buckets(compute.arrivals)]
    backward = backward_with(compute, reductions, network.busy) + network.copying * size / 2
    return compute.forward + backward + compute.update + small


def efficiency(compute, network, ranks, **how):
    """Samples a second and rank, as a share of those of one rank."""
    return compute.step / step(compute, network, ranks, **how)


def bandwidth_needed(compute, latency, ranks, share, scale=1.0):
    """The bandwidth with which a rank reaches this share of the speed of one rank; None if latency alone forbids it."""
    def reaches(bandwidth):
        return efficiency(compute, Network(bandwidth, latency), ranks, scale=scale) >= share

    low, high = 1e3, 1e15
    if not reaches(high):
        return None
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def fit(points, ranks):
    """(latency, bandwidth) of a ring from measured [(bytes, seconds), ...], by least squares of relative errors."""
    rows = [(2 * (ranks - 1) / seconds, 2 * (ranks - 1) / ranks * size / seconds) for size, seconds in points]
    aa, ab, bb = sum(a * a for a, _ in rows), sum(a * b for a, b in rows), sum(b * b for _, b in rows)
    ya, yb = sum(a for a, _ in rows), sum(b for _, b in rows)
    determinant = aa * bb - ab * ab
    latency, per_byte = (ya * bb - yb * ab) / determinant, (yb * aa - ya * ab) / determinant
    if latency <= 0 or per_byte <= 0:
        raise ValueError(f"no ring takes these times: latency {latency:.3g} s, {per_byte:.3g} s a byte")
    return latency, 1 / per_byte


