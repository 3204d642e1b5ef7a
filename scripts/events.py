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
GROUPS = {'INIT': ('The life of a trainer', ''), 'FIT_START': ('A fit', ''),
          'EVAL_BEFORE_ALL': ('An evaluation', 'Within a fit it follows `BATCH_END`, `EPOCH_END`, `ITERATION_END` or `FIT_END`, before the '
                                               '`..._CHECKPOINT` event. `Trainer::eval()` fires\n`EVAL_STANDALONE_START` and `_END` around it '
                                               'instead of `EVAL_BEFORE_ALL` and `EVAL_AFTER_ALL`.'),
          'PREDICT_START': ('A prediction', '')}

text = '''# Events

The trainer calls your algorithms, callbacks and loggers at 40 points of a run. This page lists them in the order in which they fire, with what
holds at each; [the loop](../concepts/loop.md) shows them in a picture.

```cpp
class Counter : public Callback {
 public:
  void batch_end(const State& state, Logger& logger) override { logger.log_metrics({{"seen", state.timestamp.sample}}); }
};
```

A callback overrides the methods of the events that it needs; a method has the name of its event in lower case. An algorithm returns its
events from `events()`. Events with START or BEFORE in their names open something, those with END or AFTER close it. Fields are those of
[State](state.md). `scripts/events.py` generates this page from `composer/core/event.h`.
'''
for name, method, kind, comment in rows:
    if name in GROUPS:
        heading, note = GROUPS[name]
        text += f'\n## {heading}\n\n' + (f'{note}\n\n' if note else '') + '| event | what holds |\n|---|---|\n'
    what = re.sub(r'\b((?:\w+\.)?\w+_\w+)', r'`\1`', ' '.join(comment.replace('\\', ' ').split()))
    text += f'| `{name}` | {what} |\n'
    opens, closes = re.search('START|BEFORE', name), re.search('END|AFTER', name)
    if method != name.lower() or kind != ('BEFORE' if opens else 'AFTER' if closes else 'NEITHER'):
        sys.exit(f'events: what the page says of names and kinds does not hold for {name}')
    if name == 'FIT_END':
        text += '''
- The events from `BEFORE_FORWARD` to `AFTER_BACKWARD` repeat for each microbatch. `outputs` and `loss` are those of the last microbatch from
  then on, and `batch_loss` is complete at `AFTER_TRAIN_BATCH`.
- An optimizer that runs its closure several times fires `BEFORE_TRAIN_BATCH` to `AFTER_TRAIN_BATCH` each time.
- The fit ends after the batch in which somebody asks to stop, with `FIT_END`.
'''
text += '''
## What you can rely on

- **Order.** At each event, algorithms run first, then callbacks, then loggers; at `INIT` loggers, callbacks, algorithms. Algorithms run in
  reverse order at events whose names begin with `AFTER_`.
- **Replaced modules.** Replace modules at `INIT`: the optimizer is made afterwards, for the parameters that the model then has, or
  [refitted](optimizers.md) if you passed a `shared_ptr`. An algorithm that replaces modules later must update the optimizer, by
  `replace_parameter(before, now)` for ours and `add_param_group()` for libtorch's. A fit rejects a trainable parameter that is in no group.
- **Closing events.** `EVAL_BEFORE_ALL`, `EVAL_START`, `EVAL_STANDALONE_START` and `PREDICT_START` are always followed by their closing
  event. If a signal interrupts an evaluation, there are no metrics, and `EVAL_END` and `EVAL_AFTER_ALL` fire while
  `state.run->interrupted()` is true; an exception of a callback there becomes a warning.
- **Errors.** An error ends the fit. Algorithms that received an opening event then also receive the closing one, so that they can restore
  exchanged weights; callbacks do not. Exceptions of algorithms there become warnings, and the first error is thrown.
- **After an error,** the next `fit()` first does what was due: unfinished evaluations, the `..._CHECKPOINT` event if it did not fire, and
  its checkpoint. Events that have fired are not fired again.
'''
if len(rows) != 40:
    sys.exit(f'events: found {len(rows)} rows in composer/core/event.h, expected 40')
if options.check:
    if not page.exists() or page.read_text() != text:
        sys.exit('events: docs/reference/events.md is out of date; run scripts/events.py')
else:
    page.write_text(text)
