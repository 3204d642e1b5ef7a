#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/last_batch.h"
#include "composer/core/logger.h"

namespace composer::callbacks {

using TokenList = std::vector<std::int64_t>;

struct GenerateOptions {
  std::vector<TokenList> prompts = {};  // tokens of each prompt, at least one
  std::string prompt_tokens = {};       // further prompts, as text: "1 2 3; 4 5"
  Interval interval = "1ep";            // when texts are generated; also when training reaches its max_duration
  std::int64_t batch_size = 0;          // >= 0; number of prompts that run at once; 0: all
  std::int64_t max_new_tokens = 32;     // >= 1; maximum length of each continuation
  // 0: takes the likeliest token. > 0: draws a token from the probabilities of logits / temperature.
  double temperature = 0;
  std::int64_t top_k = 0;      // >= 0; draws from the top_k likeliest tokens; 0: from all
  double top_p = 1;            // 0 to 1; draws from the likeliest tokens that together have this probability
  TokenList stop_tokens = {};  // tokens that end a text; they are not part of it
  // >= 0; maximum number of tokens that the model takes, the last ones of a text; 0: what the model says, or no limit.
  std::int64_t context = 0;
  std::string input_key = "input_ids";                        // name of the tokens in the model's batch
  std::function<std::string(const TokenList&)> to_text = {};  // makes the text that is logged; unset: "1 2 3"
};

// Lets a causal language model continue prompts, and logs the table "generations" with the columns "prompt" and
// "generation". The model takes int64 [N, T] and its first output is logits [N, T, vocabulary]. The logits at a
// position must depend only on the tokens up to it. Texts are those of models::generate(). The model runs in
// evaluation mode, with the weights of evaluations and with random numbers that depend only on the seed and the batch,
// so training is not affected. Only rank 0 generates. Throws ConfigError from the constructor, and DataError for
// outputs of another shape.
class COMPOSER_EXPORT Generate final : public Callback {
 public:
  explicit Generate(GenerateOptions options);
  StateDict local_hparams() const override;

  void check_fit(const FitOutline& fit, const State& state) const override;
  void init(const State& state, Logger& logger) override;
  void after_load(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void batch_checkpoint(const State& state, Logger& logger) override;
  void epoch_checkpoint(const State& state, Logger& logger) override;
  void iteration_checkpoint(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  void generate_if_due(Event event, const State& state, Logger& logger);
  LogTable generations(const State& state) const;

  GenerateOptions options_;
  LastBatch last_batch_;       // the last batch at which texts were generated
  std::uint64_t weights_ = 0;  // version of the weights that generated them
};

}  // namespace composer::callbacks
