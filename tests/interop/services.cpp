// Writes runs for tests/interop/wandb_runs.py and mlflow_runs.py:
//   composer_service_interop wandb FOLDER
//   composer_service_interop mlflow URI       a folder, or the address of a server
// Prints the id of the run.
#include <cmath>
#include <exception>
#include <fstream>
#include <iostream>
#include <limits>
#include <string>

#include <ATen/ATen.h>

#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/wandb_logger.h"

namespace {

using namespace composer;

constexpr std::int64_t kSteps = 2000;

// A fit whose last evaluation throws.
template <class Destination>
void write(Destination& destination, const std::string& file) {
  State state;
  state.run_name = "it's C++ ä";
  Logger logger(state, {&destination});
  destination.run_event(Event::INIT, state, logger);
  std::cout << destination.run_id() << std::endl;
  logger.log_hyperparameters({{"lr", 0.5}, {"bn", true}, {"name", std::string("adam \"x\"\n")}});
  destination.run_event(Event::FIT_START, state, logger);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    state.timestamp = state.timestamp.to_next_batch(1, 0, {});
    logger.log_metrics({{"loss/train", 1.0 / static_cast<double>(step + 1)}, {"count", at::full({}, step)}}, step);
  }
  logger.log_metrics({{"nan", std::nan("")}, {"inf", -std::numeric_limits<double>::infinity()}}, kSteps);
  logger.log_metrics({{"big", std::string(100'000, 'x')}}, kSteps);
  logger.log_metrics({{"a#b//c", 1.5}}, kSteps);
  logger.log_images("one", {.images = at::rand({3, 8, 12}),
                            .masks = {{"truth", at::ones({8, 12}, at::kLong)}},
                            .class_labels = {{0, "sky"}, {1, "sea"}}});
  logger.log_images("eval/pictures", {.images = at::rand({3, 3, 8, 12})});
  logger.log_table("table", {{"a", "b"}, {{1.5, std::string("x")}}});
  logger.log_histogram("weights", LogHistogram::of(at::arange(1000), 30));
  std::ofstream(file) << "hello";
  logger.upload_file({.path = file, .name = "notes/hello ä.txt"});
  destination.run_event(Event::FIT_END, state, logger);
  destination.run_event(Event::EVAL_BEFORE_ALL, state, logger);
  destination.flush();
  destination.close(state, logger);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc == 4 ? argv[1] : "", where = argc == 4 ? argv[2] : "";
  try {
    if (what == "wandb") {
      loggers::WandBLogger wandb({.project = "p",
                                  .group = "g",
                                  .tags = {"a", "b"},
                                  .job_type = "train",
                                  .folder = where,
                                  .log_artifacts = true});
      write(wandb, argv[3]);
    } else if (what == "mlflow") {
      loggers::MLFlowLogger mlflow(
          {.experiment_name = "from C++", .tags = {{"k", "v"}}, .tracking_uri = where, .log_artifacts = true});
      write(mlflow, argv[3]);
    } else {
      std::cerr << "usage: composer_service_interop wandb|mlflow FOLDER_OR_URL TEMPORARY_FILE\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
