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
  double start = 0.5;                 // share of the run from which samples are selected, 0 to 1
  double end = 0.9;                   // share of the run until which samples are selected, `start` to 1
  double keep = 0.5;                  // share of the samples that is trained, above 0, at most 1
  double scale_factor = 1;            // scale of the images' sides in the pass that selects, above 0, at most 1
  std::int64_t interrupt = 2;         // one of so many batches trains all of its samples, >= 0; 0: none does
  std::string input_key = "input";    // name of the inputs in the batch
  std::string target_key = "target";  // name of the targets in the batch
  // Returns the loss of each sample: [N], or [N, ...], of which the mean is taken. Must not read tensors on the host.
  // Unset: the cross entropy of a model with one output.
  std::function<at::Tensor(const Outputs& outputs, const Batch& batch)> loss = nullptr;
  // Prepares the batch for the pass that selects, as microbatch_transforms do for training. The samples that are
  // trained stay as they are.
  std::function<void(Batch& batch)> transform = nullptr;
  // Returns n different positions in the ascending order of the losses; unset: random.
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
