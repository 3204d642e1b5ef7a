// Algorithms and a model outside of this project, written as docs/reference/algorithms/writing.md says.
#include "own_algorithms.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <composer/core/algorithm.h>
#include <composer/core/entry.h>
#include <composer/core/logger.h>
#include <composer/core/model.h>
#include <composer/core/registry.h>
#include <composer/core/state.h>
#include <composer/data/in_memory.h>
#include <composer/surgery/layer.h>
#include <composer/surgery/surgery_algorithm.h>
#include <composer/trainer/trainer.h>
#include <composer/util/loss.h>

using namespace composer;

namespace {

// A model with a place for a layer that algorithms may replace.
struct Line : Model {
  Layer line{this, "line", torch::nn::Linear(1, 1)};
  Outputs forward(const Batch& batch) override { return line(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return mean_squared_error(outputs.only(), batch["target"]);
  }
};

// A layer whose output is multiplied by a number that is learned.
struct Scaled : torch::nn::Module {
  Scaled(const Layer& place, double initial) : inner(place.lift()) {
    register_module("inner", inner.ptr());
    scale = register_parameter("scale", at::full({1}, initial));
  }
  at::Tensor forward(const at::Tensor& x) { return scale * inner(x); }

  Layer inner;
  at::Tensor scale;
};

struct ScaleOptions {
  double initial = 1;  // > 0
};

std::vector<Option<ScaleOptions>> scale_options() {
  return all_options(option("initial", &ScaleOptions::initial).above(0));
}

class ScaleLayers : public SurgeryAlgorithm {
 public:
  explicit ScaleLayers(ScaleOptions options = {})
      : SurgeryAlgorithm("ScaleLayers"), options_(checked("ScaleLayers", options, scale_options())) {}
  StateDict local_hparams() const override { return describe(options_, scale_options()); }

 private:
  Replacements operate(State& state) const override {
    const auto scaled = [this](const std::string&, const Layer& place) -> Layer {
      return std::make_shared<Scaled>(place, options_.initial);
    };
    return replace_modules<Scaled>(*state.model, only<torch::nn::Linear>(scaled));
  }
  void log(const Replacements& done, Logger& logger) const override {
    logger.log_hyperparameters({{"scale_layers/layers", static_cast<std::int64_t>(done.made.size())}});
  }
  std::string nothing_found() const override { return "no torch::nn::Linear"; }

  ScaleOptions options_;
};

struct ShiftOptions {
  std::string tensor = "input";  // the name of the tensor that is shifted
  double by = 0.5;
};

class ShiftInputs : public Algorithm {
 public:
  explicit ShiftInputs(ShiftOptions options = {}) : options_(std::move(options)) {}
  EventSet events() const override { return {Event::BEFORE_FORWARD}; }
  void apply(Event, State& state, Logger&) override {
    state.batch.set(options_.tensor, state.batch[options_.tensor] + options_.by);
    ++shifted_;
  }
  void visit_state(StateVisitor& visit) override { visit("shifted", shifted_); }
  std::int64_t shifted() const { return shifted_; }

 private:
  ShiftOptions options_;
  std::int64_t shifted_ = 0;
};

const Registry<Algorithms>& my_algorithms() {
  static const Registry<Algorithms> entries = {
      entry<ScaleLayers>("scale_layers", "Multiplies the output of linear layers", scale_options()),
      entry<ShiftInputs, ShiftOptions>(
          "shift_inputs", "Shifts the inputs",
          all_options(option("tensor", &ShiftOptions::tensor), option("by", &ShiftOptions::by))),
  };
  return entries;
}

TrainerOptions options_with(const Algorithms& algorithms, const std::string& folder) {
  at::manual_seed(1);
  const at::Tensor x = at::linspace(-1, 1, 64).unsqueeze(1);
  return {
      .model = std::make_shared<Line>(),
      .train_dataloader = data::in_memory({{"input", x}, {"target", 3 * (x + 0.5) + 1}}, {.batch_size = 16}),
      .optimizer = optim::sgd({.lr = 0.05}),
      .max_duration = "100ep",
      .algorithms = algorithms,
      .run_name = "own",
      .seed = 1,
      .save_folder = folder,
      .save_interval = "10ep",
  };
}

void require(bool so, const char* what) {
  if (!so) throw Error("not so: ", what);
}

void train_with(const std::string& folder) {
  Algorithms algorithms;
  my_algorithms().find("scale_layers").add_to(algorithms, {{"initial", "2"}});
  my_algorithms().find("shift_inputs").add_to(algorithms, {});
  Trainer trainer(options_with(algorithms, folder));
  trainer.fit();
  const auto parameters = trainer.state().model->named_parameters();
  const double scale = parameters["line.scale"].item<double>();
  const double slope = scale * parameters["line.inner.weight"].item<double>();
  const double offset = scale * parameters["line.inner.bias"].item<double>();
  std::cout << "learned " << slope << " x + " << offset << ", scaled by " << scale << '\n';
  require(std::abs(slope - 3) < 0.05 && std::abs(offset - 1) < 0.05, "the line is learned");
  require(scale != 2, "the scale is trained");
  const auto& shift = dynamic_cast<const ShiftInputs&>(*trainer.engine().algorithms().at(1).object);
  require(shift.shifted() == 400, "the inputs of each batch were shifted");
}

// A run that has ended goes on where it ended; without the algorithm that changed the model it does not.
void resume(const std::string& folder) {
  const auto shift = std::make_shared<ShiftInputs>();
  const Trainer resumed(options_with({ScaleLayers({.initial = 2}), shift}, folder));
  require(resumed.state().timestamp.batch == 400 && shift->shifted() == 400, "the run is resumed");
  try {
    const Trainer without(options_with({ShiftInputs()}, folder));
  } catch (const CheckpointError& error) {
    require(std::string(error.what()).find("ScaleLayers (initial = 2") != std::string::npos, "the error says why");
    std::cout << "as it should be, an error: " << error.what() << '\n';
    return;
  }
  require(false, "the checkpoint requires ScaleLayers");
}

}  // namespace

void check_own_algorithms() {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("own_algorithms-" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  train_with(folder);
  resume(folder);
  std::filesystem::remove_all(folder);
}
