#pragma once
// The common part of train_fashion_mnist and recipes: training of a network on Fashion-MNIST, described by options of
// the command line.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "composer/trainer/trainer.h"

namespace CLI {
class App;
}

namespace composer::examples {

struct Job {
  std::string model = "resnet20";
  std::int64_t epochs = 6, batch_size = 128;
  std::string optimizer = "sgd";  // or muon
  double lr = 0.2, weight_decay = 5e-4;
  double warmup = 0.25;  // share of the run until the learning rate is highest; afterwards it decreases linearly to 0
  std::string precision = "auto";
  std::uint64_t seed = 17;
  int threads = 0;
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::vector<std::string> algorithms;
  bool fast = false, flip = true, tune = false;
  std::string recipe;
  std::string recipe_changes;  // names of options that differ from the recipe's: "epochs, lr"

  bool operator==(const Job&) const = default;
};

// A name for a list of options.
struct Recipe {
  std::string name, summary;
  std::vector<std::string> options;
};
const std::vector<Recipe>& recipes();
const Recipe& find_recipe(const std::string& name);  // throws ConfigError with the existing names

// Declares the options of a job. If an option is given twice, the last one is used.
void add_job_options(CLI::App& app, Job& job);

// Parses the words of a command line with the options of `app`, which write to `job` and elsewhere. Options of a recipe
// are applied before all others, wherever the recipe is named. Throws ConfigError and CLI::ParseError.
void parse(CLI::App& app, Job& job, std::vector<std::string> words);

// The options of a trainer without loggers, callbacks and checkpoints, which writes nothing. Throws ConfigError.
TrainerOptions trainer_options(const Job& job);

// For example "resnet20-fast-seed17".
std::string run_name_of(const Job& job);

}  // namespace composer::examples
