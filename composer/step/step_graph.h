#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/engine.h"
#include "composer/core/state.h"
#include "composer/step/device_graph.h"
#include "composer/step/side_stream.h"

namespace torch::nn {
class Module;
}

namespace composer {

// Forward, loss and backward of a batch, recorded on the device and repeated for each batch of the same shape. Nothing
// of the host's part is repeated. What cannot be recorded is left to the caller, with one warning that says why.
//
// Batches that come before the recording are trained on a stream of their own, so that libraries have prepared what a
// recording must not. A batch of another shape than the recorded one is left to the caller, too. When the model changes
// (other weights in memory, other modes of modules, another precision), all begins anew.
class StepGraph {
 public:
  explicit StepGraph(State& state) : state_(state) {}

  // From now on, until stop(). Warns if nothing can be recorded.
  void start(const Engine& engine, bool whole_batches);
  void stop();

  // Makes state.outputs, state.loss and gradients from state.batch. Reads none of them on the host.
  using Work = std::function<void()>;
  // Does the work for state.batch; of its results only state.outputs is there yet. False: the caller is to do it. The
  // outputs are detached; the next run may overwrite them.
  bool run(const Work& work);
  // Of the work that run() has done; false if it has not. Losses may be kept, gradients are overwritten by the next
  // run.
  bool take_loss();
  bool take_gradients();

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
  class Scope;

  std::string reason_against(const Engine& engine, bool whole_batches) const;
  std::string reason_against_batch() const;
  void refuse(const std::string& reason);
  void forget();
  Layouts layouts() const;
  std::uint64_t model_now() const;
  void watch_model();
  bool prepare();
  int times_trained(const Layouts& batch);
  void let_go();
  bool do_aside(const Work& work);
  bool capture(const Work& work, Layouts batch);
  void replay();
  Results results_of(const Work& work, const Batch& batch);
  std::vector<at::Tensor> parameters() const;

  State& state_;
  bool active_ = false;
  std::string said_;                                         // the last reason, to say it once
  std::uint64_t model_ = 0;                                  // that of the last run
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;  // its modules then
  std::vector<at::Tensor> buffers_;                          // and buffers
  int changes_ = 0;                                          // of the model, since the last recording
  std::vector<std::pair<Layouts, int>> trained_;             // batches, before there is a recording
  SideStream side_;
  std::unique_ptr<DeviceGraph> graph_;
  Layouts recorded_;
  Batch batch_;        // that the recording reads
  Results results_;    // of the last run; those that a recording writes
  bool done_ = false;  // run() did the work of this batch
};

}  // namespace composer
