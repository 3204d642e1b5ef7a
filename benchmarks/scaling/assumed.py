"""What the tables for many ranks assume: networks, and what one rank computes. Nothing here is measured."""
from model import Compute, Network

GBIT = 1e9 / 8
SHARE = 0.9  # of a line's rate that messages get
TCP, RDMA = 30e-6, 5e-6  # seconds a message, software included

NETWORKS = {  # the bandwidth of one rank: ranks that share a network card divide it
    "1 Gbit/s Ethernet": Network(SHARE * GBIT, TCP),
    "10 Gbit/s Ethernet": Network(10 * SHARE * GBIT, TCP),
    "25 Gbit/s Ethernet": Network(25 * SHARE * GBIT, TCP),
    "100 Gbit/s InfiniBand": Network(100 * SHARE * GBIT, RDMA, trees=True),
    "400 Gbit/s InfiniBand": Network(400 * SHARE * GBIT, RDMA, trees=True),
    "NVLink, 450 GB/s": Network(SHARE * 450e9, RDMA, trees=True, largest=8),
}


def compute(seconds, parts):
    """A third of the time is the forward pass. parts: (bytes, share of the work of the backward pass), in its order."""
    backward = 2 / 3 * seconds
    work = sum(share for _, share in parts)
    arrivals, done = [], 0.0
    for size, share in parts:
        done += share / work
        arrivals.append((size, done * backward))
    return Compute(seconds / 3, backward, 0, tuple(arrivals))


def resnet50(seconds):
    """25.6 M parameters. Per stage: blocks, millions of parameters, milliards of multiplications for an image."""
    parts = [(4 * 2.05e6, 0.002)]
    for blocks, parameters, work in ((3, 14.96, 0.81), (6, 7.10, 1.47), (4, 1.22, 1.03), (3, 0.22, 0.68)):
        parts += [(4e6 * parameters / blocks, work / blocks)] * blocks
    return compute(seconds, parts + [(4 * 9.5e3, 0.12)])


def gpt2_small(seconds):
    """124 M parameters. The output layer computes first, but its weights are those of the embedding, which ends last."""
    width, tokens, vocabulary = 768, 1024, 50257
    block = 12 * width * width + 13 * width
    embeddings = (vocabulary + tokens) * width
    parts = [(0, vocabulary * width)]
    parts += [(4 * block, block + tokens * width)] * 12  # attention: tokens * width multiplications for each token
    return compute(seconds, parts + [(4 * embeddings, 0)])


MODELS = {
    "ResNet-50, 64 images in 32 ms": resnet50(0.032),
    "GPT-2 small, 16 x 1024 tokens in 80 ms": gpt2_small(0.080),
}
