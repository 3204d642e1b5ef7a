#include "composer/algorithms/selective_backprop.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bilinear2d.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/util/autocast.h"
#include "composer/util/loss.h"
#include "composer/util/random.h"
#include "composer/util/share_of.h"
#include "composer/util/to_device.h"

namespace composer::algorithms {
namespace {

constexpr std::uint64_t kSelectiveBackpropStream =
    0x73656c656374;  // sets these random numbers apart from those of other uses of a seed

// Samples without replacement by the method of Efraimidis and Spirakis (2006): takes the smallest of exponentially
// distributed numbers.
std::vector<std::int64_t> sample_positions(const std::vector<double>& weights, std::int64_t n, RandomStream& random) {
  std::vector<std::pair<double, std::int64_t>> keys;
  for (const double weight : weights) {
    const double drawn = -std::log1p(-random.uniform());
    keys.emplace_back(weight > 0 ? drawn / weight : HUGE_VAL, static_cast<std::int64_t>(keys.size()));
  }
  std::ranges::partial_sort(keys, keys.begin() + n);
  std::vector<std::int64_t> chosen;
  chosen.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) chosen.push_back(keys[static_cast<std::size_t>(i)].second);
  return chosen;
}

bool is_of_samples(const at::Tensor& tensor, std::int64_t samples) {
  return tensor.dim() > 0 && tensor.size(0) == samples;
}

// If the run is limited in epochs, its elapsed share changes only between epochs.
void warn_if_never(const State& state, const SelectiveBackpropOptions& options) {
  if (!state.max_duration || state.max_duration->unit() != TimeUnit::EPOCH || options.keep == 1) return;
  const std::int64_t epochs = state.max_duration->count();
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
    if (const double done = static_cast<double>(epoch) / static_cast<double>(epochs);
        done >= options.start && done < options.end)
      return;
  warn(join("SelectiveBackprop: never selects, because none of ", epochs, " epochs begins when between ", options.start,
            " and ", options.end, " of the run are done. Give max_duration in batches, or another start and end"));
}

at::Tensor scaled(const at::Tensor& input, double scale, const std::string& key) {
  if (scale == 1) return input;
  if (input.dim() != 4)
    throw ConfigError("SelectiveBackprop: scale_factor needs images [N, C, H, W]; \"", key, "\" is ", input.sizes());
  const auto size = [&](std::int64_t dimension) {
    return std::max<std::int64_t>(1, util::share_of(input.size(dimension), scale));
  };
  const at::Tensor images = input.is_floating_point() ? input : input.to(at::kFloat);
  return at::upsample_bilinear2d(images, {size(2), size(3)}, /*align_corners=*/false, scale, scale);
}

std::vector<Option<SelectiveBackpropOptions>> selective_backprop_options() {
  using O = SelectiveBackpropOptions;
  const auto share = [](auto field) {
    return std::move(field)
        .must("be above 0 and at most 1", [](double share) { return share > 0 && share <= 1; })
        .refuses({"0", "1.1"});
  };
  return all_options(option("start", &O::start).refuses({"-0.1", "0.95"}),
                     option("end", &O::end).refuses({"0.4", "1.1"}), share(option("keep", &O::keep)),
                     share(option("scale_factor", &O::scale_factor)), option("interrupt", &O::interrupt).at_least(0),
                     option("input_key", &O::input_key).not_empty(), option("target_key", &O::target_key).not_empty(),
                     part("loss", &O::loss, "a function"), part("transform", &O::transform, "a function"),
                     part("choose", &O::choose, "a function"));
}

}  // namespace

bool should_selective_backprop(double elapsed, std::int64_t batch_in_epoch, const SelectiveBackpropOptions& options) {
  const bool is_interrupted = options.interrupt != 0 && (batch_in_epoch + 1) % options.interrupt == 0;
  return options.keep < 1 && elapsed >= options.start && elapsed < options.end && !is_interrupted;
}

std::vector<double> selective_backprop_weights(std::int64_t samples, double keep) {
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    // The probability as a fraction of the largest one, which stays above 0 for a small `keep`.
    const double share = (static_cast<double>(i) + 0.5) / (static_cast<double>(samples) - 0.5);
    weights.push_back(std::pow(share, 1 / keep - 1));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

at::Tensor select_using_loss(
    const at::Tensor& losses, double keep,
    const std::function<std::vector<std::int64_t>(const std::vector<double>& weights, std::int64_t n)>& choose) {
  const std::int64_t samples = losses.size(0);
  if (samples == 0) return at::empty({0}, losses.options().dtype(at::kLong));
  const auto kept = std::max<std::int64_t>(1, util::share_of(samples, keep));
  const at::Tensor chosen = at::tensor(choose(selective_backprop_weights(samples, keep), kept), at::kLong);
  return losses.argsort(/*stable=*/true).index_select(0, chosen.to(losses.device(), /*non_blocking=*/true));
}

SelectiveBackprop::SelectiveBackprop(SelectiveBackpropOptions options)
    : options_(checked("SelectiveBackprop", std::move(options), selective_backprop_options())) {
  if (!(options_.start >= 0 && options_.start <= options_.end && options_.end <= 1))
    throw ConfigError("SelectiveBackprop: start and end must be from 0 to 1, start first, got ", options_.start,
                      " and ", options_.end);
}

bool SelectiveBackprop::match(Event event, const State& state) const {
  // Checks here, so that a missing tensor is an error of the first batch, not of the first batch with a selection.
  if (!state.batch.empty()) {
    state.batch.at(options_.input_key);
    if (!options_.loss) state.batch.at(options_.target_key);
  }
  return event == Event::FIT_START ||
         should_selective_backprop(state.elapsed_duration(), state.timestamp.batch_in_epoch, options_);
}

at::Tensor SelectiveBackprop::losses_of(const Batch& batch, State& state) const {
  const at::NoGradGuard no_grad;
  const AutocastScope autocast(state.precision, state.device);
  const std::int64_t samples = batch.at(options_.input_key).size(0), size = state.device_train_microbatch_size;
  if (size == 0 || size >= samples) return losses_of_part(batch, state);
  std::vector<at::Tensor> parts;  // the whole batch may not fit into the device's memory
  for (std::int64_t from = 0; from < samples; from += size) {
    Batch part = batch;
    for (auto& [name, tensor] : part)
      if (is_of_samples(tensor, samples)) tensor = tensor.narrow(0, from, std::min(size, samples - from));
    parts.push_back(losses_of_part(std::move(part), state));
  }
  return at::cat(parts);
}

at::Tensor SelectiveBackprop::losses_of_part(Batch batch, State& state) const {
  const std::int64_t samples = batch.at(options_.input_key).size(0);
  if (options_.transform) options_.transform(batch);
  batch.set(options_.input_key, scaled(batch.at(options_.input_key), options_.scale_factor, options_.input_key));
  const Outputs outputs = forward_of(*state.model, batch);
  const at::Tensor losses =
      options_.loss ? options_.loss(outputs, batch)
                    : soft_cross_entropy(outputs.only(), batch.at(options_.target_key), {.reduction = Reduction::NONE});
  if (losses.dim() < 1 || losses.size(0) != samples)
    throw ConfigError("SelectiveBackprop: the loss must be one number for each of the ", samples, " samples, got ",
                      losses.sizes());
  return losses.dim() == 1 ? losses : losses.flatten(1).mean(1);
}

void SelectiveBackprop::apply(Event event, State& state, Logger&) {
  if (event == Event::FIT_START) return warn_if_never(state, options_);
  Batch batch;
  for (const auto& [name, tensor] : state.batch) batch.set(name, util::to_device(tensor, state.device));
  const std::int64_t samples = batch.at(options_.input_key).size(0);
  if (samples == 0) return;
  RandomStream random(hash64(rank_seed(state), kSelectiveBackpropStream, state.timestamp.batch));
  const auto choose = [&](const std::vector<double>& weights, std::int64_t n) {
    return options_.choose ? options_.choose(weights, n) : sample_positions(weights, n, random);
  };
  const at::Tensor selected = select_using_loss(losses_of(batch, state), options_.keep, choose);
  for (auto& [name, tensor] : batch)
    if (is_of_samples(tensor, samples)) tensor = tensor.index_select(0, selected);
  state.batch = std::move(batch);
}

StateDict SelectiveBackprop::local_hparams() const { return describe(options_, selective_backprop_options()); }

namespace entries {

Entry<Algorithms> selective_backprop() {
  return entry<SelectiveBackprop>("selective_backprop", "Trains on samples with a large loss",
                                  selective_backprop_options());
}

}  // namespace entries
}  // namespace composer::algorithms
