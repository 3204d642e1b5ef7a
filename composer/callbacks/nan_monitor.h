#pragma once
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::callbacks {

struct NaNMonitorOptions {
  bool find_culprit = true;      // runs the microbatch again to find the operator that made the NaN
  bool check_infinity = false;   // infinite losses are also errors
  bool check_gradients = false;  // gradients that are not finite are errors; reads all of them in each microbatch
  bool wait = false;             // waits for a GPU in each microbatch: the weights are still those that made the loss
  // Folder of nan-ep{epoch}-ba{batch}.safetensors, the microbatch; {run_name} is replaced. Empty: it is not saved.
  std::string folder = "{run_name}/nan";
};

// Throws Error when a training loss is NaN, with the operator that made it, its inputs and the samples of the batch. On
// the CPU it throws right after the loss was computed. On other devices the step never waits: the result is requested
// once per batch and checked when it has arrived, a few batches later, and at the end of the epoch at the latest; by
// then the weights are NaN too, so the operator can be found only with `wait`.
//
// To find it, forward and loss (for gradients, also the backward pass) of the microbatch run again with the same random
// numbers, and all their operators are watched. That leaves no trace, and costs nothing as long as all is finite but a
// copy of the state of the random numbers per microbatch. Algorithms do not take part.
class COMPOSER_EXPORT NaNMonitor final : public Callback {
 public:
  explicit NaNMonitor(NaNMonitorOptions options = {});
  explicit NaNMonitor(EmptyOptions) : NaNMonitor() {}
  ~NaNMonitor() override;
  NaNMonitor(NaNMonitor&&) noexcept;
  StateDict local_hparams() const override;

  void check_fit(const FitOutline& fit, const State& state) const override;
  void init(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void before_forward(const State& state, Logger& logger) override;
  void after_loss(const State& state, Logger& logger) override;
  void after_backward(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;

 private:
  struct Deferred;
  void watch(const at::Tensor& found);
  [[noreturn]] void report(const State& state, const std::string& what, bool gradients) const;

  NaNMonitorOptions options_;
  std::string folder_;                  // absolute from INIT on
  std::unique_ptr<Deferred> deferred_;  // null as long as all losses were on the CPU
};

}  // namespace composer::callbacks
