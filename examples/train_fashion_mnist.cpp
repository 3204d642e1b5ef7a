// Trains a network on Fashion-MNIST, displays the progress, and writes metrics and weights. scripts/train runs this
// program.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/on.h"
#include "composer/core/state.h"
#include "composer/formats/safetensors.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/loggers/terminal.h"
#include "composer/trainer/trainer.h"
#include "composer/util/tune_process.h"
#include "examples/fashion_mnist_job.h"

namespace {

using namespace composer;
using examples::Job;
using examples::run_name_of;
using examples::trainer_options;

struct Arguments {
  Job job;
  std::string out = "runs/{run_name}";
  std::string json;
  std::string save_folder, save_interval = "1ep";
  bool quiet = false, find_lr = false;
};

struct Result {
  std::optional<double> accuracy;  // of the last evaluation; unset: there was none
  double seconds = 0, samples_per_second = 0;
  std::int64_t epochs = 0;
  std::filesystem::path metrics, weights;
  int interrupted_by = 0;
  std::vector<std::string> tuning;
  std::string precision;  // precision of the training
  int threads = 0;        // number of threads at the end of the training
};

// Returns the signal that ended it; 0: none.
int find_lr(const Arguments& arguments) {
  constexpr int kWidest = 100;
  Trainer trainer(trainer_options(arguments.job));
  const LrCurve curve = trainer.find_lr();
  const int columns = loggers::Terminal::of(loggers::TextStream("stdout")).columns();
  std::cout << curve.plot({.width = std::clamp(columns, 32, kWidest)}) << std::flush;
  return trainer.interrupted_by();
}

Result train(const Arguments& arguments) {
  std::string folder = arguments.out;
  if (const auto at = folder.find("{run_name}"); at != std::string::npos)
    folder.replace(at, 10, run_name_of(arguments.job));
  Result result{.metrics = std::filesystem::path(folder) / "metrics.jsonl",
                .weights = std::filesystem::path(folder) / "weights.safetensors"};

  TrainerOptions options = trainer_options(arguments.job);
  options.callbacks.add(callbacks::SpeedMonitor());
  options.callbacks.add(callbacks::LRMonitor());
  options.callbacks.add(
      on(Event::FIT_END, [&result](const State&, Logger&) { result.threads = at::get_num_threads(); }));
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
  if (const Job& job = arguments.job; !job.recipe.empty())
    row("recipe", job.recipe, job.recipe_changes.empty() ? "" : ", but for " + job.recipe_changes);
  row("model", arguments.job.model, ", seed ", arguments.job.seed, ", ", result.precision, ", ", result.threads,
      result.threads == 1 ? " thread" : " threads");
  row("epochs", result.epochs, " of ", arguments.job.epochs, result.interrupted_by ? " (interrupted)" : "");
  row("accuracy", result.accuracy ? rounded(100 * *result.accuracy, 2) + " % of the test images" : "not evaluated");
  row("speed", rounded(result.samples_per_second, 0), " samples/s in training");
  row("time", rounded(result.seconds, 1), " s, evaluations included");
  row("metrics", result.metrics.string());
  row("weights", result.weights.string());
  std::cout.flush();
}

void write_json(const Arguments& arguments, const Result& result) {
  const nlohmann::ordered_json line = {
      {"model", arguments.job.model},
      {"recipe", arguments.job.recipe},
      {"recipe_changes", arguments.job.recipe_changes},
      {"epochs", result.epochs},
      {"batch_size", arguments.job.batch_size},
      {"lr", arguments.job.lr},
      {"precision", result.precision},
      {"seed", arguments.job.seed},
      {"threads", result.threads},
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

// Checks the path before the training, which would otherwise be for nothing.
void check_json(const std::string& path) {
  if (!path.empty() && !std::ofstream(path, std::ios::app)) throw Error("--json: cannot write ", path);
}

}  // namespace

int main(int argc, char** argv) {
  tune_process();

  Arguments arguments;
  CLI::App app{"Trains a network on Fashion-MNIST with libcomposer"};
  examples::add_job_options(app, arguments.job);
  app.add_option("--out", arguments.out, "folder for metrics and weights")->capture_default_str();
  app.add_option("--json", arguments.json, "also write the closing table to this file, as one line of JSON");
  app.add_option("--save-folder", arguments.save_folder,
                 "checkpoints go there; the same command started again goes on from the newest, whatever ended it");
  app.add_option("--save-interval", arguments.save_interval, "time between two checkpoints: 1ep, 100ba")
      ->capture_default_str();
  app.add_flag("--find-lr", arguments.find_lr,
               "try 100 batches with a rising rate, plot the losses, and train nothing");
  app.add_flag("--quiet", arguments.quiet, "no progress bar");
  try {
    examples::parse(app, arguments.job, {argv + 1, argv + argc});
    if (arguments.job.threads > 0) at::set_num_threads(arguments.job.threads);
    if (arguments.find_lr) {
      const int interrupted_by = find_lr(arguments);
      return interrupted_by ? 128 + interrupted_by : 0;
    }
    check_json(arguments.json);
    const Result result = train(arguments);
    print(arguments, result);
    if (!arguments.json.empty()) write_json(arguments, result);
    return result.interrupted_by ? 128 + result.interrupted_by : 0;
  } catch (const CLI::ParseError& error) {  // also thrown for --help
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    std::cerr << "error: " << describe(error) << '\n';
    return 1;
  }
}
