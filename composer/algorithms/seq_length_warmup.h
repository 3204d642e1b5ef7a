#pragma once
#include <cstdint>
#include <string>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::algorithms {

struct SeqLengthWarmupOptions {
  double duration = 0.3;               // share of the run until the length is max_seq_length, 0 to 1
  std::int64_t min_seq_length = 8;     // tokens at first, >= 1
  std::int64_t max_seq_length = 1024;  // tokens at the end of the warm-up, >= min_seq_length
  std::int64_t step_size = 8;          // tokens by which the length grows at a time, >= 1
  bool truncate = true;  // drop the rest of longer sequences; false: divide them into several shorter ones
  bool preserve_end_of_sequence = false;  // keep the last token of a sequence as the last of the truncated one;
                                          // requires truncate and an "attention_mask" of ones and zeros at the end
  std::string input_key = "input_ids";    // name of the tokens [N, T] in the batch
};

// Returns the batch with sequences of at most `length` tokens; unchanged if they are not longer. If `truncate`,
// truncates every tensor [N, T, ...] with the sizes of the tokens. Otherwise makes [M, length] of all tensors, and
// drops tokens at the end of the batch that do not fill a sequence. Throws DataError if the batch has no tokens, lacks
// a required attention mask, or has a tensor of another shape when M is not N.
COMPOSER_EXPORT Batch set_batch_sequence_length(const Batch& batch, std::int64_t length,
                                                const SeqLengthWarmupOptions& options = {});

// Trains on short sequences at first, which is faster and more stable (arXiv:2108.06084). Logs
// seq_length_warmup/curr_seq_len and /curr_bs. The length depends only on the timestamp.
class COMPOSER_EXPORT SeqLengthWarmup final : public Algorithm {
 public:
  explicit SeqLengthWarmup(SeqLengthWarmupOptions options = {});  // throws ConfigError
  explicit SeqLengthWarmup(EmptyOptions) : SeqLengthWarmup(SeqLengthWarmupOptions{}) {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::AFTER_DATALOADER}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  std::int64_t length_at(const State& state) const;

  SeqLengthWarmupOptions options_;
};

}  // namespace composer::algorithms
