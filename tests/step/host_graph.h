#pragma once
// A graph as those of a GPU, on the CPU: the kernels that are called below autograd are recorded and called again, with
// the tensors and numbers that they had, into the memory that they filled. As on a GPU, recording does nothing (what
// was written is put back, what was computed becomes NaN), and reading a value on the host meanwhile is an error.
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "composer/device/cpu/cpu.h"
#include "composer/device/device_graph.h"
#include "tests/support/supported_by.h"

namespace composer::test {

struct GraphCounts {
  int captures = 0, failures = 0, replays = 0;
};

class HostGraph final : public DeviceGraph {
 public:
  explicit HostGraph(std::shared_ptr<GraphCounts> counts) : counts_(std::move(counts)) {}
  ~HostGraph() override;
  HostGraph(const HostGraph&) = delete;
  HostGraph& operator=(const HostGraph&) = delete;

  void capture_begin() override;
  void capture_end() override;
  void replay() override;

  // Of the dispatcher: a kernel is called.
  static void called(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack);

 private:
  struct Call {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments, results;
  };
  void record(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  void keep(const at::Tensor& tensor);
  void add_result(const at::Tensor& tensor);
  void stop_recording();

  std::shared_ptr<GraphCounts> counts_;
  std::optional<c10::impl::IncludeDispatchKeyGuard> recording_;
  bool failed_ = false;
  std::vector<Call> calls_;
  std::unordered_set<const void*> known_;                 // storages
  std::vector<std::pair<at::Tensor, at::Tensor>> given_;  // what was there before, and a copy
  std::vector<at::Tensor> made_;
  at::Tensor random_;  // the generator's state
};

// While it lives, a trainer on the CPU has graphs.
class GraphsOnHost {
 public:
  GraphsOnHost() = default;
  ~GraphsOnHost() = default;
  GraphsOnHost(const GraphsOnHost&) = delete;
  GraphsOnHost& operator=(const GraphsOnHost&) = delete;
  const GraphCounts& counts() const { return *counts_; }

 private:
  // The CPU, but for that.
  class Support final : public CpuSupport {
   public:
    explicit Support(std::shared_ptr<GraphCounts> counts) : counts_(std::move(counts)) {}
    std::string reason_against_graphs(at::Device) const override { return {}; }
    std::unique_ptr<DeviceGraph> make_graph() const override { return std::make_unique<HostGraph>(counts_); }

   private:
    const std::shared_ptr<GraphCounts> counts_;
  };

  std::shared_ptr<GraphCounts> counts_ = std::make_shared<GraphCounts>();
  const Support support_{counts_};
  const SupportedBy supported_{at::kCPU, support_};
};

}  // namespace composer::test
