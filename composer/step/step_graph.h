#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/engine.h"
#include "composer/core/state.h"
#include "composer/device/device_graph.h"
#include "composer/device/side_stream.h"
#include "composer/step/computation.h"

namespace torch::nn {
class Module;
}

namespace composer {

// Records forward, loss and backward of a batch on the device, and replays them for each batch of the same shape. Work
// on the host is not replayed. What cannot be recorded is computed eagerly, with one warning that gives the reason.
//
// The batches before the recording are trained on a side stream, so that libraries are initialized before it. A batch
// of another shape than the recorded one is computed eagerly, too. When the model changes (other weights in memory,
// other modes of modules, another precision), everything begins again.
class StepGraph final : public Computation {
 public:
  StepGraph(State& state, EagerComputation& eager) : state_(state), eager_(eager) {}

  // Records from now on until stop(). Warns if nothing can be recorded.
  void start(const Engine& engine, bool whole_batches);
  void stop();

  // If the microbatch is the whole batch and can be recorded, computes forward, loss and backward at once. Outputs are
  // then detached, and the next batch may overwrite them and the gradients; losses may be kept. Otherwise computes the
  // forward pass only.
  void forward(const LossWeight& share) override;
  bool is_ahead() const override { return is_ahead_; }
  void loss() override;
  void backward(const at::Tensor& total, const LossWeight& share) override;

 private:
  struct Layout {  // of a tensor of a batch
    std::string name;
    std::int64_t type;
    std::vector<std::int64_t> sizes, strides;
    bool operator==(const Layout&) const = default;
  };
  using Layouts = std::vector<Layout>;
  struct Results {
    Outputs outputs;
    Losses loss;
    std::vector<std::pair<at::Tensor, at::Tensor>> gradients;  // of parameters
  };

  std::string reason_against(const Engine& engine, bool whole_batches) const;
  std::string reason_against_batch() const;
  void refuse(const std::string& reason);
  void forget();
  Layouts layouts() const;
  std::uint64_t model_now() const;
  void watch_model();
  bool run();
  bool prepare();
  int times_trained(const Layouts& batch);
  void drop_history();
  bool run_on_side_stream();
  bool capture(Layouts batch);
  void replay();
  Results results_of(const Batch& batch);
  std::vector<at::Tensor> parameters() const;

  State& state_;
  EagerComputation& eager_;
  bool active_ = false;
  std::string said_;                                         // the last reason, so that it is warned about once
  std::uint64_t model_ = 0;                                  // fingerprint of the model at the last run
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;  // modules of the model then
  std::vector<at::Tensor> buffers_;                          // buffers of the model then
  int changes_ = 0;                                          // number of changes of the model since the last recording
  std::vector<std::pair<Layouts, int>> trained_;  // shapes and numbers of batches before there is a recording
  SideStream side_;
  std::unique_ptr<DeviceGraph> graph_;
  Layouts recorded_;
  Batch batch_;            // the recording reads it
  Results results_;        // of the last run; a recording writes them
  bool is_ahead_ = false;  // until the gradients of this batch are taken
};

}  // namespace composer
