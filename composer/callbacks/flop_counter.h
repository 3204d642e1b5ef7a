// Counts floating-point operations by the shapes of the operators that run. Internal.
#pragma once
#include <atomic>
#include <cstdint>

#include <ATen/record_function.h>

namespace composer::callbacks {

// Counts matrix products, convolutions, attention and LSTMs as PyTorch's FlopCounterMode does, which however leaves
// LSTMs out and counts grouped convolutions as if they had one group: a product and a sum are two operations, and
// masked elements count like others. Counts what this thread calls between start() and stop(), and the backward passes
// of that on any thread. One counter counts at a time in a process.
class FlopCounter {
 public:
  FlopCounter() = default;
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  bool start();  // from 0, also if it counts already. False: another counter counts
  bool counts() const { return active.load(std::memory_order_relaxed) == this; }
  std::int64_t stop();  // what was counted

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function);
  static void end(const at::RecordFunction& function, at::ObserverContext* context);

  inline static std::atomic<FlopCounter*> active = nullptr;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
  std::atomic<std::int64_t> flops_ = 0;
};

}  // namespace composer::callbacks
