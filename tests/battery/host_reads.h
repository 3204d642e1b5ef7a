#pragma once
// Counts how often a step reads a tensor on the host, by the operators that do so.
#include <cstdint>
#include <memory>
#include <string_view>

#include <ATen/record_function.h>

#include "composer/core/callback.h"

namespace composer::test {

// Counts between BATCH_START and BATCH_CHECKPOINT, on the thread that trains: what everybody does at BATCH_END is in
// it.
class HostReads final : public Callback {
 public:
  HostReads()
      : handle_(
            at::addGlobalCallback(at::RecordFunctionCallback(&HostReads::seen).scopes({at::RecordScope::FUNCTION}))) {}
  ~HostReads() override { at::removeCallback(handle_); }
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;

  void batch_start(const State&, Logger&) override {
    counter_ = &count_;
    ++batches_;
  }
  void batch_checkpoint(const State&, Logger&) override { counter_ = nullptr; }
  void close(const State&, Logger&) override { counter_ = nullptr; }

  std::int64_t count() const { return count_; }
  std::int64_t batches() const { return batches_; }

 private:
  static std::unique_ptr<at::ObserverContext> seen(const at::RecordFunction& function) {
    if (!counter_) return nullptr;
    const std::string_view name = function.name();
    for (const std::string_view read : {"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"})
      if (name == read) ++*counter_;
    return nullptr;
  }

  inline static thread_local std::int64_t* counter_ = nullptr;  // of the step that this thread is in
  at::CallbackHandle handle_;
  std::int64_t count_ = 0, batches_ = 0;
};

}  // namespace composer::test
