#include "composer/callbacks/image_visualizer.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "composer/callbacks/background_files.h"
#include "composer/callbacks/callback_files.h"
#include "composer/callbacks/image_grid.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/listed.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/device/device_support.h"
#include "composer/util/new_file.h"
#include "composer/util/png.h"

namespace composer::callbacks {
namespace {

namespace fs = std::filesystem;

// A tensor of one number, or of one per channel, with the dtype and device of the images.
at::Tensor by_channel(const std::vector<double>& values, const at::Tensor& images, std::int64_t channel,
                      const char* option) {
  const auto count = static_cast<std::int64_t>(values.size());
  if (count != 1 && count != images.size(channel))
    throw DataError("ImageVisualizer: ", option, " has ", count, " values, but the images have ", images.size(channel),
                    " channels");
  std::vector<std::int64_t> shape(static_cast<std::size_t>(images.dim()), 1);
  shape[static_cast<std::size_t>(channel)] = count;
  return at::tensor(values, images.options()).view(shape);
}

// Converts [N, C, H, W] or [N, H, W, C] into images that later changes of the batch do not affect.
at::Tensor as_images(const at::Tensor& inputs, const ImageVisualizerOptions& options) {
  at::Tensor images = inputs.detach().slice(0, 0, options.num_images);
  const std::int64_t channel = options.channels_last ? 3 : 1;
  if (images.dim() == 3) images = images.unsqueeze(channel);
  const bool changes = !options.mean.empty() || !options.stddev.empty() || options.rescale;
  if (images.scalar_type() == at::kBool)
    images = images.to(at::kFloat);
  else if (!images.is_floating_point() && images.scalar_type() != at::kByte)
    images = images.clamp(0, 255).to(at::kByte);
  if (!changes) return images.clone();
  if (!images.is_floating_point()) images = images.to(at::kFloat) / 255;
  if (!options.stddev.empty()) images = images * by_channel(options.stddev, images, channel, "stddev");
  if (!options.mean.empty()) images = images + by_channel(options.mean, images, channel, "mean");
  if (options.rescale) {
    const at::Tensor least = images.amin({1, 2, 3}, /*keepdim=*/true);
    const at::Tensor range = images.amax({1, 2, 3}, /*keepdim=*/true) - least;
    images = (images - least) / at::where(range > 0, range, at::ones_like(range));
  }
  return images;
}

// Returns [N, H, W] of class numbers: the tensor itself, or the class with the largest value of [N, classes, H, W].
at::Tensor as_classes(const at::Tensor& values, const char* what, std::int64_t count) {
  if (values.dim() != 3 && values.dim() != 4)
    throw DataError("ImageVisualizer: segmentation needs ", what, " of shape [N, H, W] or [N, classes, H, W], got ",
                    values.sizes());
  const at::Tensor some = values.detach().slice(0, 0, count);
  return (some.dim() == 4 ? some.argmax(1) : some).to(at::kLong);
}

std::vector<LogMask> masks_of(const at::Tensor& outputs, const at::Tensor& target, std::int64_t count) {
  const at::Tensor prediction = as_classes(outputs, "outputs", count);
  at::Tensor truth = as_classes(target, "targets", count);
  // Pixels of no class, such as -1 or -100, get the number after the last class.
  const bool has_classes = outputs.dim() == 4;
  const at::Tensor none =
      has_classes ? at::full_like(truth, outputs.size(1)) : prediction.max().add(1).expand_as(truth);
  truth = at::where(truth < 0, none, truth);
  return {{"prediction", prediction.clone()}, {"ground_truth", truth}};
}

bool is_due(Time interval, const Timestamp& now) {
  if (interval.unit() == TimeUnit::BATCH) return now.batch % interval.count() == 0;
  return now.batch_in_epoch == 0 && now.epoch % interval.count() == 0;
}

std::string table_name(const State& state) {
  return state.dataloader_label == "eval" ? "Images/Eval" : "Images/Eval/" + state.dataloader_label;
}

std::vector<Option<ImageVisualizerOptions>> image_visualizer_options() {
  using O = ImageVisualizerOptions;
  return all_options(
      option("interval", &O::interval).in({TimeUnit::EPOCH, TimeUnit::BATCH}).at_least(1).refuses({"3sp", "0.1dur"}),
      option("mode", &O::mode, {{"input", ImageMode::INPUT}, {"segmentation", ImageMode::SEGMENTATION}}),
      option("num_images", &O::num_images).at_least(1), option("channels_last", &O::channels_last),
      option("input_key", &O::input_key).not_empty(), option("target_key", &O::target_key).not_empty(),
      part("mean", &O::mean, "numbers"), part("stddev", &O::stddev, "numbers"), option("rescale", &O::rescale),
      option("folder", &O::folder).refuses({"{run_name"}));
}

}  // namespace

// The smallest and largest value of the images that were shown. A device returns them later.
struct ImageVisualizer::Range {
  static constexpr float kOvershoot = 0.1F;  // as by interpolation; it barely changes an image

  void ask(const at::Tensor& images, const std::string& name) {
    if (is_asked || !images.is_floating_point()) return;
    const auto [least, greatest] = images.aminmax();
    const at::Tensor both = at::stack({least, greatest}).to(at::kFloat);
    is_asked = true;
    key = name;
    if (both.is_cpu()) {
      values = both;
      return;
    }
    const bool pinned = device_support(both.device().type()).pins_memory();
    values = at::empty({2}, at::TensorOptions().dtype(at::kFloat).pinned_memory(pinned));
    values.copy_(both, /*non_blocking=*/true);
    arrived.emplace(both.device().type());
    arrived->record(c10::impl::VirtualGuardImpl(both.device().type()).getStream(both.device()));
  }

  // Returns whether it has warned.
  bool tell(const ImageVisualizerOptions& options) {
    if (!is_asked || (arrived && !arrived->query())) return false;
    is_asked = false;
    const float least = values.const_data_ptr<float>()[0], greatest = values.const_data_ptr<float>()[1];
    if (!(least < -kOvershoot) && !(greatest > 1 + kOvershoot)) return false;
    const bool normalized = options.mean.empty() && options.stddev.empty();
    warn(join("ImageVisualizer: ", key, " have values from ", least, " to ", greatest,
              ", of which those below 0 are shown as black and those above 1 as white; ",
              normalized ? "set mean and stddev to those with which the inputs were normalized, or rescale"
                         : "check mean and stddev, or set rescale"));
    return true;
  }

  bool is_asked = false;
  std::string key;  // of the requested images
  at::Tensor values;
  std::optional<c10::Event> arrived;  // unset: available at once
};

// Writes grids to files on a background thread.
struct ImageVisualizer::Files {
  explicit Files(fs::path where)
      : folder(std::move(where)),
        files(8, [](const std::string& path) { return join("ImageVisualizer: ", path, " was not written"); }) {}

  void send(LogImages images, const std::string& name) {
    images.images = images.images.to(at::kCPU);
    for (LogMask& mask : images.masks) mask.classes = mask.classes.to(at::kCPU);
    files.send(folder / (name + ".png"), [images = std::move(images)](const fs::path& path) {
      const at::NoGradGuard no_grad;
      util::write_whole_file(path, util::png_files(image_grid(images).unsqueeze(0)).files.front());
    });
  }

  const fs::path folder;
  BackgroundFiles files;
};

ImageVisualizer::ImageVisualizer(ImageVisualizerOptions options)
    : options_(checked("ImageVisualizer", std::move(options), image_visualizer_options())) {
  for (const double value : options_.stddev)
    if (!(value > 0)) throw ConfigError("ImageVisualizer: stddev must be > 0, got ", listed(options_.stddev));
  check_file_names("ImageVisualizer", {{"folder", options_.folder}});
}
ImageVisualizer::~ImageVisualizer() = default;
ImageVisualizer::ImageVisualizer(ImageVisualizer&&) noexcept = default;

void ImageVisualizer::init(const State& state, Logger&) {
  due_ = eval_due_ = has_warned_ = false;
  range_ = std::make_unique<Range>();
  files_.reset();
  if (!options_.folder.empty())
    files_ = std::make_unique<Files>(std::filesystem::absolute(saving::format_name(options_.folder, state, nullptr)));
}

void ImageVisualizer::batch_start(const State& state, Logger&) {
  due_ = is_due(options_.interval, state.timestamp);
  tell_range();
}

void ImageVisualizer::before_forward(const State& state, Logger& logger) {
  if (options_.mode != ImageMode::INPUT || !std::exchange(due_, false)) return;
  show(state, "Images/Train", join("train-ba", state.timestamp.batch), logger);
}

void ImageVisualizer::before_loss(const State& state, Logger& logger) {
  if (options_.mode != ImageMode::SEGMENTATION || !std::exchange(due_, false)) return;
  show(state, "Images/Train", join("train-ba", state.timestamp.batch), logger);
}

void ImageVisualizer::eval_start(const State&, Logger&) { eval_due_ = true; }

void ImageVisualizer::eval_before_forward(const State& state, Logger& logger) {
  if (options_.mode != ImageMode::INPUT || !std::exchange(eval_due_, false)) return;
  show(state, table_name(state), join(state.dataloader_label, "-ba", state.timestamp.batch), logger);
}

void ImageVisualizer::eval_after_forward(const State& state, Logger& logger) {
  if (options_.mode != ImageMode::SEGMENTATION || !std::exchange(eval_due_, false)) return;
  show(state, table_name(state), join(state.dataloader_label, "-ba", state.timestamp.batch), logger);
}

void ImageVisualizer::eval_end(const State&, Logger&) {
  eval_due_ = false;
  tell_range();
}

void ImageVisualizer::tell_range() {
  if (range_ && range_->tell(options_)) range_.reset();
}

// Shows the images of rank 0 only, so that one process writes a file.
void ImageVisualizer::show(const State& state, const std::string& key, const std::string& file, Logger& logger) {
  if (state.rank != 0) return;
  const at::Tensor& inputs = state.batch.at(options_.input_key);
  const bool is_image = inputs.dim() == 3 || inputs.dim() == 4;
  if (!is_image || inputs.numel() <= inputs.size(0)) {
    if (!std::exchange(has_warned_, true))
      warn(join("ImageVisualizer: \"", options_.input_key, "\" is ", inputs.sizes(),
                ", which is not images, so nothing is shown; set input_key to the images [N, C, H, W] or [N, H, W]"));
    return;
  }
  const at::NoGradGuard no_grad;
  LogImages images{.images = as_images(inputs, options_), .channels_last = options_.channels_last};
  if (options_.mode == ImageMode::SEGMENTATION)
    images.masks = masks_of(state.outputs.front(), state.batch.at(options_.target_key), images.images.size(0));
  composer::check(key, images);
  if (range_) range_->ask(images.images, key);
  tell_range();
  logger.log_images(key, images);
  if (files_) files_->send(images, file);
}

void ImageVisualizer::close(const State&, Logger&) {
  if (range_ && range_->arrived) range_->arrived->synchronize();
  tell_range();
  if (files_) files_->files.wait();
}

StateDict ImageVisualizer::local_hparams() const { return describe(options_, image_visualizer_options()); }

namespace entries {

Entry<Callbacks> image_visualizer() {
  return entry<ImageVisualizer>("image_visualizer", "Logs images of the inputs, or of a segmentation",
                                image_visualizer_options());
}

}  // namespace entries
}  // namespace composer::callbacks
