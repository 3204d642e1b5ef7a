"""Tables for docs/internals/scaling.md, of what measure.py has found."""
import statistics

import report
from assumed import MODELS, NETWORKS, RDMA
from model import Compute, Network, bandwidth_needed, efficiency, fit, step

WORKLOADS = {
    "mlp": "MLP 784-32-10, batch 32",
    "cnn": "CNN, batch 16",
    "resnet20": "ResNet-20, batch 32",
    "gpt": "GPT, batch 4",
    "wide": "MLP 8.2 M, batch 64",
}
SIDES = {
    "local": "loop by hand, without communication",
    "overlapped": "loop by hand, `DataParallel`",
    "after": "one all-reduce after backward",
    "in_bf16": "`DataParallel`, gradients in bf16",
    "zero_1": "`DataParallel` and `Sharded` (ZeRO stage 1)",
    "zero_2": "`Sharded` alone (ZeRO stage 2)",
    "trainer": "trainer",
    "trainer_world": "trainer, `.world` of one rank given",
    "trainer_shards": "trainer, `virtual_shards = 4`",
    "py_local": "PyTorch, without communication",
    "py_overlapped": "PyTorch, `DistributedDataParallel`",
    "py_after": "PyTorch, one all-reduce after backward",
    "py_in_bf16": "PyTorch, `bf16_compress_hook`",
    "py_zero_1": "PyTorch, `ZeroRedundancyOptimizer`",
}
OF_ONE_RANK = [("overlapped", "local"), ("trainer_world", "trainer"), ("trainer_shards", "trainer"),
               ("py_overlapped", "py_local")]
RANKS = (8, 64, 512)
MESSAGES = 3  # small all-reduces of a trainer's step


def quartiles_of_ratio(table, variant, other, clock):
    mine, its = (table["variants"][name][clock] for name in (variant, other))
    return report.quartiles([a / b for a, b in zip(mine, its)])


def of_workload(results, ranks):
    return {table["workload"]: table for table in results["tables"] if table["ranks"] == ranks}


def percent(low, middle, high):
    return f"{100 * (middle - 1):+.1f} % [{100 * (low - 1):+.1f}, {100 * (high - 1):+.1f}]"


def one_rank(results):
    """CPU time, because with one rank nothing waits."""
    tables = of_workload(results, 1)
    lines = report.head("one rank", *[WORKLOADS[name] for name in tables])
    for variant, other in [("local", "local"), *OF_ONE_RANK]:
        if not all({variant, other} <= set(table["variants"]) for table in tables.values()):
            continue
        if variant == other:
            title = SIDES[variant] + ": time of a step"
            cells = [report.duration(statistics.median(table["variants"][variant]["cpu_us"])) for table in tables.values()]
        else:
            title = f"{SIDES[variant]}, against {SIDES[other].replace('loop by hand, ', '')}"
            cells = [percent(*quartiles_of_ratio(table, variant, other, "cpu_us")) for table in tables.values()]
        lines.append(report.row([title] + cells))
    return lines


def several_ranks(results, ranks):
    tables = of_workload(results, ranks)
    if not tables:
        return []
    lines = report.head(f"{ranks} ranks, wall time of a step", *[WORKLOADS[name] for name in tables])
    for variant, title in SIDES.items():
        cells = []
        for table in tables.values():
            if variant not in table["variants"]:
                cells.append("")
            elif variant == "overlapped":
                cells.append(report.duration(statistics.median(table["variants"][variant]["wall_us"])))
            else:
                cells.append(report.span(*quartiles_of_ratio(table, variant, "overlapped", "wall_us")))
        if any(cells):
            lines.append(report.row([title] + cells))
    return lines + [""]


def compute_of(phases):
    arrivals = tuple((size, when) for size, when in phases["arrivals"])
    return Compute(phases["forward_s"], phases["backward_s"], phases["update_s"], arrivals)


def network_of(sweep, ranks, processors, kind="float"):
    """That of this machine. `busy`: with as many ranks as processors, copying messages takes time from training."""
    latency, bandwidth = fit([(size, wall) for size, wall, _ in sweep[kind]], ranks)
    large = [entry for entry in sweep[kind] if entry[0] >= 1 << 19]
    busy = statistics.median(min(1, cpu / wall) for _, wall, cpu in large) if ranks >= processors else 0
    size, wall, _ = sweep["copies"][-1]
    return Network(bandwidth, latency, busy=busy, copying=wall / size)


def inputs(results):
    lines = report.head("loopback, Gloo", "latency of a message", "bandwidth of a rank", "the processor is busy",
                        "copies", "all-reduce of 64 bytes")
    for ranks, sweep in results["sweeps"].items():
        for kind, label in (("float", ""), ("bf16", ", bf16")):
            network = network_of(sweep, int(ranks), results["machine"]["cores"], kind)
            small = next(wall for size, wall, _ in sweep[kind] if size == 64)
            lines.append(report.row([
                f"{ranks} ranks{label}", f"{network.latency * 1e6:.0f} µs", f"{network.bandwidth / 1e9:.2f} GB/s",
                f"{100 * network.busy:.0f} %", f"{network.copying * 1e12:.0f} ms/GB", f"{small * 1e6:.0f} µs"]))
    return lines + [""]


def ms(seconds):
    return f"{seconds * 1e3:.2f}" if seconds < 0.0995 else f"{seconds * 1e3:.0f}"


def computed(results):
    tables = of_workload(results, 1)
    lines = report.head("one rank", "gradients, MB", "forward, ms", "backward, ms", "update, ms",
                        "gradients that come in the first half of backward")
    for name, table in tables.items():
        compute = compute_of(table["phases"])
        early = sum(size for size, when in compute.arrivals if when <= compute.backward / 2)
        lines.append(report.row([WORKLOADS[name], f"{compute.bytes / 1e6:.2f}", ms(compute.forward), ms(compute.backward),
                                 ms(compute.update), f"{100 * early / compute.bytes:.0f} %"]))
    return lines + [""]


def predictions(results, ranks):
    """[(workload, how, predicted, measured)], in seconds."""
    processors = results["machine"]["cores"]
    sweep = results["sweeps"][str(ranks)]
    network, network_bf16 = (network_of(sweep, ranks, processors, kind) for kind in ("float", "bf16"))
    rows = []
    for name, table in of_workload(results, ranks).items():
        compute = compute_of(table["phases"])
        ways = {"overlapped": step(compute, network, ranks), "after": step(compute, network, ranks, overlapped=False),
                "in_bf16": step(compute, network_bf16, ranks, scale=0.5),
                "trainer": step(compute, network, ranks, messages=MESSAGES)}
        for variant, predicted in ways.items():
            if variant in table["variants"]:
                measured = statistics.median(table["variants"][variant]["wall_us"]) * 1e-6
                rows.append((name, variant, predicted, measured))
    return rows


def checked(results, ranks):
    lines = report.head(f"{ranks} ranks", "loop", "predicted, ms", "measured, ms", "error")
    for name, variant, predicted, measured in predictions(results, ranks):
        lines.append(report.row([WORKLOADS[name], SIDES[variant].replace("loop by hand, ", ""), ms(predicted),
                                 ms(measured), f"{100 * (predicted / measured - 1):+.0f} %"]))
    return lines + [""]


def all_models(results):
    mine = {WORKLOADS[name]: compute_of(table["phases"]) for name, table in of_workload(results, 1).items()}
    return {**mine, **MODELS}


def cell(compute, network, **how):
    shares = [100 * efficiency(compute, network, ranks, **how) for ranks in RANKS if ranks <= network.largest]
    return " / ".join("<1" if share < 1 else f"{share:.0f}" for share in shares)


def many_ranks(results, **how):
    lines = report.head("", *NETWORKS)
    for name, compute in all_models(results).items():
        lines.append(report.row([name] + [cell(compute, network, **how) for network in NETWORKS.values()]))
    return lines + [""]


def needed(results):
    titles = [f"{ranks} ranks, {label}" for label in ("fp32", "bf16") for ranks in RANKS]
    lines = report.head("Gbit/s for 90 %", "MB of gradients for a second of backward", *titles)
    for name, compute in all_models(results).items():
        cells = [f"{compute.bytes / 1e6 / compute.backward:.0f}"]
        for scale in (1, 0.5):
            for ranks in RANKS:
                bandwidth = bandwidth_needed(compute, RDMA, ranks, 0.9, scale)
                cells.append("none" if bandwidth is None else f"{bandwidth * 8e-9:.3g}")
        lines.append(report.row([name] + cells))
    return lines + [""]


def circumstances(results):
    """One sentence, of the machine and of the runs."""
    machine, software = results["machine"], results["software"]
    rounds = [len(next(iter(table["variants"].values()))["wall_us"]) for table in results["tables"]]
    least, most = min(rounds), max(rounds)
    others = [share for table in results["tables"] for share in table["others"]]
    text = (f"Measured on {results['date']} at revision {software['revision']}, on {machine['cores']} "
            f"{'virtual ' if machine['virtual'] else ''}cores of {machine['processor']} ({machine['family']}), "
            f"{software['system']}, {software['compiler']}, libtorch {results['libtorch']}"
            + (f", PyTorch {results['pytorch']}" if results.get("pytorch") else "")
            + f"; one thread for each rank; {least if least == most else f'{least} to {most}'} rounds. Other programs used "
            f"{statistics.median(others):.2f} processors meanwhile (median; {max(others):.2f} at most).")
    if results["preliminary"]:
        text = "**Preliminary: the machine was shared with other programs.** " + text
    return text


def costs(results):
    lines = [*one_rank(results), ""]
    for ranks in sorted({table["ranks"] for table in results["tables"]} - {1}):
        lines += several_ranks(results, ranks)
    return lines


def scaling_page(results):
    lines = [circumstances(results), "", "### What a step costs", "", *costs(results),
             "### What a rank computes", "", *computed(results),
             "### What an all-reduce costs", "", *inputs(results), "### Predicted and measured", ""]
    for ranks in sorted(int(ranks) for ranks in results["sweeps"]):
        lines += checked(results, ranks)
    lines += ["### 8, 64 and 512 ranks", "",
              "Samples per second and rank, in per cent of those of one rank, for 8 / 64 / 512 ranks. Overlapped reduction, "
              "gradients in fp32:", "", *many_ranks(results),
              "With gradients in bf16:", "", *many_ranks(results, scale=0.5),
              f"With the trainer, whose step makes {MESSAGES} small all-reduces besides, gradients in fp32:", "",
              *many_ranks(results, messages=MESSAGES),
              "### Bandwidth needed", "",
              f"For 90 % of the speed of one rank, with {RDMA * 1e6:.0f} µs a message in a ring "
              "(*none*: latency alone costs more than 10 %).", "", *needed(results)]
    return "\n".join(lines).rstrip() + "\n"
