#!/usr/bin/env python3
"""Writes torchmetrics.json: what torchmetrics computes on the problems of torchmetrics_test.cpp.

    python3 tests/metrics/torchmetrics_values.py        # needs torch and torchmetrics (1.9.0 was used)

Inputs are not stored: this script and the test draw them by the same numbers (Draw here and there). The values of a case
are one for each problem: null for NaN, and false where the test must not compare: where torchmetrics refuses to compute,
where all targets of the problem, or of a label, are ignored, which gives 0 or NaN there and always NaN here, and for
are_of_class_0().
"""
import json
import math
import pathlib
import warnings

import torch
import torchmetrics as tm
from torchmetrics import classification as tc
from torchmetrics import regression as tr
from torchmetrics import segmentation as ts
from torchmetrics import text as tt

PROBLEMS = 100
MASK = (1 << 64) - 1


class Draw:
    """splitmix64."""

    def __init__(self, seed):
        self.state = seed * 1000003 + 12345

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n

    def unit(self):
        return (self.next() >> 40) / 16777216.0

    def bell(self):
        return self.unit() + self.unit() + self.unit() + self.unit() - 2.0


def scores(draw, seed, sizes):
    """In [0, 1]; every third problem has equal scores."""
    count = math.prod(sizes)
    values = [draw.unit() for _ in range(count)]
    if seed % 3 == 0:
        values = [math.floor(value * 8) / 8 for value in values]
    return torch.tensor(values, dtype=torch.float64).reshape(sizes)


def values(draw, seed, sizes):
    """Every fourth problem is far from 0."""
    far = 100.0 if seed % 4 == 0 else 0.0
    return torch.tensor([draw.bell() + far for _ in range(math.prod(sizes))], dtype=torch.float64).reshape(sizes)


def classes(draw, seed, sizes, most):
    """Some classes do not occur in every fifth problem."""
    count = most if seed % 5 else max(1, most // 2)
    return torch.tensor([draw.below(count) for _ in range(math.prod(sizes))], dtype=torch.int64).reshape(sizes)


def ignored(draw, target, value):
    drop = torch.tensor([draw.below(6) == 0 for _ in range(target.numel())]).reshape(target.shape)
    return target.masked_fill(drop, value)


def batch(kind, draw, seed, n):
    """Outputs and targets of a batch of n samples."""
    if kind == "scores":
        return scores(draw, seed, [n]), classes(draw, seed, [n], 2)
    if kind == "scores, ignored":
        return scores(draw, seed, [n]), ignored(draw, classes(draw, seed, [n], 2), -1)
    if kind == "classes":
        return values(draw, 1, [n, 4]), classes(draw, seed, [n], 4)
    if kind == "classes, ignored":
        return values(draw, 1, [n, 4]), ignored(draw, classes(draw, seed, [n], 4), 1)
    if kind == "class scores":
        return scores(draw, seed, [n, 4]), classes(draw, seed, [n], 4)
    if kind == "class scores, ignored":
        return scores(draw, seed, [n, 4]), ignored(draw, classes(draw, seed, [n], 4), 1)
    if kind == "labels":
        return scores(draw, seed, [n, 3]), classes(draw, seed, [n, 3], 2)
    if kind == "labels, ignored":
        return scores(draw, seed, [n, 3]), ignored(draw, classes(draw, seed, [n, 3], 2), -1)
    if kind == "sequences":
        return values(draw, 1, [n, 3, 2]), classes(draw, seed, [n, 2], 3)
    if kind == "pixels":
        return values(draw, 1, [n, 4, 3, 2]), classes(draw, seed, [n, 3, 2], 4)
    if kind == "values":
        outputs = values(draw, seed, [n])
        return outputs, outputs + values(draw, 1, [n])
    if kind == "rows":
        outputs = values(draw, seed, [n, 3])
        return outputs, outputs + values(draw, 1, [n, 3])
    if kind == "tokens":
        length, wanted = 1 + draw.below(12), 1 + draw.below(12)
        return (ignored(draw, classes(draw, 1, [n, length], 3), -100),
                ignored(draw, classes(draw, 1, [n, 2, wanted], 3), -100))
    raise ValueError(kind)


def batches(kind, seed):
    draw = Draw(seed)
    return [batch(kind, draw, seed, 1 + draw.below(9)) for _ in range(1 + draw.below(4))]


class Bleu:
    def __init__(self, **options):
        self.metric = tt.BLEUScore(**options)

    def update(self, outputs, target):
        words = lambda ids: " ".join(str(int(i)) for i in ids if int(i) != -100)
        # A reference of padding alone is none here, and one of no words there.
        given = lambda rows: [text for text in map(words, rows) if text] or [""]
        self.metric.update([words(row) for row in outputs], [given(rows) for rows in target])

    def compute(self):
        return self.metric.compute()


class Spearman:
    """NaN of a single sample, as torchmetrics has it for Pearson's; its value for Spearman's is 0."""

    def __init__(self, outputs=1, mean=False):
        self.metric, self.mean, self.samples = tr.SpearmanCorrCoef(num_outputs=outputs), mean, 0

    def update(self, outputs, target):
        self.samples += len(target)
        self.metric.update(outputs, target)

    def compute(self):
        value = self.metric.compute() + (math.nan if self.samples < 2 else 0)
        return value.mean() if self.mean else value


class Mapped:
    """A metric of other inputs or another unit."""

    def __init__(self, metric, outputs=lambda x: x, result=lambda x: x):
        self.metric, self.outputs, self.result = metric, outputs, result

    def update(self, outputs, target):
        self.metric.update(self.outputs(outputs), target)

    def compute(self):
        return self.result(self.metric.compute())


def cases():
    """(name in the registry, settings, kind, metric that gives one value, metric that gives several or None)."""
    averages = ["micro", "macro", "weighted"]
    for name, metric in [("binary_accuracy", tc.BinaryAccuracy), ("binary_precision", tc.BinaryPrecision),
                         ("binary_recall", tc.BinaryRecall), ("binary_specificity", tc.BinarySpecificity)]:
        yield name, {}, "scores", lambda: metric(), None
        yield name, {"threshold": "0.25"}, "scores", lambda: metric(threshold=0.25), None
        if name != "binary_accuracy":
            yield name, {"ignore_index": "-1"}, "scores, ignored", lambda: metric(ignore_index=-1), None
    yield "binary_f_beta_score", {"beta": "2"}, "scores", lambda: tc.BinaryFBetaScore(2.0), None
    yield ("binary_f_beta_score", {"beta": "0.5", "ignore_index": "-1"}, "scores, ignored",
           lambda: tc.BinaryFBetaScore(0.5, ignore_index=-1), None)

    for name, metric in [("multiclass_accuracy", tc.MulticlassAccuracy), ("multiclass_precision", tc.MulticlassPrecision),
                         ("multiclass_recall", tc.MulticlassRecall), ("multiclass_f1_score", tc.MulticlassF1Score),
                         ("multiclass_specificity", tc.MulticlassSpecificity),
                         ("multiclass_f_beta_score", lambda **o: tc.MulticlassFBetaScore(2.0, **o))]:
        beta = {"beta": "2"} if "beta" in name else {}
        for average in averages:
            settings = {"num_classes": "4", "average": average, **beta}
            yield (name, {**settings, "per_class": "true"}, "classes",
                   lambda: metric(num_classes=4, average=average), lambda: metric(num_classes=4, average=None))
            yield (name, {**settings, "ignore_index": "1"}, "classes, ignored",
                   lambda: metric(num_classes=4, average=average, ignore_index=1), None)
    for name, metric in [("multilabel_accuracy", tc.MultilabelAccuracy), ("multilabel_precision", tc.MultilabelPrecision),
                         ("multilabel_recall", tc.MultilabelRecall), ("multilabel_specificity", tc.MultilabelSpecificity),
                         ("multilabel_f_beta_score", lambda **o: tc.MultilabelFBetaScore(0.5, **o))]:
        beta = {"beta": "0.5"} if "beta" in name else {}
        for average in averages:
            settings = {"num_labels": "3", "average": average, **beta}
            yield (name, {**settings, "per_class": "true"}, "labels",
                   lambda: metric(num_labels=3, average=average), lambda: metric(num_labels=3, average=None))
            yield (name, {**settings, "ignore_index": "-1"}, "labels, ignored",
                   lambda: metric(num_labels=3, average=average, ignore_index=-1), None)

    for name, binary, multiclass, multilabel in [
            ("auroc", tc.BinaryAUROC, tc.MulticlassAUROC, tc.MultilabelAUROC),
            ("average_precision", tc.BinaryAveragePrecision, tc.MulticlassAveragePrecision,
             tc.MultilabelAveragePrecision)]:
        for binned, thresholds in [({}, None), ({"thresholds": "6"}, 6)]:
            yield f"binary_{name}", binned, "scores", lambda: binary(thresholds=thresholds), None
            yield (f"binary_{name}", {**binned, "ignore_index": "-1"}, "scores, ignored",
                   lambda: binary(thresholds=thresholds, ignore_index=-1), None)
            for average in averages[1:]:
                settings = {"num_classes": "4", "average": average, **binned}
                yield (f"multiclass_{name}", {**settings, "per_class": "true"}, "class scores",
                       lambda: multiclass(4, average=average, thresholds=thresholds),
                       lambda: multiclass(4, average=None, thresholds=thresholds))
                yield (f"multiclass_{name}", {**settings, "ignore_index": "1"}, "class scores, ignored",
                       lambda: multiclass(4, average=average, thresholds=thresholds, ignore_index=1), None)
            for average in averages:
                settings = {"num_labels": "3", "average": average, **binned}
                yield (f"multilabel_{name}", {**settings, "per_class": "true"}, "labels",
                       lambda: multilabel(3, average=average, thresholds=thresholds),
                       lambda: multilabel(3, average=None, thresholds=thresholds))
                yield (f"multilabel_{name}", {**settings, "ignore_index": "-1"}, "labels, ignored",
                       lambda: multilabel(3, average=average, thresholds=thresholds, ignore_index=-1), None)
        yield f"multiclass_{name}", {"num_classes": "4"}, "classes", lambda: multiclass(4), None

    several_k = lambda: tm.MetricCollection({f"{k}": tc.MulticlassAccuracy(4, top_k=k, average="micro") for k in (1, 2, 3)},
                                             compute_groups=False)
    in_order = lambda result: torch.stack([result[f"{k}"] for k in (1, 2, 3)])
    yield ("top_k_accuracy", {"k": "1,2,3"}, "classes", lambda: tc.MulticlassAccuracy(4, average="micro"),
           lambda: Mapped(several_k(), result=in_order))
    yield "exact_match", {}, "sequences", lambda: tc.MulticlassExactMatch(3), None
    yield "multilabel_exact_match", {}, "labels", lambda: tc.MultilabelExactMatch(3), None
    yield ("confusion_matrix", {"num_classes": "4"}, "classes",
           lambda: Mapped(tc.MulticlassConfusionMatrix(4), result=lambda m: m.diag().sum() / m.sum()), None)
    yield ("miou", {"num_classes": "4"}, "pixels",
           lambda: Mapped(tc.MulticlassJaccardIndex(4, average="macro"), result=lambda x: x * 100), None)

    for name, metric in [("mean_squared_error", tr.MeanSquaredError), ("mean_absolute_error", tr.MeanAbsoluteError),
                         ("root_mean_squared_error", lambda: tr.MeanSquaredError(squared=False)),
                         ("mean_absolute_percentage_error", tr.MeanAbsolutePercentageError),
                         ("symmetric_mean_absolute_percentage_error", tr.SymmetricMeanAbsolutePercentageError)]:
        for kind in ("values", "rows"):
            yield name, {}, kind, metric, None
    names = {"output_names": "a,b,c"}
    yield "r2_score", {}, "values", tr.R2Score, None
    yield "r2_score", {"adjusted": "2"}, "values", lambda: tr.R2Score(adjusted=2), None
    yield "r2_score", names, "rows", tr.R2Score, lambda: tr.R2Score(multioutput="raw_values")
    yield ("r2_score", {"multioutput": "variance_weighted"}, "rows",
           lambda: tr.R2Score(multioutput="variance_weighted"), None)
    yield "pearson_corr_coef", {}, "values", tr.PearsonCorrCoef, None
    yield ("pearson_corr_coef", names, "rows", lambda: Mapped(tr.PearsonCorrCoef(num_outputs=3), result=lambda x: x.mean()),
           lambda: tr.PearsonCorrCoef(num_outputs=3))
    yield "spearman_corr_coef", {}, "values", Spearman, None
    yield "spearman_corr_coef", names, "rows", lambda: Spearman(3, mean=True), lambda: Spearman(3)
    yield "bleu_score", {}, "tokens", Bleu, None
    yield "bleu_score", {"n_gram": "2", "smooth": "true"}, "tokens", lambda: Bleu(n_gram=2, smooth=True), None
    yield "bleu_score", {"n_gram": "1"}, "tokens", lambda: Bleu(n_gram=1), None


def number(value):
    value = float(value)
    return None if math.isnan(value) else float(f"{value:.7g}")


def ignores_all(kind, seed):
    if not kind.endswith(", ignored"):
        return False
    counts = torch.cat([target for _, target in batches(kind, seed)]) != (1 if "class" in kind else -1)
    return not bool(counts.any(0).all())


def are_of_class_0(kind, seed):
    """torchmetrics takes these targets for answers, none of which is yes, and counts the precision of other classes as 0."""
    target = torch.cat([target for _, target in batches(kind, seed)])
    return not bool(target[target != 1].any() if kind.endswith(", ignored") else target.any())


def measured(name, make, kind, seed):
    if ignores_all(kind, seed) or (name == "multiclass_average_precision" and are_of_class_0(kind, seed)):
        return None
    metric = make()
    if hasattr(metric, "set_dtype"):
        metric.set_dtype(torch.float64)
    try:
        for outputs, target in batches(kind, seed):
            metric.update(outputs, target)
        return metric.compute()
    except (ValueError, IndexError):
        return None  # such as one sample for R2


def main():
    warnings.simplefilter("ignore")
    all_cases = []
    for name, settings, kind, one, several in cases():
        case = {"metric": name, "settings": settings, "kind": kind, "values": [], "each": []}
        for seed in range(PROBLEMS):
            value = measured(name, one, kind, seed)
            case["values"].append(False if value is None else number(value))
            if several:
                value = measured(name, several, kind, seed)
                case["each"].append(False if value is None else [number(v) for v in value.reshape(-1)])
        all_cases.append(case)
    file = pathlib.Path(__file__).with_name("torchmetrics.json")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in all_cases)
    file.write_text(f'{{"torchmetrics":"{tm.__version__}","problems":{PROBLEMS},"cases":[\n{lines}\n]}}\n')
    print(len(all_cases), "cases,", file.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
