#!/usr/bin/env python3
"""Writes tiktoken.json beside this file: a small encoding in GPT-2's files, texts, and the tokens that tiktoken has for them.

Needs tiktoken and tokenizers (`pip install tiktoken tokenizers`), the second to train the encoding."""
import inspect
import json
import pathlib
import random
import re

import tiktoken
from tiktoken_ext import openai_public
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
CHOICES = ["'s", "'S", "'t", "'re", "'LL", "'ve", "'\u017f", "'m", "'d", ' ', '  ', '\n', '\r\n', '\t', '\u00a0', '\u2003',
           '\u3000', '\u0085', '\u2028', '\u200b', '\ufeff', 'the', ' of', 'é', 'ß', '١٢', '½', '…', '日本', '👩‍💻', '0123']


def text(draw):
    if draw.random() < 0.3:
        return draw.choice('a1 \n-é') * draw.randrange(1, 150)

    def character():
        kind = draw.random()
        if kind < 0.4:
            return chr(draw.randrange(32, 127))
        if kind < 0.7:
            return draw.choice(CHOICES)
        return chr(draw.choice([draw.randrange(0x80, 0x800), draw.randrange(0x800, 0xd800), draw.randrange(0xe000, 0x33000)]))
    return ''.join(character() for _ in range(draw.randrange(1, 30)))


def main():
    words = pathlib.Path(HERE.parents[2] / 'LICENSE').read_text()
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.train_from_iterator([words], trainers.BpeTrainer(
        vocab_size=700, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(trained.to_str())['model']
    merges = [' '.join(pair) if isinstance(pair, list) else pair for pair in model['merges']]
    seen = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    byte_of = {chr(b): b for b in seen}
    byte_of |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in seen)}
    ranks = {bytes(byte_of[c] for c in token): number for token, number in model['vocab'].items()}
    cl100k = re.search(r'r"""(.*?)"""', inspect.getsource(openai_public.cl100k_base)).group(1)
    draw = random.Random(1)
    golden = {'vocabulary': json.dumps(model['vocab'], ensure_ascii=False), 'merges': '#version: 0.2\n' + '\n'.join(merges) + '\n',
              'texts': [text(draw) for _ in range(250)]}
    for name, pattern in (('gpt2', openai_public.r50k_pat_str), ('cl100k', cl100k)):
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        golden[name] = [encoding.encode_ordinary(line) for line in golden['texts']]
    (HERE / 'tiktoken.json').write_text(json.dumps(golden, ensure_ascii=False, separators=(',', ':')) + '\n')


main()
