#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer {
class Model;
}  // namespace composer

namespace composer::data {
class Tokenizer;
}  // namespace composer::data

namespace composer::models {

using TokenList = std::vector<std::int64_t>;

struct GenerateOptions {
  std::int64_t max_new_tokens = 32;  // >= 1; for each prompt
  // 0: takes the likeliest token; > 0: draws a token from the probabilities of logits / temperature
  double temperature = 0;
  std::int64_t top_k = 0;  // >= 0; draws from the top_k likeliest tokens; 0: from all
  double top_p = 1;        // 0 to 1; draws from the likeliest of those that together have this probability; 1: from all
  std::uint64_t seed = 17;     // a draw depends on it and on the numbers of the prompt and of the token
  TokenList stop_tokens = {};  // end a text, of which they are not a part
  // >= 0; maximum number of tokens that the model takes, the last of a text; 0: its sequence_length if it is a gpt, or
  // max_tokens() of an IncrementalDecoder, which are limits in any case; for other models no limit
  std::int64_t context = 0;
  bool cache = true;                // keep the keys and values of earlier tokens, if the model can
  std::string input = "input_ids";  // name of the tokens in the model's batch
  // called with the number of the prompt and each new token, to show a text while it grows
  std::function<void(std::int64_t prompt, std::int64_t token)> on_token = {};
};

// Lets a causal language model continue prompts, and returns the new tokens of each. The model takes int64 [N, T] and
// its first output is logits [N, T, vocabulary]; the logits at a position depend only on the tokens up to it. It runs
// in evaluation mode and without gradients, and is in its former mode afterwards. libtorch's generator is not used.
// Without a cache, or once a text is longer than the context, each token takes a forward pass over the whole text.
// Throws ConfigError for invalid options or prompts, and DataError for outputs of another shape or that are not finite.
COMPOSER_EXPORT std::vector<TokenList> generate(Model& model, const std::vector<TokenList>& prompts,
                                                const GenerateOptions& options = {});
// Prompts int64 [N, T]; `attention_mask`, [N, T], is 0 for padding, which may be at the beginning or at the end.
COMPOSER_EXPORT std::vector<TokenList> generate(Model& model, const at::Tensor& prompts,
                                                const at::Tensor& attention_mask = {},
                                                const GenerateOptions& options = {});
// Returns the text that follows the prompt. Tokens that the tokenizer does not have, of a model whose vocabulary is
// larger, are never taken; and the text also ends at tokenizer.end_of_text().
COMPOSER_EXPORT std::string generate(Model& model, const data::Tokenizer& tokenizer, std::string_view prompt,
                                     const GenerateOptions& options = {});

}  // namespace composer::models
