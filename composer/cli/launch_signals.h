#pragma once
#include <csignal>
#include <vector>

namespace composer::cli {

// During its lifetime, this process receives signals only through take(). Signals that it ignored before stay ignored.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int descriptor() const { return descriptor_; }  // readable when a signal has arrived
  std::vector<int> take();
  const sigset_t& mask_before() const { return before_; }

 private:
  int descriptor_ = -1;
  sigset_t before_{};
  struct sigaction child_before_ {};
};

}  // namespace composer::cli
