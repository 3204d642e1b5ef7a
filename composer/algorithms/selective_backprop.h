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
  double start = 0.5, end = 0.9;  // 0 <= start <= end <= 1; shares of training between which samples are selected
  double keep = 0.5;              // above 0, at most 1; share of the samples that is trained
  double scale_factor = 1;        // above 0, at most 1; scale of the images' sides in the pass that selects
  std::int64_t interrupt = 2;     // >= 0; all samples are trained every `interrupt` batches; 0: never
  std::string input_key = "input", target_key = "target";  // names in the batch
  // Returns the loss of each sample: [N] or [N, ...], of which the mean is taken. Unset: soft_cross_entropy of a model
  // with one output. Must not read tensors on the host.
  std::function<at::Tensor(const Outputs& outputs, const Batch& batch)> loss = nullptr;
  // Prepares the batch for the forward pass of the selection, like DataSpec::microbatch_transforms (which run after the
  // selection): for example, normalizes uint8 images. The kept samples are not transformed.
  std::function<void(Batch& batch)> transform = nullptr;
  // As in select_using_loss(); unset: random.
  std::function<std::vector<std::int64_t>(const std::vector<double>& weights, std::int64_t n)> choose = nullptr;
};

// Whether samples are selected at this share of training.
COMPOSER_EXPORT bool should_selective_backprop(double elapsed, std::int64_t batch_in_epoch,
                                               const SelectiveBackpropOptions& options = {});

// The probabilities of drawing each sample, in ascending order of the losses.
COMPOSER_EXPORT std::vector<double> selective_backprop_weights(std::int64_t samples, double keep);

// The indices of the samples to train, int64 on the device of the losses [N]; at least one. `choose(weights, n)`
// returns n different positions in the ascending order of the losses.
COMPOSER_EXPORT at::Tensor select_using_loss(
    const at::Tensor& losses, double keep,
    const std::function<std::vector<std::int64_t>(const std::vector<double>& weights, std::int64_t n)>& choose);

// Trains on a part of each batch. It prefers samples with a large loss, which it finds by a forward pass without
// gradients (arXiv:1910.00762), in microbatches of the training's size. Moves the batch to the device. The choice
// depends only on the losses, the trainer's seed and the number of the batch, so a resumed run selects the same
// samples. Warns if a run of a few epochs never selects. Throws ConfigError at the first batch with a selection if the
// loss is not one number per sample, or if scale_factor is below 1 and the input is not [N, C, H, W].
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
