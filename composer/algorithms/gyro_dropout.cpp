#include "composer/algorithms/gyro_dropout.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/dropout.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/surgery/surgery_algorithm.h"
#include "composer/util/own_random.h"
#include "composer/util/random.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

namespace nn = torch::nn;

constexpr std::uint64_t kGyroDropoutStream =
    0x6779726f;  // sets these random numbers apart from those of other uses of a seed

struct GyroDropoutLayer final : nn::Module {
  GyroDropoutLayer(GyroDropoutOptions given, std::int64_t place, std::shared_ptr<const GyroDropoutPosition> at)
      : options(given), index(place), position(std::move(at)) {}

  at::Tensor forward(const at::Tensor& x) {
    if (!is_training() || options.p == 0) return x;
    decides_on_host("masks of GyroDropout are chosen on the host");
    const bool fit = masks.defined() && seed == position->seed && round == position->round &&
                     masks.device() == x.device() && masks.sizes().slice(1) == x.sizes().slice(1);
    if (!fit) choose(x);
    return drop_by_masks(x, masks, options.p, position->part);
  }

  void choose(const at::Tensor& x) {
    seed = position->seed;
    round = position->round;
    RandomStream random(hash64(seed, kGyroDropoutStream, index, 0, round));
    std::vector<at::Tensor> chosen;
    chosen.reserve(static_cast<std::size_t>(options.tau));
    for (std::int64_t i = 0; i < options.tau; ++i)
      chosen.push_back(draw(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(options.sigma))), x));
    masks = at::stack(chosen).to(x.device(), /*non_blocking=*/true);
  }

  // Draws one of sigma masks when it is needed, because all of them together can be larger than the model.
  at::Tensor draw(std::int64_t number, const at::Tensor& x) const {
    const at::Generator numbers = at::detail::createCPUGenerator(hash64(seed, kGyroDropoutStream, index, 1, number));
    return at::rand(x.sizes().slice(1), numbers, at::TensorOptions(at::kFloat)).gt(options.p);
  }

  void pretty_print(std::ostream& stream) const override {
    stream << "composer::GyroDropout(p=" << options.p << ", sigma=" << options.sigma << ", tau=" << options.tau << ")";
  }

  GyroDropoutOptions options;
  std::int64_t index;
  std::shared_ptr<const GyroDropoutPosition> position;
  at::Tensor masks;  // not a buffer, because a resumed run draws the same masks
  std::uint64_t seed = 0;
  std::int64_t round = 0;
};

std::vector<Option<GyroDropoutOptions>> gyro_dropout_options() {
  using O = GyroDropoutOptions;
  return all_options(option("p", &O::p).from_0_below_1().worded("be at least 0 and below 1"),
                     option("sigma", &O::sigma).at_least(1), option("tau", &O::tau).at_least(1));
}

void check_gyro_dropout(const GyroDropoutOptions& options) {
  static const auto described = gyro_dropout_options();  // described once for all batches
  check(options, described, "GyroDropout: ", "");
}

std::int64_t round_of(const State& state, const GyroDropoutOptions& options) {
  if (!state.max_duration) throw ConfigError("GyroDropout: needs a max_duration");
  const Time limit = *state.max_duration;
  std::optional<std::int64_t> batches;
  if (limit.unit() == TimeUnit::BATCH) batches = limit.count();
  if (limit.unit() == TimeUnit::EPOCH && state.dataloader_len) batches = limit.count() * *state.dataloader_len;
  if (batches) return state.timestamp.batch / gyro_dropout_period(*batches, options);
  return util::share_of(options.sigma, state.elapsed_duration()) / options.tau;
}

// The number of samples of a batch; 0 if its tensors do not agree.
std::int64_t samples_of(const Batch& batch) {
  std::optional<std::int64_t> samples;
  for (const auto& [name, tensor] : batch) {
    if (tensor.dim() == 0) continue;
    if (samples.value_or(tensor.size(0)) != tensor.size(0)) return 0;
    samples = tensor.size(0);
  }
  return samples.value_or(0);
}

}  // namespace

std::int64_t gyro_dropout_period(std::int64_t batches, const GyroDropoutOptions& options) {
  check_gyro_dropout(options);
  return std::max<std::int64_t>(1, batches / options.sigma * options.tau);
}

at::Tensor drop_by_masks(const at::Tensor& x, const at::Tensor& masks, double p, const BatchPart& part) {
  if (!(p >= 0 && p < 1)) throw ConfigError("drop_by_masks: p must be at least 0 and below 1, got ", p);
  if (x.dim() < 1 || masks.dim() < 1 || masks.size(0) < 1)
    throw ConfigError("drop_by_masks: needs x [N, ...] and masks [tau, ...] with tau >= 1; x is ", x.sizes(),
                      ", masks are ", masks.sizes());
  if (x.size(0) == 0) return x;
  const std::int64_t rows = x.size(0), tau = masks.size(0);
  // The share of the batch before row i is (first + i * samples / rows) / of.
  const auto [first, samples, of] = part.samples > 0 ? part : BatchPart{.first = 0, .samples = rows, .of = rows};
  const at::Tensor mask_of = at::arange(rows, x.options().dtype(at::kLong))
                                 .mul_(samples)
                                 .add_(first * rows)
                                 .mul_(tau)
                                 .div_(of * rows, "floor")
                                 .clamp_max_(tau - 1);
  const at::Tensor kept = masks.to(x.scalar_type()).mul(1 / (1 - p));
  return x * kept.index({mask_of});
}

Replacements gyro_dropout(nn::Module& model, const GyroDropoutOptions& options,
                          std::shared_ptr<const GyroDropoutPosition> position) {
  check_gyro_dropout(options);
  std::int64_t index = 0;
  // Layers that another trainer has made are replaced, so that they follow this position.
  return replace_modules(model, [&](const std::string&, const Layer& place) -> Layer {
    if (!place->as<nn::DropoutImpl>() && !place->as<GyroDropoutLayer>()) return {};
    return std::make_shared<GyroDropoutLayer>(options, index++, position);
  });
}

class GyroDropout::ReplaceDropout final : public SurgeryAlgorithm {
 public:
  ReplaceDropout(GyroDropoutOptions options, std::shared_ptr<const GyroDropoutPosition> position)
      : SurgeryAlgorithm("GyroDropout"), options_(options), position_(std::move(position)) {}

 private:
  Replacements operate(State& state) const override { return gyro_dropout(*state.model, options_, position_); }
  void log(const Replacements& done, Logger& logger) const override {
    logger.log_hyperparameters({{"GyroDropout/num_new_modules", static_cast<std::int64_t>(done.made.size())}});
  }
  std::string nothing_found() const override { return "no dropout"; }

  GyroDropoutOptions options_;
  std::shared_ptr<const GyroDropoutPosition> position_;
};

GyroDropout::GyroDropout(GyroDropoutOptions options)
    : options_(options), position_(std::make_shared<GyroDropoutPosition>()) {
  check_gyro_dropout(options_);
  replace_dropout_ = std::make_unique<ReplaceDropout>(options_, position_);
}
GyroDropout::~GyroDropout() = default;
GyroDropout::GyroDropout(GyroDropout&&) noexcept = default;
GyroDropout& GyroDropout::operator=(GyroDropout&&) noexcept = default;

bool GyroDropout::match(Event event, const State& state) const {
  return event != Event::AFTER_FORWARD && (event != Event::INIT || replace_dropout_->match(event, state));
}

void GyroDropout::apply(Event event, State& state, Logger& logger) {
  if ((event == Event::INIT || event == Event::BATCH_END) && replace_dropout_->match(event, state))
    replace_dropout_->apply(event, state, logger);
  BatchPart& part = position_->part;
  if (event == Event::BEFORE_TRAIN_BATCH) {
    part = {.first = 0, .samples = 0, .of = samples_of(state.batch)};
  } else if (event == Event::BEFORE_FORWARD) {
    part.first += part.samples;
    part.samples = part.of > 0 ? samples_of(state.batch) : 0;
  } else if (event != Event::INIT) {
    *position_ = {.seed = rank_seed(state), .round = round_of(state, options_), .part = {}};
  }
}

StateDict GyroDropout::local_hparams() const { return describe(options_, gyro_dropout_options()); }

namespace entries {

Entry<Algorithms> gyro_dropout() {
  return entry<GyroDropout>("gyro_dropout", "Drops by a few masks, each for several batches", gyro_dropout_options());
}

}  // namespace entries
}  // namespace composer::algorithms
