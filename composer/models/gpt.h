#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct GptOptions {  // the defaults are those of the smallest GPT-2
  std::int64_t vocabulary = 50257;
  std::int64_t sequence_length = 1024;  // tokens, at most
  std::int64_t width = 768;             // a multiple of heads
  std::int64_t depth = 12;              // blocks
  std::int64_t heads = 12;
  bool tied = true;            // the head's weights are those of the token embedding
  double label_smoothing = 0;  // 0 to 1: the share of every target that goes to all tokens alike, in the loss
};

// A language model that predicts each next token (Radford et al. 2019): pre-norm blocks of causal attention and an MLP
// of four times the width, learned positions. "input_ids" is int64 [N, T], whose elements a DataSpec counts as tokens;
// the output logits [N, T, vocabulary], "target" int64 [N, T] the tokens that follow, -100 where none counts. The loss
// is the mean over the tokens of a microbatch; the metrics are LanguageCrossEntropy and, in evaluation,
// LanguagePerplexity. Parameters are named as GPT-2's: wte, wpe, h.0.ln_1, h.0.attn.c_attn, ..., ln_f, and lm_head if
// not tied; matrices are [out, in]. Initialised as GPT-2.
COMPOSER_EXPORT std::shared_ptr<Classifier> gpt(GptOptions options = {});

}  // namespace composer::models
