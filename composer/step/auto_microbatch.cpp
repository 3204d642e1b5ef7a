#include "composer/step/auto_microbatch.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/device/device_support.h"
#include "composer/step/batch_undo.h"
#include "composer/util/out_of_memory.h"

namespace composer {
namespace {

constexpr double kPlanned = 0.9;  // of the limit; the rest is for workspaces of libraries, which are not counted

// The bytes that the optimizer will allocate in its first step, estimated as for Adam: two tensors for each parameter.
// 0 if it already has state.
std::int64_t optimizer_bytes(const State& state) {
  if (!state.optimizer || !state.optimizer->state().empty()) return 0;
  std::int64_t bytes = 0;
  for (const auto& group : state.optimizer->param_groups())
    for (const at::Tensor& parameter : group.params()) bytes += 2 * static_cast<std::int64_t>(parameter.nbytes());
  return bytes;
}

}  // namespace

void AutoMicrobatch::choose(const Trial& trial) {
  if (samples_ == 0) return;
  BatchUndo undo(state_);
  const Losses batch_loss = state_.batch_loss;
  take_back(undo);
  state_.device_train_microbatch_size = fitting_size([&](std::int64_t size) {
    take_back(undo);
    trial(size);
  });
  take_back(undo);
  state_.batch_loss = batch_loss;
}

std::int64_t AutoMicrobatch::fitting_size(const Trial& trial) {
  const std::int64_t samples = samples_;
  const bool is_first = !budget_.is_known();
  // Whether a trial failed with another error than out of memory. Training then reports the error better, or does not
  // have it with larger sizes.
  bool failed = false;
  const auto peak_of = [&](std::int64_t size) -> std::optional<std::int64_t> {
    const auto scope = device_support(state_.device.type()).count_memory(state_.device, limit());
    try {
      trial(size);
    } catch (...) {
      failed = !is_out_of_memory(std::current_exception());
      return std::nullopt;
    }
    return scope->peak();
  };

  // Batch norm needs more than one sample.
  std::int64_t size = std::min(samples, std::max<std::int64_t>(2, samples / 16));
  std::optional<std::int64_t> small = peak_of(size);
  while (!small && !failed && size > 1) small = peak_of(size /= 2);
  if (is_first && !state_.device.is_cpu())  // measured again, without what libraries loaded at their first call
    budget_.measure(state_.device, optimizer_bytes(state_));
  double most = static_cast<double>(size);  // samples at once
  if (small && size < samples) {
    const std::int64_t larger = std::min(samples, 2 * size);
    const std::optional<std::int64_t> large = peak_of(larger);
    const double room = kPlanned * static_cast<double>(limit()) - static_cast<double>(*small);
    const double each = static_cast<double>(large.value_or(limit()) - *small) / static_cast<double>(larger - size);
    if (large && each <= 0) most = static_cast<double>(samples);
    if (large && each > 0) most += room / each;
  }
  if (failed) most = static_cast<double>(samples);
  // Uses as few microbatches as possible, of sizes as equal as possible. Memory may grow faster than the batch, and an
  // allocator cannot use every free byte, so a size larger than those tried is tried as well.
  const auto in_parts = [samples](std::int64_t parts) { return (samples + parts - 1) / parts; };
  std::int64_t parts = in_parts(static_cast<std::int64_t>(std::clamp(most, 1., static_cast<double>(samples))));
  while (!failed && in_parts(parts) > size && !peak_of(in_parts(parts)) && !failed) ++parts;
  return in_parts(parts);
}

void AutoMicrobatch::fit(const Step& step, const Gradients& gradients, const std::function<void()>& split) {
  BatchUndo undo(state_);
  while (true) {
    bool has_gradients = false;  // then the weights may have changed, and the batch cannot be repeated
    try {
      return step([&] {
        std::unique_ptr<MemoryScope> scope;
        if (state_.device.is_cpu()) scope = device_support(at::kCPU).count_memory(state_.device, limit());
        at::Tensor loss = gradients();
        has_gradients = true;
        return loss;
      });
    } catch (...) {
      if (has_gradients || !split || !is_out_of_memory(std::current_exception())) throw;
      shrink();
    }
    take_back(undo);
    split();
  }
}

// Measures the memory if this rank has not done so yet: a resumed run already has a size, and another rank may have
// chosen the size.
std::int64_t AutoMicrobatch::limit() { return budget_.bytes(state_.device, optimizer_bytes(state_)); }

void AutoMicrobatch::shrink() {
  std::int64_t& size = state_.device_train_microbatch_size;
  const std::int64_t tried = std::min(size, samples_);
  if (tried <= 1)
    throw_nested<Error>("device_train_microbatch_size: out of memory with microbatches of 1 sample; ",
                        "use a smaller model, or composer::checkpoint in it");
  size = tried / 2;
  warn(join("out of memory with microbatches of ", tried, " samples: from now on they have ", size));
}

// Undoes what an attempt to train the batch has left, whether it succeeded or failed.
void AutoMicrobatch::take_back(BatchUndo& undo) const {
  state_.optimizer->zero_grad(/*set_to_none=*/true);
  state_.outputs.clear();
  state_.loss.clear();
  put_batch_back_();
  undo.restore();
  device_support(state_.device.type()).release_cached_memory(state_.device);
}

}  // namespace composer
