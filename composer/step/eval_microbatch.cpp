#include "composer/step/eval_microbatch.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/device/device_support.h"
#include "composer/util/out_of_memory.h"

namespace composer {

EvalMicrobatch::EvalMicrobatch(std::string label, MicrobatchSize size, std::int64_t bytes)
    : label_(std::move(label)), size_(size.samples()), is_auto_(size.is_auto()), budget_(bytes) {}

void EvalMicrobatch::begin(at::Device device) {
  if (is_auto_ && device.is_cpu()) budget_.measure(device);
}

void EvalMicrobatch::for_each_part(const Feed& feed, const Batch& batch, at::Device device, Use use, Undo undo) {
  std::vector<Batch> parts = feed.rules().split(batch, size_);
  if (!is_auto_) {
    for (Batch& part : parts) use(std::move(part));
    return;
  }
  std::ranges::reverse(parts);  // the next part is the last element
  while (!parts.empty()) {
    const Batch part = std::move(parts.back());
    parts.pop_back();
    const bool is_small = size_ == 0 || feed.rules().count_samples(part) <= size_;
    if (is_small && fits(feed, part, device, use)) continue;
    if (is_small) {
      undo();
      device_support(device.type()).release_cached_memory(device);
    }
    std::vector<Batch> smaller = feed.rules().split(part, size_);
    parts.insert(parts.end(), std::make_move_iterator(smaller.rbegin()), std::make_move_iterator(smaller.rend()));
  }
}

// Returns false if the part does not fit; the size is then smaller.
bool EvalMicrobatch::fits(const Feed& feed, const Batch& part, at::Device device, Use use) {
  try {
    std::unique_ptr<MemoryScope> scope;
    if (device.is_cpu()) scope = device_support(at::kCPU).count_memory(device, budget_.bytes(device));
    use(part);
    return true;
  } catch (...) {
    if (!is_out_of_memory(std::current_exception())) throw;
    const std::int64_t samples = feed.rules().count_samples(part);
    if (samples <= 1)
      throw_nested<Error>("Evaluator ", label_,
                          ": out of memory with microbatches of 1 sample; use a smaller model, or ", "shorter samples");
    size_ = samples / 2;
    warn(join("Evaluator ", label_, ": out of memory with microbatches of ", samples,
              " samples: from now on they have ", size_));
    return false;
  }
}

}  // namespace composer
