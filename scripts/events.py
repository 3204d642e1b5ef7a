#!/usr/bin/env python3
"""Writes docs/reference/events.md from the one list of events in composer/core/event.h; --check fails if it is out of date."""
import argparse
import pathlib
import re
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('--check', action='store_true', help='write nothing')
options = parser.parse_args()
root = pathlib.Path(__file__).resolve().parent.parent
page = root / 'docs' / 'reference' / 'events.md'
ROW = re.compile(r'COMPOSER_X\((\w+), (\w+), (\w+)\)\s*/\*\s*(.*?)\s*\*/', re.S)

rows = ROW.findall((root / 'composer' / 'core' / 'event.h').read_text())
text = '''# Events

All 40 events, in the order in which a run fires them. A callback overrides the methods of the events that it needs; an algorithm
returns its events from `events()`. *Kind*: whether the event opens something, closes it, or neither. `scripts/events.py` generates
this page from `composer/core/event.h`.

| event | method | kind | what holds |
|---|---|---|---|
'''
for name, method, kind, comment in rows:
    note = ' '.join(comment.replace('\\', ' ').split())
    text += f'| `Event::{name}` | `{method}` | {kind.lower()} | {note} |\n'
text += '''
The events from `BEFORE_FORWARD` to `AFTER_BACKWARD` repeat for each microbatch. If an optimizer runs its closure more than once,
`BEFORE_TRAIN_BATCH` to `AFTER_TRAIN_BATCH` fire each time. Evaluation during `fit()` follows `BATCH_END`, `EPOCH_END`,
`ITERATION_END` or `FIT_END`, and precedes the next `..._CHECKPOINT`. `eval()` fires `EVAL_STANDALONE_START` and `_END` around it
instead of `EVAL_BEFORE_ALL` and `EVAL_AFTER_ALL`.

An algorithm should replace modules at `INIT`: the optimizer is created afterwards, for the parameters that the model then has, or
[refitted](optimizers.md) if it was passed as a `shared_ptr`. If the algorithm replaces modules later, it must update the optimizer:
`replace_parameter(before, now)` for ours, `add_param_group()` for libtorch's. A fit rejects a model with a trainable parameter that is
in no group.

`EVAL_BEFORE_ALL`, `EVAL_START`, `EVAL_STANDALONE_START` and `PREDICT_START` are always followed by their closing event. A signal cuts
an evaluation short: it reports no metrics, and `EVAL_END` and `EVAL_AFTER_ALL` fire while `state.run->interrupted()` is true; an
exception of a callback there becomes a warning. After an error, algorithms that received the opening event also receive the closing
one, so that they can restore swapped weights; callbacks do not. Exceptions of algorithms then become warnings, and the first error is
thrown.

An error ends the fit. The next `fit()` first performs what was due: unfinished evaluations, the `..._CHECKPOINT` event if it had not
been reached, and its checkpoint. Events that were fired are not fired again.
'''
if len(rows) != 40:
    sys.exit(f'events: found {len(rows)} rows in composer/core/event.h, expected 40')
if options.check:
    if not page.exists() or page.read_text() != text:
        sys.exit('events: docs/reference/events.md is out of date; run scripts/events.py')
else:
    page.write_text(text)
