#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct GptOptions {                     // the defaults are those of the smallest GPT-2
  std::int64_t vocabulary = 50257;      // number of tokens
  std::int64_t sequence_length = 1024;  // maximum number of tokens of a text
  std::int64_t width = 768;             // a multiple of heads
  std::int64_t depth = 12;              // blocks
  std::int64_t heads = 12;              // of attention
  bool tied = true;                     // the head shares the weights of the token embedding
  double label_smoothing = 0;           // 0 to 1: fraction of each target spread evenly over all tokens in the loss
};

// A language model that predicts each next token (Radford et al. 2019): pre-norm blocks of causal attention and an MLP
// of four times the width, with learned positions. The input "input_ids" is int64 [N, T]; a DataSpec counts its
// elements as tokens. "target" is int64 [N, T], the following tokens; -100 is ignored. The output is logits [N, T,
// vocabulary], and the loss is the mean over the tokens of a microbatch. Metrics are LanguageCrossEntropy and, in
// evaluation, LanguagePerplexity. Below "module.", parameters have the names and initialisation of GPT-2: wte, wpe,
// h.0.ln_1, h.0.attn.c_attn, ..., ln_f, and lm_head if not tied; matrices are [out, in].
COMPOSER_EXPORT std::shared_ptr<Classifier> gpt(GptOptions options = {});

}  // namespace composer::models
