"""The networks in JAX, as it does them best: one jitted step that gathers the batch, donates its tensors and updates them.

Only those without convolutions, which XLA computes several times slower than others on a CPU.
"""
import math
import os

_threads = os.environ.get("OMP_NUM_THREADS", "1")
_processors = os.sched_getaffinity(0)
os.environ["JAX_PLATFORMS"] = "cpu"
if _threads == "1":
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false " + os.environ.get("XLA_FLAGS", "")
    os.sched_setaffinity(0, {max(_processors)})  # XLA sizes its pools by this

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from jax import lax  # noqa: E402

import common  # noqa: E402

jax.config.update("jax_cpu_enable_async_dispatch", False)  # a step has ended when its call returns


def linear(x, weight, bias=0.0):
    return x @ weight + bias  # weights are kept transposed


def mlp(p, x):
    return linear(jax.nn.relu(linear(x, *p[:2])), *p[2:])


def norm(x, gain, bias):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gain + bias


def gpt(p, x, heads=4):
    samples, tokens = x.shape
    wte, wpe, *blocks, gain, bias, head = p
    x = wte[x] + wpe[:tokens]
    causal = jnp.tril(jnp.ones((tokens, tokens), bool))

    def block(x, of_block):
        g1, b1, qkv, qkv_bias, proj, proj_bias, g2, b2, up, up_bias, down, down_bias = of_block
        q, k, v = linear(norm(x, g1, b1), qkv, qkv_bias).reshape(samples, tokens, 3, heads, -1).transpose(2, 0, 3, 1, 4)
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
        y = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), -1), v)
        x = x + linear(y.transpose(0, 2, 1, 3).reshape(x.shape), proj, proj_bias)
        return x + linear(jax.nn.gelu(linear(norm(x, g2, b2), up, up_bias), approximate=True), down, down_bias), None

    # A loop over stacked blocks: written out one after the other, XLA takes longer.
    x, _ = lax.scan(block, x, tuple(blocks))
    return linear(norm(x, gain, bias), head)


NETWORKS = {"mlp": mlp, "gpt": gpt}


def is_transposed(work, number, parameter):
    """Whether JAX keeps this parameter of torch transposed: all matrices but the two embeddings of the GPT."""
    return parameter.dim() == 2 and (work.name == "mlp" or number >= 2)


def to_jax(work):
    """torch's parameters as JAX's networks take them; those of the GPT's blocks stacked."""
    given = enumerate(p.detach() for p in work.net.parameters())
    arrays = [jnp.array((p.T if is_transposed(work, i, p) else p).numpy()) for i, p in given]
    if work.name == "gpt":
        arrays[2:-3] = [jnp.stack(arrays[2 + i : -3 : 12]) for i in range(12)]
    return arrays


def to_torch(work, arrays):
    if work.name == "gpt":
        arrays = [*arrays[:2], *(a for block in zip(*arrays[2:-3]) for a in block), *arrays[-3:]]
    with torch.no_grad():
        for i, (p, a) in enumerate(zip(work.net.parameters(), arrays, strict=True)):
            a = torch.from_numpy(np.array(a))
            p.copy_(a.T if is_transposed(work, i, p) else a)


def make(work):
    network = NETWORKS.get(work.name)
    if network is None:
        raise NotImplementedError("only networks without convolutions")
    inputs, targets = jnp.asarray(work.input.numpy()), jnp.asarray(work.target.numpy().astype("int32"))
    if work.name == "gpt":
        inputs = inputs.astype(jnp.int32)
    os.sched_setaffinity(0, _processors)  # the pools exist now
    p = to_jax(work)
    rate, decay = common.ADAMW["lr"], 1 - common.ADAMW["lr"] * common.ADAMW["weight_decay"]

    def step(p, m, v, done, rows):
        x, y = jnp.take(inputs, rows, 0, mode="clip"), jnp.take(targets, rows, 0, mode="clip").reshape(-1)

        def loss(p):
            logits = network(p, x).reshape(len(y), -1)
            return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, y[:, None], 1)[:, 0]).mean()

        g = jax.grad(loss)(p)
        done = done + 1
        m = jax.tree.map(lambda m, g: m + 0.1 * (g - m), m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        scale, root = rate / (1 - 0.9**done), lax.rsqrt(1 - 0.999**done)
        p = jax.tree.map(lambda p, m, v: p * decay - scale * m / (jnp.sqrt(v) * root + 1e-8), p, m, v)
        return p, m, v, done

    jitted = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    carry = p, [jnp.zeros_like(a) for a in p], [jnp.zeros_like(a) for a in p], jnp.zeros((), jnp.float32)

    def train(steps):
        nonlocal carry
        rows = [jnp.asarray(work.rows_of(work.done + i).numpy().astype("int32")) for i in range(steps)]
        for of_batch in rows:
            work.net.note()
            carry = jitted(*carry, of_batch)
        to_torch(work, carry[0])

    return train
