#include <map>
#include <string>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/state.h"
#include "composer/loggers/in_memory_logger.h"
#include "examples/fashion_mnist_job.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/idx_files.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::recipes_test {
namespace {

using examples::Job;
using Words = std::vector<std::string>;

Job job_of(const Words& words) {
  Job job;
  CLI::App app;
  examples::add_job_options(app, job);
  examples::parse(app, job, words);
  return job;
}

// Four images for training and for evaluation.
void write_images(const TemporaryFolder& folder) {
  const Bytes images = idx({4, 28, 28}, Bytes(4 * 28 * 28, '\7')), labels = idx({4}, {0, 9, 5, 1});
  for (const std::string part : {"train", "t10k"}) {
    write(folder / (part + "-images-idx3-ubyte"), images);
    write(folder / (part + "-labels-idx1-ubyte"), labels);
  }
}

// The hyperparameters that a run of one epoch logs.
std::map<std::string, LogValue, std::less<>> hyperparameters_of(Job job) {
  const TemporaryFolder folder;
  write_images(folder);
  job.data = folder.path().string();
  job.model = "resnet8", job.batch_size = 4, job.epochs = 1, job.precision = "fp32", job.tune = false;
  const auto logger = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = examples::trainer_options(job);
  options.loggers = {logger};
  Trainer(std::move(options)).fit();
  return logger->hyperparameters();
}

std::string text(const LogValue& value) { return std::get<std::string>(value); }

TEST_CASE("The learning rate has the name that one guesses, too") {
  CHECK(job_of({"--learning-rate", "0.03"}).lr == 0.03);
  CHECK(job_of({"--lr", "0.03"}) == job_of({"--learning-rate", "0.03"}));
}

TEST_CASE("A recipe is the job that its options describe") {
  for (const examples::Recipe& recipe : examples::recipes()) {
    Job job = job_of({"--recipe", recipe.name});
    CHECK(job.recipe == recipe.name);
    CHECK(job.recipe_changes.empty());
    CHECK(examples::run_name_of(job) == "resnet20-" + recipe.name + "-seed17");
    job.recipe.clear();
    CHECK(job == job_of(recipe.options));
    CHECK(job != job_of({}));
  }
}

TEST_CASE("An option that is given with a recipe has the last word, on either side of it, and is named as a change") {
  const std::string name = examples::recipes().front().name;
  for (const Words& words : {Words{"--lr", "0.7", "--recipe", name}, Words{"--recipe=" + name, "--lr=0.7"}}) {
    const Job job = job_of(words);
    CHECK(job.lr == 0.7);
    CHECK(job.recipe_changes == "lr");
  }
  CHECK(job_of({"--recipe", name, "--seed", "3", "--threads", "1"}).recipe_changes.empty());
  const Job small = job_of({"--fast", "--recipe", "best", "--algorithm", "cutout"});
  CHECK(small.recipe_changes == "model, epochs, algorithm");
  CHECK(small.epochs == 4);
  CHECK(job_of({"--fast", "--recipe", "fast"}).recipe_changes == "model");  // the epochs are the recipe's
}

TEST_CASE("Of an option given twice the last counts, and algorithms add up until none") {
  CHECK(job_of({"--epochs", "2", "--epochs", "3"}).epochs == 3);
  const auto algorithms = [](const Words& words) { return text(hyperparameters_of(job_of(words)).at("algorithms")); };
  CHECK(algorithms({"--algorithm", "cutout", "--algorithm", "none", "--algorithm", "label_smoothing"}) ==
        "LabelSmoothing");
  const auto logged = hyperparameters_of(
      job_of({"--algorithm", "cutout", "--algorithm", "label_smoothing", "--algorithm", "cutout.num_holes=2"}));
  CHECK(std::get<std::int64_t>(logged.at("CutOut/num_holes")) == 2);
  CHECK_FALSE(logged.contains("CutOut-2/num_holes"));
}

// The input of the first forward pass of training.
at::Tensor first_input_of(Job job) {
  const TemporaryFolder folder;
  write_images(folder);
  job.data = folder.path().string();
  job.model = "resnet8", job.batch_size = 4, job.epochs = 1, job.precision = "fp32", job.tune = false;
  at::Tensor input;
  TrainerOptions options = examples::trainer_options(job);
  options.callbacks.add(At([&](Event event, const State& state) {
    if (event == Event::BEFORE_FORWARD) input = state.batch.at("input").clone();
  }));
  Trainer(std::move(options)).fit();
  return input;
}

TEST_CASE("A job changes images by RandAugment and AugMix before it normalizes them") {
  const at::Tensor plain = first_input_of(job_of({}));
  CHECK(plain.min().item<double>() < -0.5);
  for (const std::string name : {"randaugment", "augmix"}) {
    CAPTURE(name);
    const Warnings warnings;
    const at::Tensor changed = first_input_of(job_of({"--algorithm", name}));
    CHECK_FALSE(warnings.say("values from 0 to 1"));
    CHECK(changed.strides() == plain.strides());
    CHECK(changed.min().item<double>() < -0.5);  // black, which is not cut off to 0
  }
  CHECK(
      error_of([] {
        first_input_of(job_of({"--algorithm=augmix", "--algorithm=selective_backprop"}));
      }) ==
      "--algorithm: selective_backprop needs normalized images, and randaugment and augmix need them before that; give "
      "one of these");
  // with no operation the images are those of a job without it
  CHECK(at::allclose(first_input_of(job_of({"--algorithm=randaugment", "--algorithm=randaugment.depth=0"})), plain));
}

TEST_CASE("An unknown recipe is an error with the recipes that there are") {
  const std::string names = listed(examples::recipes(), &examples::Recipe::name);
  CHECK(error_of([] { job_of({"--recipe", "slow"}); }) == "--recipe: there is no slow; there are: " + names);
  CHECK(error_of([] { job_of({"--optimizer", "sdg"}); }) == "--optimizer: there is no sdg; there are: muon, sgd");
  CHECK(error_of([] { job_of({"--warmup", "1.5"}); }) == "--warmup: must be in [0, 1), got 1.5");
}

TEST_CASE("A run logs its recipe and what was changed of it, and nothing of recipes without one") {
  for (const examples::Recipe& recipe : examples::recipes()) {
    const auto logged = hyperparameters_of(job_of({"--recipe", recipe.name, "--batch-size", "4"}));
    CHECK(text(logged.at("RecipeName/name")) == recipe.name);
    CHECK(text(logged.at("RecipeName/changed_options")) == "batch-size");
  }
  CHECK_FALSE(hyperparameters_of(job_of({})).contains("RecipeName/name"));
}

}  // namespace
}  // namespace composer::test::recipes_test
