#include "composer/algorithms/progressive_resizing.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/rank_seed.h"
#include "composer/core/state.h"
#include "composer/util/random.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

constexpr std::uint64_t kResizingStream =
    0x726573697a65;  // sets these random numbers apart from those of other uses of a seed

bool have_same_size(const at::Tensor& target, const at::Tensor& images) {
  return target.dim() > 2 && target.sizes().slice(target.dim() - 2) == images.sizes().slice(images.dim() - 2);
}

// The indices of the nearest pixels, computed like torch.nn.functional.interpolate(scale_factor=scale): in single
// precision.
at::Tensor nearest(std::int64_t from, std::int64_t to, double scale, at::Device device) {
  const auto step = static_cast<float>(1 / scale);
  return at::arange(to, at::kFloat)
      .mul_(step)
      .floor_()
      .clamp_max_(static_cast<double>(from - 1))
      .to(at::kLong)
      .to(device, /*non_blocking=*/true);
}

// If the run is limited in epochs, its elapsed share changes only between epochs.
void warn_unless_whole_images_follow(const State& state, const ProgressiveResizingOptions& options) {
  if (!state.max_duration || state.max_duration->unit() != TimeUnit::EPOCH || options.finetune_fraction == 0) return;
  const std::int64_t epochs = state.max_duration->count();
  if (options.initial_scale == 1 ||
      static_cast<double>(epochs - 1) >= (1 - options.finetune_fraction) * static_cast<double>(epochs))
    return;
  warn(join("ProgressiveResizing: no images of their own size are trained, because the last of ", epochs,
            " epochs begins before the last ", options.finetune_fraction,
            " of the run. Give max_duration in batches, or a larger finetune_fraction"));
}

std::vector<Option<ProgressiveResizingOptions>> progressive_resizing_options() {
  using O = ProgressiveResizingOptions;
  return all_options(option("mode", &O::mode, {{"resize", ResizingMode::RESIZE}, {"crop", ResizingMode::CROP}}),
                     option("initial_scale", &O::initial_scale).from_to(0, 1),
                     option("finetune_fraction", &O::finetune_fraction).from_to(0, 1).refuses({"0.6"}),
                     option("delay_fraction", &O::delay_fraction).from_to(0, 1).refuses({"0.9"}),
                     option("size_increment", &O::size_increment).at_least(1),
                     option("resize_targets", &O::resize_targets), option("input_key", &O::input_key).not_empty(),
                     option("target_key", &O::target_key).not_empty());
}

}  // namespace

ResizedBatch resize_batch(const at::Tensor& input, const at::Tensor& target, double scale, ResizingMode mode,
                          bool resize_target, const std::function<std::int64_t(std::int64_t high)>& sample) {
  if (scale >= 1) return {input, target};
  const std::int64_t height = input.size(-2), width = input.size(-1);
  const auto scaled = [scale](std::int64_t size) { return std::max<std::int64_t>(1, util::share_of(size, scale)); };
  const std::int64_t rows = scaled(height), columns = scaled(width);
  std::function<at::Tensor(const at::Tensor&)> resize;
  if (mode == ResizingMode::CROP) {
    const std::int64_t top = rows < height ? sample(height - rows + 1) : 0;
    const std::int64_t left = columns < width ? sample(width - columns + 1) : 0;
    resize = [=](const at::Tensor& images) {
      return images.narrow(-2, top, rows).narrow(-1, left, columns).contiguous(images.suggest_memory_format());
    };
  } else {
    const at::Tensor row = nearest(height, rows, scale, input.device()),
                     column = nearest(width, columns, scale, input.device());
    resize = [=](const at::Tensor& images) { return images.index_select(-2, row).index_select(-1, column); };
  }
  return {resize(input), resize_target && have_same_size(target, input) ? resize(target) : target};
}

ProgressiveResizing::ProgressiveResizing(ProgressiveResizingOptions options)
    : options_(checked("ProgressiveResizing", std::move(options), progressive_resizing_options())) {
  if (options_.delay_fraction + options_.finetune_fraction > 1)
    throw ConfigError("ProgressiveResizing: delay_fraction + finetune_fraction must be at most 1, got ",
                      options_.delay_fraction, " + ", options_.finetune_fraction);
}

double ProgressiveResizing::scale_at(double elapsed) const {
  if (elapsed < options_.delay_fraction) return options_.initial_scale;
  if (elapsed >= 1 - options_.finetune_fraction) return 1;
  const double growing = 1 - options_.finetune_fraction - options_.delay_fraction;
  const double grown = growing > 0 ? std::min((elapsed - options_.delay_fraction) / growing, 1.) : 1.;
  return options_.initial_scale + (1 - options_.initial_scale) * grown;
}

void ProgressiveResizing::apply(Event, State& state, Logger& logger) {
  const at::Tensor input = state.batch.at(options_.input_key);
  if (input.dim() != 4)
    throw ConfigError("ProgressiveResizing: needs images [N, C, H, W]; \"", options_.input_key, "\" is ",
                      input.sizes());
  if (!std::exchange(is_checked_, true)) warn_unless_whole_images_follow(state, options_);
  const double scale = scale_at(state.elapsed_duration()), width = static_cast<double>(input.size(3)),
               increment = static_cast<double>(options_.size_increment);
  const double used = scale < 1 ? std::max(1., std::nearbyint(width * scale / increment)) * increment / width : 1;
  const at::Tensor target = options_.resize_targets ? state.batch.at(options_.target_key) : at::Tensor();
  RandomStream random(hash64(rank_seed(state), kResizingStream, state.timestamp.batch));
  const auto sample = [&](std::int64_t high) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high)));
  };
  ResizedBatch resized = resize_batch(input, target, used, options_.mode, options_.resize_targets, sample);
  logger.log_metrics({{"progressive_resizing/height", resized.input.size(2)},
                      {"progressive_resizing/width", resized.input.size(3)},
                      {"progressive_resizing/scale_factor", scale}});
  state.batch.set(options_.input_key, std::move(resized.input));
  if (options_.resize_targets) state.batch.set(options_.target_key, std::move(resized.target));
}

StateDict ProgressiveResizing::local_hparams() const { return describe(options_, progressive_resizing_options()); }

namespace entries {

Entry<Algorithms> progressive_resizing() {
  return entry<ProgressiveResizing>("progressive_resizing", "Trains on small images at first",
                                    progressive_resizing_options());
}

}  // namespace entries
}  // namespace composer::algorithms
