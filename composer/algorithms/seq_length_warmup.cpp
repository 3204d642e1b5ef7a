#include "composer/algorithms/seq_length_warmup.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

constexpr const char* kMask = "attention_mask";

// The position of each sequence's last token, [N], for tokens [N, T].
at::Tensor last_token(const Batch& batch, const at::Tensor& tokens) {
  const at::Tensor* mask = batch.find(kMask);
  if (!mask)
    throw DataError("SeqLengthWarmup: preserve_end_of_sequence needs \"", kMask, "\" in the batch to find the ends");
  if (mask->sizes() != tokens.sizes().slice(0, 2))
    throw DataError("SeqLengthWarmup: preserve_end_of_sequence needs \"", kMask, "\" of the size ",
                    tokens.sizes().slice(0, 2), " of the tokens, got ", mask->sizes());
  return mask->sum(1).to(at::kLong).sub_(1).clamp_min_(0);
}

at::Tensor truncated(const at::Tensor& tokens, std::int64_t length, const at::Tensor& last) {
  const at::Tensor first = tokens.slice(1, 0, length);
  if (!last.defined()) return first.contiguous();
  // clone(), because contiguous() of a single sequence would return the loader's memory.
  at::Tensor cut = first.clone(at::MemoryFormat::Contiguous);
  std::vector<std::int64_t> shape = tokens.sizes().vec();
  shape[1] = 1;
  std::vector<std::int64_t> of_sequences(shape.size(), 1);
  of_sequences[0] = shape[0];
  const at::Tensor from = last.to(tokens.device()).view(of_sequences).expand(shape);
  return cut.scatter_(1, from.clamp_max(length - 1), tokens.gather(1, from));
}

std::vector<Option<SeqLengthWarmupOptions>> seq_length_warmup_options() {
  using O = SeqLengthWarmupOptions;
  return all_options(option("duration", &O::duration).from_to(0, 1),
                     option("min_seq_length", &O::min_seq_length).at_least(1).refuses({"2000"}),
                     option("max_seq_length", &O::max_seq_length).refuses({"5"}),
                     option("step_size", &O::step_size).at_least(1), option("truncate", &O::truncate),
                     option("preserve_end_of_sequence", &O::preserve_end_of_sequence),
                     option("input_key", &O::input_key).not_empty());
}

// The number of batches of the whole run, if it is known.
std::optional<std::int64_t> batches_of(const State& state) {
  const Time limit = *state.max_duration;
  if (limit.unit() == TimeUnit::BATCH) return limit.count();
  if (limit.unit() == TimeUnit::EPOCH && state.dataloader_len) return limit.count() * *state.dataloader_len;
  return std::nullopt;
}

}  // namespace

Batch set_batch_sequence_length(const Batch& batch, std::int64_t length, const SeqLengthWarmupOptions& options) {
  if (length < 1) throw ConfigError("set_batch_sequence_length: length must be >= 1, got ", length);
  const at::Tensor& tokens = batch.at(options.input_key);
  if (tokens.dim() < 2 || tokens.size(1) <= length) return batch;
  Batch shorter;
  if (options.truncate) {
    const at::Tensor last = options.preserve_end_of_sequence ? last_token(batch, tokens) : at::Tensor();
    for (const auto& [name, tensor] : batch) {
      const bool has_tokens = tensor.dim() >= 2 && tensor.sizes().slice(0, 2) == tokens.sizes().slice(0, 2);
      shorter.set(name, has_tokens ? truncated(tensor, length, last) : tensor);
    }
    return shorter;
  }
  const std::int64_t sequences = tokens.numel() / length;
  for (const auto& [name, tensor] : batch) {
    if (tensor.sizes() != tokens.sizes())
      throw DataError("SeqLengthWarmup: without truncate every tensor needs the shape of \"", options.input_key, "\", ",
                      tokens.sizes(), "; \"", name, "\" is ", tensor.sizes());
    shorter.set(name, tensor.reshape({-1}).narrow(0, 0, sequences * length).view({sequences, length}));
  }
  return shorter;
}

SeqLengthWarmup::SeqLengthWarmup(SeqLengthWarmupOptions options)
    : options_(checked("SeqLengthWarmup", std::move(options), seq_length_warmup_options())) {
  if (options_.max_seq_length < options_.min_seq_length)
    throw ConfigError("SeqLengthWarmup: max_seq_length must be at least min_seq_length, ", options_.min_seq_length,
                      ", got ", options_.max_seq_length);
  if (options_.preserve_end_of_sequence && !options_.truncate)
    throw ConfigError("SeqLengthWarmup: preserve_end_of_sequence has no effect without truncate");
}

std::int64_t SeqLengthWarmup::length_at(const State& state) const {
  if (!state.max_duration) throw ConfigError("SeqLengthWarmup: needs a max_duration");
  const std::int64_t steps = (options_.max_seq_length - options_.min_seq_length) / options_.step_size;
  const auto grown = [&](std::int64_t done) {
    return std::min(options_.min_seq_length + options_.step_size * done, options_.max_seq_length);
  };
  if (const auto batches = batches_of(state); batches && steps > 0) {
    const auto warmup = util::share_of(*batches, options_.duration);
    if (warmup >= steps) return grown(state.timestamp.batch / (warmup / steps));
  }
  const double share = options_.duration > 0 ? state.elapsed_duration() / options_.duration : 1;
  return share >= 1 ? options_.max_seq_length : grown(util::share_of(steps, share));
}

void SeqLengthWarmup::apply(Event, State& state, Logger& logger) {
  state.batch = set_batch_sequence_length(state.batch, length_at(state), options_);
  const at::Tensor& tokens = state.batch.at(options_.input_key);
  logger.log_metrics({{"seq_length_warmup/curr_seq_len", tokens.dim() < 2 ? 1 : tokens.size(1)},
                      {"seq_length_warmup/curr_bs", tokens.size(0)}});
}

StateDict SeqLengthWarmup::local_hparams() const { return describe(options_, seq_length_warmup_options()); }

namespace entries {

Entry<Algorithms> seq_length_warmup() {
  return entry<SeqLengthWarmup>("seq_length_warmup", "Trains on short sequences at first", seq_length_warmup_options());
}

}  // namespace entries
}  // namespace composer::algorithms
