#include "composer/loggers/kept_entries.h"

#include <array>
#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/shared_copy.h"
#include "composer/core/state.h"
#include "composer/loggers/scalar.h"
#include "composer/loggers/this_process.h"

namespace composer {
namespace {

// What several calls have logged, in one piece of memory. The thread that trains allocates it and a writer frees it; if
// that happened for each call, libc would be slow for all allocations of the training.
class Block {
 public:
  Block() { all_.reserve(kMost); }  // not defaulted, so that the memory is not cleared
  ~Block() {
    for (KeptEntries* entries : all_) std::destroy_at(entries);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool is_full() const { return all_.size() == kMost; }
  KeptEntries* add(std::span<const LogEntry> entries, const State& state) {
    void* const place = resource_.allocate(sizeof(KeptEntries), alignof(KeptEntries));
    return all_.emplace_back(new (place) KeptEntries(entries, state, &resource_));
  }

 private:
  static constexpr std::size_t kMost = 32;
  std::array<std::byte, kMost * 512> memory_;
  std::pmr::monotonic_buffer_resource resource_{memory_.data(),
                                                memory_.size()};  // allocates more where it is too little
  std::pmr::vector<KeptEntries*> all_{&resource_};
};

// Of a thread. Those who wait to write its entries keep it.
struct Newest {
  ~Newest() { is_over = true; }
  std::weak_ptr<Block> block;
  static inline thread_local bool is_over = false;  // a trainer that is a global logs until later
};

std::shared_ptr<Block> block_of_thread() {
  if (Newest::is_over) return std::make_shared<Block>();
  thread_local Newest newest;
  std::shared_ptr<Block> block = newest.block.lock();
  if (!block || block->is_full()) newest.block = block = std::make_shared<Block>();
  return block;
}

}  // namespace

std::shared_ptr<KeptEntries> KeptEntries::of(std::span<const LogEntry> entries, const State& state) {
  std::shared_ptr<KeptEntries>* const shared = shared_copy(entries);
  if (shared != nullptr && *shared != nullptr) return *shared;
  const std::shared_ptr<Block> block = block_of_thread();
  std::shared_ptr<KeptEntries> made(block, block->add(entries, state));
  if (shared != nullptr) *shared = made;
  return made;
}

KeptEntries::KeptEntries(std::span<const LogEntry> entries, const State& state, std::pmr::memory_resource* memory)
    : epoch(state.timestamp.epoch),
      batch(state.timestamp.batch),
      time(state.timestamp.total_wct.count()),
      wall_time(loggers::seconds_since_1970()),
      keys_(memory),
      fields_(memory) {
  std::size_t length = 0;
  for (const LogEntry& entry : entries) length += entry.key.size();
  keys_.reserve(length);  // so that views of it stay valid
  fields_.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    const std::string_view kept(keys_.data() + keys_.size(), key.size());
    keys_ += key;
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor != nullptr) loggers::check_scalar(key, *tensor);
    if (tensor != nullptr && !tensor->is_cpu()) {
      streams_.add(*tensor);
      fields_.push_back({kept, tensor->detach()});
    } else {
      fields_.push_back({kept, loggers::value_on_host(value)});
    }
  }
}

std::span<const KeptEntries::Field> KeptEntries::read() {
  if (streams_.empty()) return fields_;
  std::call_once(was_read_, [this] {
    const at::NoGradGuard no_grad;
    const loggers::TensorStreams::Scope on_streams(streams_);
    for (Field& field : fields_)
      if (std::holds_alternative<at::Tensor>(field.value)) field.value = loggers::value_on_host(field.value);
  });
  return fields_;
}

}  // namespace composer
