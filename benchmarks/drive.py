"""Runs contenders side by side and writes what they took; benchmarks/run builds them and starts this.

Each contender is a process of its own that trains one workload and sleeps unless it is asked for a segment: so many
more steps. In a round each is asked once, in an order that rotates; what is compared are times of the same round, so
that what the machine does besides hits all of them alike. contender.cpp says what is exchanged.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import facts
import plot
import report

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKLOADS = ["mlp", "cnn", "resnet20", "resnet18", "gpt"]
CPP = ["examples", "by_hand", "trainer", "callbacks", "tuned", "tuned_bf16"]
PYTHON = ["pytorch", "pytorch_fused", "compiled", "jax", "py_composer", "lightning", "transformers", "keras"]
REFERENCE = "examples"
FEW_STEPS = 3


def say(*words):
    print(*words, file=sys.stderr, flush=True)


class Missing(Exception):
    pass


class Failed(Exception):
    pass


def busy_seconds():
    """Of all processors, since the machine started; what other machines took of them included."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class Contender:
    """A process that has answered "ready"."""

    def __init__(self, command, environment):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True)
        self.ready = self.answer()
        if "missing" in self.ready:
            self.close()
            raise Missing(self.ready["missing"])

    def answer(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip()
        raise Failed(said[-600:] or f"ended with {self.process.returncode}")

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() says what happened
        return self.answer()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def command(options, workload, variant):
    if variant in CPP:
        return [str(options.program), workload, variant]
    return [options.python, str(ROOT / "benchmarks/peers/contender.py"), workload, variant, str(options.data)]


def first_segment(workload):
    """It does not count; after it checksums are compared."""
    return f"run {200 if workload == 'mlp' else FEW_STEPS}"


def start(options, workload, threads, result):
    """All contenders that start, each after one segment that does not count."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    contenders = {}
    for variant in options.variants:
        try:
            contender = Contender(command(options, workload, variant), environment)
            first = contender.ask(first_segment(workload))
        except Missing as missing:
            result["missing"][variant] = str(missing)
        except (Failed, OSError) as failed:
            say(f"  {variant} failed: {failed}")
            result["failed"][variant] = str(failed)
        else:
            contenders[variant] = contender
            of_first = dict(first_checksum=first["checksum"], cpu_us=[], wall_us=[])
            result["variants"][variant] = dict(contender.ready, **of_first)
    return contenders


def segment(contender, steps, of_variant, others):
    busy, begin = busy_seconds(), time.monotonic()
    answer = contender.ask(f"run {steps}")
    mine = answer["cpu_s"] * steps / answer["steps"]
    others.append(max(0, (busy_seconds() - busy - mine) / (time.monotonic() - begin)))
    for clock in ("cpu", "wall"):
        of_variant[f"{clock}_us"].append(1e6 * answer[f"{clock}_s"] / answer["steps"])
    of_variant["last_checksum"] = answer["checksum"]


def measure(options, workload, threads, until):
    """One table: a workload with so many threads. Begins no round after `until`, but makes three at least."""
    begin = time.monotonic()
    result = dict(workload=workload, threads=threads, variants={}, missing={}, failed={}, others=[])
    contenders = start(options, workload, threads, result)
    of = result["variants"]
    if REFERENCE not in contenders:
        raise SystemExit(f"{workload}: there is nothing to compare with, {REFERENCE} does not run")
    warm = {variant: contender.ask(first_segment(workload)) for variant, contender in contenders.items()}[REFERENCE]
    result["steps"] = steps = max(FEW_STEPS, round(options.seconds * warm["steps"] / warm["wall_s"]))
    say(f"{workload}, {threads} thread{'s' * (threads > 1)}: {len(contenders)} contenders after "
        f"{time.monotonic() - begin:.0f} s, {steps} steps a segment")
    for number in range(options.rounds):
        if number >= 3 and time.monotonic() > until:
            say(f"  no time for more than {number} rounds")
            break
        names = list(contenders)
        turn = number % len(names)
        for variant in names[turn:] + names[:turn]:
            try:
                segment(contenders[variant], steps, of[variant], result["others"])
            except Failed as failed:
                say(f"  {variant} failed: {failed}")
                result["failed"][variant] = str(failed)
                contenders.pop(variant).close()
                of.pop(variant)
        say(f"  round {number + 1} of {options.rounds}, {time.monotonic() - begin:.0f} s")
    for variant, contender in contenders.items():
        of[variant].update(contender.ask("end"))
        contender.close()
    return result


def words_of(text):
    return [word for word in text.split(",") if word]


def parse():
    parser = argparse.ArgumentParser(prog="benchmarks/run", description="Runs all training loops side by side.")
    add = parser.add_argument
    add("--workloads", type=words_of, default=WORKLOADS, help="some of " + ",".join(WORKLOADS))
    add("--variants", type=words_of, help="some of " + ",".join(CPP + PYTHON))
    add("--threads", type=words_of, default=["1", "2"], help="1,2")
    add("--rounds", type=int, default=11)
    add("--seconds", type=float, default=0.8, help="that a segment of the reference takes")
    add("--minutes", type=float, default=14, help="after which no round begins")
    add("--python", help="one that has torch: measures its loops as well")
    add("--quick", action="store_true", help="three short rounds, into build/benchmarks/quick.md")
    add("--out", type=pathlib.Path, help="docs/internals/benchmarks.md: what is between its markers is replaced")
    add("--again", action="store_true", help="measures nothing: writes what the last run found once more")
    add("--program", type=pathlib.Path, default=ROOT / "build/release/bin/contender")
    add("--data", type=pathlib.Path, default=ROOT / "build/benchmarks/data", help="for contenders in Python")
    options = parser.parse_args()
    for given, known in ((options.workloads, WORKLOADS), (options.variants or [], CPP + PYTHON)):
        if unknown := [word for word in given if word not in known]:
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    if not all(word.isdigit() and int(word) for word in options.threads):
        parser.error("--threads wants numbers, as in 1,2")
    options.threads = [int(word) for word in options.threads]
    if options.quick:
        options.rounds, options.seconds = 3, 0.1
    options.out = options.out or ROOT / ("build/benchmarks/quick.md" if options.quick else "docs/internals/benchmarks.md")
    options.variants = options.variants or CPP + (PYTHON if options.python else [])
    if REFERENCE not in options.variants:
        options.variants.insert(0, REFERENCE)
    if not options.python and set(options.variants) & set(PYTHON):
        parser.error("contenders in Python want --python PYTHON")
    return options


def measure_all(options):
    if set(options.variants) & set(PYTHON):
        for workload in options.workloads:
            say(f"writing the data of {workload} for Python")
            subprocess.run([options.program, "--files", options.data, workload], check=True)
    jobs = [(workload, threads) for threads in options.threads for workload in options.workloads]
    begin, tables = time.monotonic(), []
    for number, (workload, threads) in enumerate(jobs):
        now = time.monotonic()
        left = max(0, begin + 60 * options.minutes - now)
        tables.append(measure(options, workload, threads, now + left / (len(jobs) - number)))
    say(f"measured in {(time.monotonic() - begin) / 60:.1f} minutes")
    return dict(date=datetime.date.today().isoformat(), seconds=options.seconds, machine=facts.of_machine(),
                software=facts.of_software(ROOT, options.program), tables=tables)


def main():
    options = parse()
    kept = ROOT / "build/benchmarks" / ("quick.json" if options.quick else "results.json")
    kept.parent.mkdir(parents=True, exist_ok=True)
    if options.again:
        results = json.loads(kept.read_text())
    else:
        results = measure_all(options)
        kept.write_text(json.dumps(results, indent=1))
    picture = options.out.with_suffix(".svg")
    picture.write_text(plot.svg(results))
    report.write(options.out, report.markdown(results, picture.name))
    say(f"written: {options.out} and {picture.name}; the figures themselves are in {kept.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
