"""Tables for people, of what drive.py has measured."""
import statistics

BEGIN, END = "<!-- measured: what {} replaces -->", "<!-- end of what {} replaces -->"
REFERENCE, BARE = "examples", "by_hand"
LABELS = {
    "examples": "as PyTorch's C++ examples",
    "by_hand": "libtorch, tuned by hand",
    "trainer": "trainer",
    "callbacks": "trainer, 10 callbacks, logger",
    "tuned": "trainer, tuned",
    "tuned_bf16": "trainer, tuned, bf16 allowed",
    "pytorch": "PyTorch",
    "pytorch_fused": "PyTorch, fused optimizer",
    "compiled": "PyTorch, torch.compile(step)",
    "jax": "JAX, one jitted step",
    "py_composer": "Composer, in Python",
    "lightning": "Lightning",
    "transformers": "Transformers' Trainer",
    "keras": "Keras on PyTorch",
}
WORKLOADS = {
    "mlp": "MLP 784-32-10, batch 32, AdamW",
    "cnn": "CNN of the MNIST examples, batch 64, AdamW",
    "resnet20": "ResNet-20, batch 128, SGD with momentum",
    "resnet18": "ResNet-18, 3x32x32, batch 64, AdamW",
    "gpt": "GPT, 4 blocks of width 128, 128 tokens, batch 16, AdamW",
}
EXPLANATION = """\
In the tables below, a ratio is the median over the rounds, with the interval that contains the middle half of them.
*Checksum* is the relative difference of the sum of the weights' absolute values from that of the first row, after the
first steps. Rounding causes up to 1e-5; bf16, and dropout masks that channels-last tensors draw in another order, up to
1e-3. Memory is the process's peak during training. *Without data* excludes the data set, which loops by hand store as
floats and the trainer as bytes. *Kept free* is the memory that the caching allocator keeps for later tensors at the end.
*Within budget*: at most 5 % more than by hand without the data, in addition to the memory that is kept free."""
MORE_MEMORY = 1.05  # than the bare loop, besides what waits in the caching allocator


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0], values[0]
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


def ratios(table, variant, clock):
    """First quartile, median and third quartile of the times over the reference's in the same round."""
    reference = table["variants"][REFERENCE][clock]
    return quartiles([mine / its for mine, its in zip(table["variants"][variant][clock], reference)])


def duration(us):
    return f"{us:.0f} µs" if us < 1000 else f"{us / 1000:.1f} ms" if us < 1e5 else f"{us / 1000:.0f} ms"


def threads_of(table):
    return "one thread" if table["threads"] == 1 else f"{table['threads']} threads"


def span(low, middle, high):
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def memory(of, variant):
    """Peak, peak without the data set, its ratio to the bare loop's, what waits in the cache, and the verdict."""
    mine = of[variant]["peak_mib"] - of[variant]["data_mib"]
    cells = [f"{of[variant]['peak_mib']:.0f}", f"{mine:.0f}"]
    cached = of[variant]["cached_mib"]
    if BARE not in of:
        return cells + ["", f"{cached:.0f}" if cached else "", ""]
    bare = of[BARE]["peak_mib"] - of[BARE]["data_mib"]
    within = "" if "versions" in of[variant] else "yes" if mine <= MORE_MEMORY * bare + cached else "**no**"
    return cells + [f"{mine / bare:.2f}", f"{cached:.0f}" if cached else "", within]


def agreement(of, variant):
    if variant == REFERENCE:
        return "reference"
    its = of[REFERENCE]["first_checksum"]
    difference = abs(of[variant]["first_checksum"] - its) / its
    return "equal" if difference == 0 else f"{difference:.0e}"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def head(*titles):
    return [row(titles), "|" + "---|" * len(titles)]


def details(table):
    of = table["variants"]
    lines = [f"#### {WORKLOADS[table['workload']]}: {threads_of(table)}", ""]
    lines += head("", "per step", "wall time", "CPU time", "peak MiB", "without data", "vs by hand",
                  "kept free", "within budget", "checksum")
    for variant in of:
        wall, cpu = ratios(table, variant, "wall_us"), ratios(table, variant, "cpu_us")
        lines.append(row([LABELS[variant], duration(statistics.median(of[variant]["wall_us"])), span(*wall), span(*cpu)]
                         + memory(of, variant) + [agreement(of, variant)]))
    notes = [f"*{LABELS[variant]}* chose {'; '.join(of[variant]['notes'])}." for variant in of if of[variant]["notes"]]
    others = table["others"]
    notes.append(f"{len(of[REFERENCE]['wall_us'])} rounds of {table['steps']} steps; other programs used "
                 f"{statistics.median(others):.2f} processors meanwhile (median; {max(others):.2f} at most).")
    for variant, why in table["failed"].items():
        notes.append(f"*{LABELS[variant]}* failed: `{why.splitlines()[-1]}`.")
    return lines + ["", " ".join(notes), ""]


def summary(tables):
    lines = head("wall time, " + threads_of(tables[0]), *[table["workload"] for table in tables])
    variants = [variant for variant in LABELS if any(variant in table["variants"] for table in tables)]
    for variant in variants:
        cells = []
        for table in tables:
            if variant not in table["variants"]:
                cells.append("")
            elif variant == REFERENCE:
                cells.append(duration(statistics.median(table["variants"][variant]["wall_us"])))
            else:
                cells.append(f"{ratios(table, variant, 'wall_us')[1]:.2f}")
        lines.append(row([LABELS[variant]] + cells))
    return lines + [""]


def circumstances(results):
    machine, software = results["machine"], results["software"]
    of = results["tables"][0]["variants"]
    versions = {f"libtorch {of[REFERENCE]['libtorch']}": None}
    for table in results["tables"]:
        for variant in table["variants"].values():
            if "versions" in variant:
                versions[f"PyTorch {variant['libtorch']}"] = None
                versions.update({f"{name} {number}": None for name, number in variant["versions"].items()})
    missing = {}
    for table in results["tables"]:
        for variant, reason in table["missing"].items():
            missing.setdefault((LABELS[variant], reason), {})[table["workload"]] = None
    lines = [
        f"Measured on {results['date']} at revision {software['revision']}, on {machine['cores']} "
        f"{'virtual ' if machine['virtual'] else ''}cores of {machine['processor']} ({machine['family']}; "
        f"{', '.join(machine['caches'])}; with {', '.join(machine['flags']) or 'no AVX'}"
        + (f"; without {', '.join(machine['lacks'])}" if machine["lacks"] else "")
        + f"), {machine['memory_gib']} GiB, {software['system']}, {software['compiler']}, "
        f"{', '.join(versions)}, OMP_WAIT_POLICY={software['wait_policy']}."
    ]
    lines += [f"Not measured: {label} on {', '.join(workloads)} ({reason})."
              for (label, reason), workloads in sorted(missing.items())]
    return lines + [""]


def markdown(results, picture):
    lines = circumstances(results)
    lines += [f"![time of a training step, by loop and workload]({picture})", "",
              "The first row is the median time per step; the other rows are relative to it: medians over the rounds.", ""]
    for threads in sorted({table["threads"] for table in results["tables"]}):
        lines += summary([table for table in results["tables"] if table["threads"] == threads])
    lines += EXPLANATION.splitlines() + [""]
    for table in results["tables"]:
        lines += details(table)
    return "\n".join(lines).rstrip() + "\n"


def write(path, text, command="benchmarks/run"):
    """Between the command's markers in the file; at its end if it has none."""
    begin, end = BEGIN.format(command), END.format(command)
    path.parent.mkdir(parents=True, exist_ok=True)
    old = path.read_text() if path.exists() else "# Benchmarks\n"
    before, found, rest = old.partition(begin)
    after = rest.partition(end)[2] if found else "\n"
    path.write_text(before.rstrip() + f"\n\n{begin}\n{text}{end}" + (after or "\n"))
