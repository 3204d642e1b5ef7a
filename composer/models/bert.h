#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct BertOptions {                   // the defaults are those of BERT base, uncased
  std::int64_t num_classes = 2;        // outputs
  std::int64_t vocabulary = 30522;     // number of tokens
  std::int64_t sequence_length = 512;  // maximum number of tokens of a text
  std::int64_t token_types = 2;        // number of types of tokens
  std::int64_t width = 768;            // a multiple of heads
  std::int64_t depth = 12;             // blocks
  std::int64_t heads = 12;             // of attention
  std::int64_t mlp_width = 0;          // 0: four times the width
  double dropout = 0.1;                // probability, in [0, 1)
  double attention_dropout = 0.1;      // of the probabilities of attention, in [0, 1)
};

// A text classifier (Devlin et al. 2019, arXiv:1810.04805): token, position and type embeddings, `depth` post-norm
// blocks, and a linear head on the first token. Inputs: "input_ids", int64 [N, T]; optionally "attention_mask" [N, T],
// which is 0 at padding, and "token_type_ids", int64 [N, T], otherwise 0. "target" is int64 [N]; the output is logits
// [N, num_classes]. Below "module.", parameters have the names, shapes and initialisation of Hugging Face's
// BertForSequenceClassification: bert.embeddings.word_embeddings, bert.encoder.layer.0.attention.self.query, ...,
// bert.pooler.dense, classifier. Token 0 is padding, and its embedding has no gradient.
COMPOSER_EXPORT std::shared_ptr<Classifier> bert(BertOptions options = {});

}  // namespace composer::models
