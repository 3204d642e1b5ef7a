#!/usr/bin/env python3
"""Writes docs/events.md from the one list of events in composer/core/event.h; --check fails if it is out of date."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parent.parent
page = root / 'docs' / 'events.md'
ROW = re.compile(r'COMPOSER_X\((\w+), (\w+), (\w+)\)\s*/\*\s*(.*?)\s*\*/', re.S)

rows = ROW.findall((root / 'composer' / 'core' / 'event.h').read_text())
text = '''# Events

All 40 events, in the order in which a run fires them. A callback overrides the method of the events that it wants;
an algorithm names them in `events()`. *Kind*: whether the event opens something, closes it, or neither. `docs/events.md`
is made from `composer/core/event.h` by `scripts/events.py`.

| event | method | kind | what holds |
|---|---|---|---|
'''
for name, method, kind, comment in rows:
    note = ' '.join(comment.replace('\\', ' ').split())
    text += f'| `Event::{name}` | `{method}` | {kind.lower()} | {note} |\n'
text += '''
Between `BEFORE_FORWARD` and `AFTER_BACKWARD` events repeat for each microbatch. An optimizer that runs its closure more
than once fires `BEFORE_TRAIN_BATCH` to `AFTER_TRAIN_BATCH` as often. Evaluation during `fit()` comes after `BATCH_END`,
`EPOCH_END`, `ITERATION_END` or `FIT_END`, before the `..._CHECKPOINT` that follows; `eval()` fires
`EVAL_STANDALONE_START` and `_END` around it instead of `EVAL_BEFORE_ALL` and `EVAL_AFTER_ALL`.

An algorithm that replaces modules does so at `INIT`: the optimizer is made after it, of the parameters that the model has
then. Later, or for an optimizer that was given ready as a `shared_ptr`, it tells the optimizer: `replace_parameter(before, now)`
of ours, `add_param_group()` of libtorch's. A fit refuses a model with a trainable parameter that no group has.

`EVAL_BEFORE_ALL`, `EVAL_START`, `EVAL_STANDALONE_START` and `PREDICT_START` are closed on every way out. A signal cuts an
evaluation short: it reports no metrics, and `EVAL_END` and `EVAL_AFTER_ALL` fire while `state.run->interrupted()` is true;
what a callback throws there is a warning. After an error the algorithms that have seen the opening event see the closing
one, so that swapped weights come back; callbacks do not, what algorithms throw is a warning, and the first error leaves.

An error ends the fit. The next `fit()` first does what was due and has not been done: evaluations to their end, the
`..._CHECKPOINT` event if it had not been reached, and its checkpoint. An event that was fired is not fired again.
'''
if len(rows) != 40:
    sys.exit(f'events: found {len(rows)} rows in composer/core/event.h, expected 40')
if sys.argv[1:] == ['--check']:
    if not page.exists() or page.read_text() != text:
        sys.exit('events: docs/events.md is out of date; run scripts/events.py')
else:
    page.write_text(text)
