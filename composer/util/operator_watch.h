#pragma once
// Reports each libtorch operator that runs. It is slow: meant for diagnosis, not for training.
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer {

struct OperatorCall {
  std::string_view name;            // "aten::addmm"; for a node of the backward pass "AddmmBackward0"
  bool is_node = false;             // of the backward pass
  std::int64_t sequence = -1;       // equal for an operator and its node; -1: it has none
  std::vector<at::Tensor> inputs;   // tensors in lists are included; empty for nodes
  std::vector<at::Tensor> outputs;  // tensors in lists are included; empty for nodes, and until the operator has ended
};

// While it exists, begin() and end() are called for each operator of this thread and of the backward passes that it
// starts, one call at a time. Operators that the listener itself uses are not reported. begin() and end() must not
// throw. While a second watch exists on the same thread, only the second is called. Destroy a watch on the thread that
// made it; if another thread does, reporting stops, but the first thread keeps the overhead.
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
