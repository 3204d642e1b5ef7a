#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/state_dict.h"
#include "composer/metrics/sum.h"

namespace composer::metrics {

struct BLEUScoreOptions {
  std::int64_t n_gram = 4;                        // >= 1: the longest runs of tokens that are compared
  bool smooth = false;                            // adds one to the counts of runs of two tokens and more
  std::int64_t ignore_index = -100;               // padding: these tokens are left out, also in outputs
  std::optional<std::int64_t> eos_token_id = {};  // this token and all that follow it are left out
  std::string name = "BLEUScore";                 // what the value is logged as
  std::string output = {}, target = "target";     // names of tensors; an empty output: the only one
};

// BLEU of a corpus of token ids, from 0 to 1. Outputs are ids [N, T], or logits [N, T, vocabulary] of which the highest
// is the token; targets are ids [N, T], or [N, R, T] for several references of each sample. Lengths may differ between
// outputs, targets and batches. A reference without tokens, such as one of padding alone, is no reference. Time and
// memory grow with T * T of each sample.
class COMPOSER_EXPORT BLEUScore final : public Metric {
 public:
  explicit BLEUScore(BLEUScoreOptions options = {});
  explicit BLEUScore(EmptyOptions) : BLEUScore() {}
  ~BLEUScore() override;
  std::string name() const override { return options_.name; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch& batch) override;
  at::Tensor compute() const override;
  void reset() override;
  void visit_sums(const VisitSum& visit) override;
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<BLEUScore>(options_); }
  StateDict local_hparams() const override;

 private:
  BLEUScoreOptions options_;
  Sum matched_, total_;    // runs of each length, [n_gram]
  Sum lengths_, samples_;  // lengths: of outputs and of the references that are nearest, [2]
};

}  // namespace composer::metrics
