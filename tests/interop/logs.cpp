// Writes logs for tests/interop/tensorboard_files.py:
//   composer_log_interop FOLDER      FOLDER/new by default, FOLDER/simple with simple_values
#include <cmath>
#include <exception>
#include <filesystem>
#include <iostream>

#include <ATen/ATen.h>

#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/loggers/tensorboard_logger.h"

namespace {

using namespace composer;

void write(const std::filesystem::path& folder, bool simple_values) {
  State state;
  state.run_name = "run";
  loggers::TensorBoardLogger board({.folder = folder.string(), .simple_values = simple_values});
  Logger logger(state, {&board});
  board.init(state, logger);
  logger.log_hyperparameters({{"lr", 0.5}, {"bn", true}, {"optimizer", std::string("adam")}});
  board.fit_start(state, logger);
  for (std::int64_t step = 0; step < 20; ++step) {
    state.timestamp = state.timestamp.to_next_batch(1, 0, {});
    logger.log_metrics({{"loss/train", 1.0 / static_cast<double>(step + 1)}, {"count", at::full({}, step)}}, step);
  }
  logger.log_metrics({{"odd", std::nan("")}}, 1);
  logger.log_metrics({{"note", std::string("**bold** ä")}}, 1);
  logger.log_table("table", {{"a", "b"}, {{1.5, std::string("x|y")}}}, 2);
  logger.log_histogram("weights", LogHistogram::of(at::arange(1000), 30), 3);
  logger.log_images("pictures", {.images = at::rand({3, 3, 8, 12})}, 4);
  board.fit_end(state, logger);
  board.close(state, logger);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: composer_log_interop FOLDER\n";
    return 2;
  }
  try {
    write(std::filesystem::path(argv[1]) / "new", false);
    write(std::filesystem::path(argv[1]) / "simple", true);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
