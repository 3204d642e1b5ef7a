// Counts floating-point operations by the shapes of the operators that run. Internal.
#pragma once
#include <atomic>
#include <cstdint>

#include <ATen/record_function.h>

namespace composer {

// Counts matrix products, convolutions, attention and LSTMs in the way of PyTorch's FlopCounterMode, except that that
// one omits LSTMs and counts grouped convolutions as if they had one group. A product and a sum count as two
// operations, and masked elements count like others. Counts the operators that this thread calls between start() and
// stop(), and their backward passes on any thread. Only one counter in a process counts at a time.
class FlopCounter {
 public:
  FlopCounter() = default;
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  bool start();  // restarts from 0 if it is already counting. False: another counter is counting
  bool counts() const { return active.load(std::memory_order_relaxed) == this; }
  std::int64_t so_far() const { return flops_; }
  std::int64_t stop();  // returns the count

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function);
  static void end(const at::RecordFunction& function, at::ObserverContext* context);

  inline static std::atomic<FlopCounter*> active = nullptr;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
  std::atomic<std::int64_t> flops_ = 0;
};

}  // namespace composer
