// Trains a network on Fashion-MNIST, shows it, and writes metrics and weights: what scripts/train runs.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "composer/algorithms/registry.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/data/fashion_mnist.h"
#include "composer/data/in_memory.h"
#include "composer/formats/safetensors.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/loggers/terminal.h"
#include "composer/models/mlp.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet_cifar.h"
#include "composer/optim/optimizer.h"
#include "composer/optim/schedulers.h"
#include "composer/trainer/trainer.h"
#include "composer/util/tune_process.h"

namespace {

using namespace composer;

struct Arguments {
  std::string model = "resnet20";
  std::int64_t epochs = 6, batch_size = 128;
  double lr = 0.2, weight_decay = 5e-4;
  std::string precision = "auto";
  std::uint64_t seed = 17;
  int threads = 0;
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string out = "runs/{run_name}";
  std::vector<std::string> algorithms;
  std::string json;
  std::string save_folder, save_interval = "1ep";
  bool fast = false, flip = true, tune = false, quiet = false, find_lr = false;
};

using MakeModel = std::shared_ptr<Model> (*)();
const std::map<std::string, MakeModel> kModels = {
    {"resnet20", [] { return std::shared_ptr<Model>(models::resnet_cifar({.depth = 20, .in_channels = 1})); }},
    {"resnet8", [] { return std::shared_ptr<Model>(models::resnet_cifar({.depth = 8, .in_channels = 1})); }},
    {"cnn", [] { return std::shared_ptr<Model>(models::mnist_cnn()); }},
    {"mlp", [] { return std::shared_ptr<Model>(models::mlp()); }},
};

std::string names_of_models() {
  std::string text;
  for (const auto& [name, make] : kModels) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// "mixup" or "mixup.alpha=0.4": the options of an algorithm follow its name.
Algorithms algorithms_of(const std::vector<std::string>& given) {
  std::vector<std::pair<std::string, Settings>> wanted;
  for (const std::string& text : given) {
    const auto dot = text.find('.'), equals = text.find('=');
    const std::string name = text.substr(0, dot);
    if (wanted.empty() || wanted.back().first != name) wanted.emplace_back(name, Settings());
    if (dot == std::string::npos) continue;
    if (equals == std::string::npos || equals < dot)
      throw ConfigError("--algorithm: expected NAME or NAME.OPTION=VALUE, got ", text);
    wanted.back().second[text.substr(dot + 1, equals - dot - 1)] = text.substr(equals + 1);
  }
  Algorithms algorithms;
  for (const auto& [name, settings] : wanted) algorithms::registry().find(name).add_to(algorithms, settings);
  return algorithms;
}

// Convolutions are faster with the channels innermost.
void to_channels_last(Model& model) {
  for (at::Tensor& parameter : model.parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
}

struct Result {
  std::optional<double> accuracy;  // of the last evaluation; none if there was none
  double seconds = 0, samples_per_second = 0;
  std::int64_t epochs = 0;
  std::filesystem::path metrics, weights;
  int interrupted_by = 0;
  std::vector<std::string> tuning;
  std::string precision;  // in which it was trained
};

std::string run_name_of(const Arguments& arguments) {
  return arguments.model + "-seed" + std::to_string(arguments.seed);
}

// Without loggers: nothing is written.
TrainerOptions options_of(const Arguments& arguments) {
  const data::FashionMnist images(arguments.data);
  const data::Normalize normalize{.mean = {0.2860}, .stddev = {0.3530}};
  at::manual_seed(arguments.seed);  // of the initial weights
  const std::shared_ptr<Model> model = kModels.at(arguments.model)();
  to_channels_last(*model);
  const bool convolutions = arguments.model != "mlp";
  return {
      .model = model,
      .train_dataloader = data::in_memory(images.train, {.batch_size = arguments.batch_size,
                                                         .seed = arguments.seed,
                                                         .drop_last = true,
                                                         .normalize = normalize,
                                                         .flip = arguments.flip,
                                                         .channels_last = convolutions}),
      .eval_dataloader = data::in_memory(
          images.test, {.batch_size = 500, .shuffle = false, .normalize = normalize, .channels_last = convolutions}),
      .optimizer = optim::sgd({.lr = arguments.lr,
                               .momentum = 0.9,
                               .weight_decay = arguments.weight_decay,
                               .nesterov = true,
                               .decay_matrices_only = true}),
      .schedulers = {optim::linear_with_warmup({.t_warmup = "0.25dur"})},
      .max_duration = Time(arguments.epochs, TimeUnit::EPOCH),
      .algorithms = algorithms_of(arguments.algorithms),
      .run_name = run_name_of(arguments),
      .precision = parse_precision(arguments.precision),
      .seed = arguments.seed,
      .tune = arguments.tune,
  };
}

// Returns the signal that ended it, 0 if none.
int find_lr(const Arguments& arguments) {
  constexpr int kWidest = 100;
  Trainer trainer(options_of(arguments));
  const LrCurve curve = trainer.find_lr();
  const int columns = loggers::Terminal::of(loggers::TextStream("stdout")).columns();
  std::cout << curve.plot({.width = std::clamp(columns, 32, kWidest)}) << std::flush;
  return trainer.interrupted_by();
}

Result train(const Arguments& arguments) {
  std::string folder = arguments.out;
  if (const auto at = folder.find("{run_name}"); at != std::string::npos)
    folder.replace(at, 10, run_name_of(arguments));
  Result result{.metrics = std::filesystem::path(folder) / "metrics.jsonl",
                .weights = std::filesystem::path(folder) / "weights.safetensors"};

  TrainerOptions options = options_of(arguments);
  options.callbacks = {callbacks::SpeedMonitor(), callbacks::LRMonitor()};
  options.loggers = {loggers::JsonLinesLogger({.path = result.metrics, .overwrite = true})};
  if (!arguments.quiet) options.loggers.add(loggers::ProgressBar());
  options.save_folder = arguments.save_folder;
  options.save_interval = Time::parse(arguments.save_interval);
  const std::shared_ptr<Model> model = options.model;
  Trainer trainer(std::move(options));

  const auto start = std::chrono::steady_clock::now();
  trainer.fit();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.interrupted_by = trainer.interrupted_by();
  result.tuning = trainer.tuning();
  result.precision = to_string(trainer.state().precision);
  const State& state = trainer.state();
  result.epochs = state.timestamp.epoch;
  result.samples_per_second = static_cast<double>(state.timestamp.sample) / state.timestamp.total_wct.count();
  if (state.metrics.find("eval", "MulticlassAccuracy"))
    result.accuracy = state.metrics.at("eval", "MulticlassAccuracy");

  formats::NamedTensors weights;
  for (const auto& item : model->named_parameters()) weights.emplace_back(item.key(), item.value());
  for (const auto& item : model->named_buffers()) weights.emplace_back(item.key(), item.value());
  formats::save_safetensors(result.weights, weights);
  trainer.close();
  return result;
}

void print(const Arguments& arguments, const Result& result) {
  const auto row = [](const char* name, const auto&... parts) {
    std::cout << "  " << std::left << std::setw(13) << name << join(parts...) << '\n';
  };
  const auto rounded = [](double value, int digits) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(digits) << value;
    return text.str();
  };
  std::cout << '\n';
  for (const std::string& line : result.tuning) row("tuned", line);
  row("model", arguments.model, ", seed ", arguments.seed, ", ", result.precision, ", ", at::get_num_threads(),
      at::get_num_threads() == 1 ? " thread" : " threads");
  row("epochs", result.epochs, " of ", arguments.epochs, result.interrupted_by ? " (interrupted)" : "");
  row("accuracy", result.accuracy ? rounded(100 * *result.accuracy, 2) + " % of the test images" : "not evaluated");
  row("speed", rounded(result.samples_per_second, 0), " samples/s in training");
  row("time", rounded(result.seconds, 1), " s, evaluations included");
  row("metrics", result.metrics.string());
  row("weights", result.weights.string());
  std::cout.flush();
}

void write_json(const Arguments& arguments, const Result& result) {
  const nlohmann::ordered_json line = {
      {"model", arguments.model},
      {"epochs", result.epochs},
      {"batch_size", arguments.batch_size},
      {"lr", arguments.lr},
      {"precision", result.precision},
      {"seed", arguments.seed},
      {"threads", at::get_num_threads()},
      {"accuracy", result.accuracy ? nlohmann::ordered_json(*result.accuracy) : nullptr},
      {"samples_per_second", result.samples_per_second},
      {"seconds", result.seconds},
      {"interrupted", result.interrupted_by != 0},
      {"metrics", result.metrics.string()},
      {"weights", result.weights.string()}};
  std::ofstream file(arguments.json);
  file << line.dump() << '\n';
  file.close();
  if (!file) throw Error("--json: could not write ", arguments.json);
}

}  // namespace

int main(int argc, char** argv) {
  tune_process();

  Arguments arguments;
  CLI::App app{"Trains a network on Fashion-MNIST with libcomposer"};
  app.add_option("--model", arguments.model, "one of " + names_of_models())->capture_default_str();
  CLI::Option* epochs =
      app.add_option("--epochs", arguments.epochs, "passes over the 60,000 images")->capture_default_str();
  app.add_option("--batch-size", arguments.batch_size, "images a step")->capture_default_str();
  app.add_option("--lr", arguments.lr, "highest learning rate")->capture_default_str();
  app.add_option("--weight-decay", arguments.weight_decay, "of weights with more than one dimension")
      ->capture_default_str();
  app.add_option("--precision", arguments.precision, "fp32, amp_bf16, or auto: the faster of the two")
      ->capture_default_str();
  app.add_option("--seed", arguments.seed, "of weights, order and augmentation")->capture_default_str();
  app.add_option("--threads", arguments.threads, "0: as many as there are processors")->capture_default_str();
  app.add_option("--algorithm", arguments.algorithms,
                 "NAME or NAME.OPTION=VALUE, as often as you like: label_smoothing, mixup.alpha=0.2");
  app.add_option("--data", arguments.data, "folder of the idx files")->capture_default_str();
  app.add_option("--out", arguments.out, "folder for metrics and weights")->capture_default_str();
  app.add_option("--json", arguments.json, "also write the closing table to this file, as one line of JSON");
  app.add_option("--save-folder", arguments.save_folder,
                 "checkpoints go there; the same command started again goes on from the newest, whatever ended it");
  app.add_option("--save-interval", arguments.save_interval, "time between two checkpoints: 1ep, 100ba")
      ->capture_default_str();
  app.add_flag("--flip,!--no-flip", arguments.flip, "mirror half of the images");
  app.add_flag("--fast", arguments.fast, "ResNet-8 for 4 epochs: a weaker network in a quarter of the time");
  app.add_flag("--tune", arguments.tune,
               "choose the threads, and fp32 where --precision is slower, by timing a few steps first");
  app.add_flag("--find-lr", arguments.find_lr,
               "try 100 batches with a rising rate, plot the losses, and train nothing");
  app.add_flag("--quiet", arguments.quiet, "no progress bar");
  CLI11_PARSE(app, argc, argv);
  if (arguments.fast) {
    arguments.model = "resnet8";
    if (epochs->count() == 0) arguments.epochs = 4;
  }
  if (arguments.precision == "auto") {
    arguments.precision = "amp_bf16";
    arguments.tune = true;
  }
  try {
    if (!kModels.contains(arguments.model))
      throw ConfigError("--model: there is no ", arguments.model, "; there are: ", names_of_models());
    if (arguments.epochs < 1) throw ConfigError("--epochs: must be >= 1, got ", arguments.epochs);
    if (arguments.threads > 0) at::set_num_threads(arguments.threads);
    if (arguments.find_lr) {
      const int interrupted_by = find_lr(arguments);
      return interrupted_by ? 128 + interrupted_by : 0;
    }
    const Result result = train(arguments);
    print(arguments, result);
    if (!arguments.json.empty()) write_json(arguments, result);
    return result.interrupted_by ? 128 + result.interrupted_by : 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << describe(error) << '\n';
    return 1;
  }
}
