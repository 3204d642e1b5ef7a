#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::algorithms {

struct SelectiveBackpropOptions {
  double start = 0.5, end = 0.9;  // 0 <= start <= end <= 1; share of training from which and until which it selects
  double keep = 0.5;              // above 0, at most 1; share of the samples that are trained
  double scale_factor = 1;        // above 0, at most 1; size of the images for the selection, as a share of their sides
  std::int64_t interrupt = 2;     // >= 0; every so many batches all samples are trained; 0: never
  std::string input_key = "input", target_key = "target";  // names in the batch
  // The loss of each sample: [N] or [N, ...], of which the mean is taken. Unset: soft_cross_entropy of a model with one
  // output. Must not read tensors on the host.
  std::function<at::Tensor(const Outputs& outputs, const Batch& batch)> loss = nullptr;
  // What the forward pass of the selection needs, as DataSpec::microbatch_transforms, which run after the selection:
  // normalization of images in uint8, say. The samples that are kept are as they were.
  std::function<void(Batch& batch)> transform = nullptr;
  // As in select_using_loss(); unset: random.
  std::function<std::vector<std::int64_t>(const std::vector<double>& weights, std::int64_t n)> choose = nullptr;
};

// Whether samples are selected when this share of training is done.
COMPOSER_EXPORT bool should_selective_backprop(double elapsed, std::int64_t batch_in_epoch,
                                               const SelectiveBackpropOptions& options = {});

// Probabilities with which the samples are drawn, in ascending order of their losses.
COMPOSER_EXPORT std::vector<double> selective_backprop_weights(std::int64_t samples, double keep);

// The samples that are trained, int64 on the device of the losses [N]: at least one. `choose(weights, n)` returns n
// different positions in the ascending order of the losses.
COMPOSER_EXPORT at::Tensor select_using_loss(
    const at::Tensor& losses, double keep,
    const std::function<std::vector<std::int64_t>(const std::vector<double>& weights, std::int64_t n)>& choose);

// Trains on a part of each batch: rather on samples with a large loss, which a forward pass without gradients finds
// (arXiv:1910.00762). It runs in microbatches of the size that training has. Moves the batch to the device. The choice
// depends only on the losses, the trainer's seed and the number of the batch, so a resumed run selects the same. Warns
// if a run of a few epochs never selects. Throws ConfigError at the first batch that is selected from if the loss is
// not one number per sample, or if scale_factor is below 1 and the input is not [N, C, H, W].
class COMPOSER_EXPORT SelectiveBackprop final : public Algorithm {
 public:
  explicit SelectiveBackprop(SelectiveBackpropOptions options = {});  // throws ConfigError
  explicit SelectiveBackprop(EmptyOptions) : SelectiveBackprop(SelectiveBackpropOptions{}) {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::FIT_START, Event::AFTER_DATALOADER}; }
  bool match(Event event, const State& state) const override;
  void apply(Event event, State& state, Logger& logger) override;
  Placement placement() const override { return Placement::FIRST; }

 private:
  at::Tensor losses_of(const Batch& batch, State& state) const;
  at::Tensor losses_of_part(Batch batch, State& state) const;

  SelectiveBackpropOptions options_;
};

}  // namespace composer::algorithms
