#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::callbacks {

enum class ImageMode : std::uint8_t {
  INPUT,        // the inputs of the model
  SEGMENTATION  // the inputs with the masks "prediction" and "ground_truth"
};

struct ImageVisualizerOptions {
  Time interval = "100ba";            // in ep or ba, >= 1
  ImageMode mode = ImageMode::INPUT;  // INPUT: the images that go into the model; SEGMENTATION: also their masks
  std::int64_t num_images = 8;        // >= 1; a smaller microbatch gives fewer
  bool channels_last = false;         // the inputs are [N, H, W, C] instead of [N, C, H, W]
  std::string input_key = "input";    // name of the images in the batch
  std::string target_key = "target";  // name of the masks in the batch
  // The inputs were normalized as (x - mean) / stddev with x from 0 to 1, which is undone before images are logged. One
  // number, or one per channel; empty: not normalized.
  std::vector<double> mean = {};
  std::vector<double> stddev = {};  // > 0; one number, or one per channel
  bool rescale = false;             // scales each image so that its smallest value becomes 0 and its largest 1
  std::string folder = {};          // folder of PNG files; placeholders as in the names of checkpoints. Empty: no files
};

// Logs images of the first microbatch of each batch that is due as Images/Train, and images of the first microbatch of
// each evaluation as Images/Eval, or Images/Eval/<label> if the label is not "eval". With a folder, also writes them as
// a grid in a PNG file. Inputs that are not [N, C, H, W] or [N, H, W] are skipped, with a warning. Values below 0 or
// above 1 are shown as black or white, with a warning. Throws ConfigError from the constructor, and DataError for
// images or masks that cannot be shown.
class COMPOSER_EXPORT ImageVisualizer final : public Callback {
 public:
  explicit ImageVisualizer(ImageVisualizerOptions options = {});
  explicit ImageVisualizer(EmptyOptions) : ImageVisualizer() {}
  ~ImageVisualizer() override;
  ImageVisualizer(ImageVisualizer&&) noexcept;
  StateDict local_hparams() const override;

  void init(const State& state, Logger& logger) override;
  void batch_start(const State& state, Logger& logger) override;
  void before_forward(const State& state, Logger& logger) override;
  void before_loss(const State& state, Logger& logger) override;
  void eval_start(const State& state, Logger& logger) override;
  void eval_before_forward(const State& state, Logger& logger) override;
  void eval_after_forward(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  struct Files;
  struct Range;
  void tell_range();
  void show(const State& state, const std::string& key, const std::string& file, Logger& logger);

  ImageVisualizerOptions options_;
  bool due_ = false, eval_due_ = false;
  bool has_warned_ = false;       // about inputs that are not images
  std::unique_ptr<Range> range_;  // null once values outside of 0 to 1 were found
  std::unique_ptr<Files> files_;  // null without a folder
};

}  // namespace composer::callbacks
