#pragma once
// Tells of each libtorch operator that runs: slow, for looking for something, not for training.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer {

struct OperatorCall {
  std::string_view name;            // "aten::addmm"; of a node of the backward pass "AddmmBackward0"
  bool is_node = false;             // of the backward pass
  std::int64_t sequence = -1;       // equal for an operator and its node; -1: it has none
  std::vector<at::Tensor> inputs;   // also of lists; empty for nodes
  std::vector<at::Tensor> outputs;  // likewise, once it has ended
};

// While it exists, begin() and end() are called for each operator of this thread and of the backward passes that it
// starts, one call at a time; operators that a listener uses itself are not told. They must not throw. While a second
// one exists on the same thread, only that one is told. To be destroyed on the thread that made it; elsewhere, nothing
// is told any more, but the thread goes on looking at its operators.
class OperatorWatch {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void begin(const OperatorCall& call) = 0;
    virtual void end(const OperatorCall& call) = 0;
  };

  explicit OperatorWatch(Listener& listener);
  ~OperatorWatch();
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer
