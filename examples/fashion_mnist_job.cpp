#include "examples/fashion_mnist_job.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>

#include <CLI/CLI.hpp>

#include "composer/algorithms/registry.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/data/fashion_mnist.h"
#include "composer/data/in_memory.h"
#include "composer/models/mlp.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet_cifar.h"
#include "composer/optim/muon.h"
#include "composer/optim/optimizer.h"
#include "composer/optim/schedulers.h"

namespace composer::examples {
namespace {

using MakeModel = std::shared_ptr<Model> (*)();
const std::map<std::string, MakeModel> kModels = {
    {"resnet20", [] { return std::shared_ptr<Model>(models::resnet_cifar({.depth = 20, .in_channels = 1})); }},
    {"resnet8", [] { return std::shared_ptr<Model>(models::resnet_cifar({.depth = 8, .in_channels = 1})); }},
    {"cnn", [] { return std::shared_ptr<Model>(models::mnist_cnn()); }},
    {"mlp", [] { return std::shared_ptr<Model>(models::mlp()); }},
};
const std::vector<std::string> kOptimizers = {"muon", "sgd"};

std::string comma_separated(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string names_of_models() {
  std::vector<std::string> names;
  names.reserve(kModels.size());
  for (const auto& [name, make] : kModels) names.push_back(name);
  return comma_separated(names);
}

std::string names_of_recipes() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.push_back(recipe.name);
  return comma_separated(names);
}

// Parses words such as "mixup" and "mixup.alpha=0.4": the options of an algorithm follow its name. "none" drops the
// algorithms before it.
Algorithms algorithms_of(const std::vector<std::string>& given) {
  std::vector<std::pair<std::string, Settings>> wanted;
  for (const std::string& text : given) {
    if (text == "none") {
      wanted.clear();
      continue;
    }
    const auto dot = text.find('.'), equals = text.find('=');
    const std::string name = text.substr(0, dot);
    auto at = std::find_if(wanted.begin(), wanted.end(), [&](const auto& one) { return one.first == name; });
    if (at == wanted.end()) at = wanted.emplace(wanted.end(), name, Settings());
    if (dot == std::string::npos) continue;
    if (equals == std::string::npos || equals < dot)
      throw ConfigError("--algorithm: expected NAME or NAME.OPTION=VALUE, got ", text);
    at->second[text.substr(dot + 1, equals - dot - 1)] = text.substr(equals + 1);
  }
  Algorithms algorithms;
  for (const auto& [name, settings] : wanted) algorithms::registry().find(name).add_to(algorithms, settings);
  return algorithms;
}

const data::Normalize kNormalize{.mean = {0.2860}, .stddev = {0.3530}};

bool contains(const Algorithms& algorithms, const std::string& name) {
  const auto& list = algorithms.list();
  return std::any_of(list.begin(), list.end(), [&](const auto& plugin) { return plugin.name == name; });
}

// Whether an algorithm needs bytes: RandAugment and AugMix change images before they are normalized.
bool needs_bytes(const Algorithms& algorithms) {
  const bool needs = contains(algorithms, "RandAugment") || contains(algorithms, "AugMix");
  if (needs && contains(algorithms, "SelectiveBackprop"))
    throw ConfigError(
        "--algorithm: selective_backprop needs normalized images, and randaugment and augmix need them "
        "before that; give one of these");
  return needs;
}

// Normalizes as the loader does.
at::Tensor normalized(const at::Tensor& bytes, at::MemoryFormat format) {
  return at::empty(bytes.sizes(), bytes.options().dtype(at::kFloat).memory_format(format))
      .copy_(bytes)
      .div_(255)
      .sub_(kNormalize.mean[0])
      .div_(kNormalize.stddev[0]);
}

DataSpec training_data(Batch images, const Job& job, bool convolutions, bool as_bytes) {
  data::InMemoryOptions options{.batch_size = job.batch_size,
                                .seed = job.seed,
                                .drop_last = true,
                                .flip = job.flip,
                                .channels_last = convolutions};
  if (!as_bytes) options.normalize = kNormalize;
  DataSpec spec{.dataloader = data::in_memory(std::move(images), std::move(options))};
  if (as_bytes)
    spec.microbatch_transforms = [format = convolutions ? at::MemoryFormat::ChannelsLast
                                                        : at::MemoryFormat::Contiguous](Batch& batch) {
      batch.set("input", normalized(batch.at("input"), format));
    };
  return spec;
}

// Convolutions are faster with channels as the innermost dimension.
void to_channels_last(Model& model) {
  for (at::Tensor& parameter : model.parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
}

// The name of the weight of the last layer, which Muon leaves to AdamW.
std::string last_weight(const Model& model) {
  std::string last;
  for (const auto& item : model.named_parameters())
    if (item.value().dim() == 2) last = item.key();
  return last;
}

optim::AnyOptimizer optimizer_of(const Job& job, const Model& model) {
  if (job.optimizer == "muon")
    return optim::muon({.lr = job.lr,
                        .weight_decay = job.weight_decay,
                        .adamw_for = {last_weight(model)},
                        .decay_matrices_only = true});
  return optim::sgd(
      {.lr = job.lr, .momentum = 0.9, .weight_decay = job.weight_decay, .nesterov = true, .decay_matrices_only = true});
}

// Names of the options that differ between two jobs.
std::string differences(const Job& a, const Job& b) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, const auto& value) {
    if (a.*value != b.*value) names.emplace_back(name);
  };
  compare("model", &Job::model);
  compare("epochs", &Job::epochs);
  compare("batch-size", &Job::batch_size);
  compare("optimizer", &Job::optimizer);
  compare("lr", &Job::lr);
  compare("weight-decay", &Job::weight_decay);
  compare("warmup", &Job::warmup);
  compare("algorithm", &Job::algorithms);
  compare("flip", &Job::flip);
  return comma_separated(names);
}

// Records the name of the recipe in the hyperparameters of a run.
class RecipeName final : public Callback {
 public:
  explicit RecipeName(const Job& job) : name_(job.recipe), changes_(job.recipe_changes) {}
  StateDict local_hparams() const override {
    StateDict options;
    options["name"] = name_;
    options["changed_options"] = changes_;
    return options;
  }

 private:
  std::string name_, changes_;
};

void apply_fast(CLI::App& app, Job& job) {
  if (!job.fast) return;
  job.model = "resnet8";
  if (app.count("--epochs") == 0) job.epochs = 4;
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all = {
      {"fast",
       "Muon, label smoothing, and 4 epochs of which the first are on small images",
       {"--epochs=4", "--optimizer=muon", "--lr=0.04", "--weight-decay=0.05", "--algorithm=label_smoothing",
        "--algorithm=label_smoothing.smoothing=0.05", "--algorithm=progressive_resizing",
        "--algorithm=progressive_resizing.delay_fraction=0.4",
        "--algorithm=progressive_resizing.finetune_fraction=0.3"}},
      {"best",
       "Muon and label smoothing",
       {"--optimizer=muon", "--lr=0.04", "--weight-decay=0.05", "--algorithm=label_smoothing",
        "--algorithm=label_smoothing.smoothing=0.05"}},
  };
  return all;
}

const Recipe& find_recipe(const std::string& name) {
  for (const Recipe& recipe : recipes())
    if (recipe.name == name) return recipe;
  throw ConfigError("--recipe: there is no ", name, "; there are: ", names_of_recipes());
}

void add_job_options(CLI::App& app, Job& job) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--model", job.model, "one of " + names_of_models())->capture_default_str();
  app.add_option("--epochs", job.epochs, "passes over the 60,000 images")->capture_default_str();
  app.add_option("--batch-size", job.batch_size, "images a step")->capture_default_str();
  app.add_option("--optimizer", job.optimizer, "one of " + comma_separated(kOptimizers))->capture_default_str();
  app.add_option("--lr,--learning-rate", job.lr, "highest learning rate")->capture_default_str();
  app.add_option("--warmup", job.warmup, "share of the run until the learning rate is highest; it then falls to 0")
      ->capture_default_str();
  app.add_option("--weight-decay", job.weight_decay, "of weights with more than one dimension")->capture_default_str();
  app.add_option("--precision", job.precision, "fp32, amp_bf16, or auto: the faster of the two")->capture_default_str();
  app.add_option("--seed", job.seed, "of weights, order and augmentation")->capture_default_str();
  app.add_option("--threads", job.threads, "0: as many as there are processors")->capture_default_str();
  app.add_option("--algorithm", job.algorithms,
                 "NAME or NAME.OPTION=VALUE, as often as you like: label_smoothing, mixup.alpha=0.2; none: without "
                 "those before it")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  std::string summaries;
  for (const Recipe& recipe : recipes()) {
    summaries += (summaries.empty() ? "" : "; ") + recipe.name + ": " + recipe.summary + ", as";
    for (const std::string& option : recipe.options) summaries += " " + option;
  }
  app.add_option("--recipe", job.recipe, "options with a name; others that you give count more. " + summaries);
  app.add_option("--data", job.data, "folder of the idx files")->capture_default_str();
  app.add_flag("--flip,!--no-flip", job.flip, "mirror half of the images");
  app.add_flag("--fast", job.fast, "ResNet-8 for 4 epochs: a weaker network in a quarter of the time");
  app.add_flag("--tune", job.tune,
               "choose the threads, and fp32 where --precision is slower, by timing a few steps first");
}

void parse(CLI::App& app, Job& job, std::vector<std::string> words) {
  const auto read = [&app](std::vector<std::string> line) {
    std::reverse(line.begin(), line.end());  // the order that CLI11 expects
    app.parse(std::move(line));
  };
  const Job defaults = job;
  read(words);
  if (!job.recipe.empty()) {
    const Recipe& recipe = find_recipe(job.recipe);
    words.insert(words.begin(), recipe.options.begin(), recipe.options.end());
    job = defaults;
    read(words);
    apply_fast(app, job);
    Job unchanged;
    CLI::App alone;
    add_job_options(alone, unchanged);
    std::vector<std::string> options(recipe.options.rbegin(), recipe.options.rend());
    alone.parse(std::move(options));
    job.recipe_changes = differences(job, unchanged);
  } else {
    apply_fast(app, job);
  }
  if (job.precision == "auto") {
    job.precision = "amp_bf16";
    job.tune = true;
  }
  if (!kModels.contains(job.model))
    throw ConfigError("--model: there is no ", job.model, "; there are: ", names_of_models());
  if (std::find(kOptimizers.begin(), kOptimizers.end(), job.optimizer) == kOptimizers.end())
    throw ConfigError("--optimizer: there is no ", job.optimizer, "; there are: ", comma_separated(kOptimizers));
  if (job.batch_size < 1) throw ConfigError("--batch-size: must be >= 1, got ", job.batch_size);
  if (job.epochs < 1) throw ConfigError("--epochs: must be >= 1, got ", job.epochs);
  if (!(job.warmup >= 0 && job.warmup < 1)) throw ConfigError("--warmup: must be in [0, 1), got ", job.warmup);
}

std::string run_name_of(const Job& job) {
  return job.model + (job.recipe.empty() ? "" : "-" + job.recipe) + "-seed" + std::to_string(job.seed);
}

TrainerOptions trainer_options(const Job& job) {
  const data::FashionMnist images(job.data);
  at::manual_seed(job.seed);  // for the initial weights
  const std::shared_ptr<Model> model = kModels.at(job.model)();
  to_channels_last(*model);
  const bool convolutions = job.model != "mlp";
  // For algorithms that depend on the finished share of the run: with a duration in batches, the share changes after
  // each batch; in epochs, after each epoch.
  const std::int64_t batches = images.train["input"].size(0) / job.batch_size;
  const Time duration =
      job.algorithms.empty() ? Time(job.epochs, TimeUnit::EPOCH) : Time(job.epochs * batches, TimeUnit::BATCH);
  const Algorithms algorithms = algorithms_of(job.algorithms);
  TrainerOptions options{
      .model = model,
      .train_dataloader = training_data(images.train, job, convolutions, needs_bytes(algorithms)),
      .eval_dataloader = data::in_memory(
          images.test, {.batch_size = 500, .shuffle = false, .normalize = kNormalize, .channels_last = convolutions}),
      .optimizer = optimizer_of(job, *model),
      .schedulers = {job.warmup > 0
                         ? optim::linear_with_warmup({.t_warmup = Time::from(job.warmup, TimeUnit::DURATION)})
                         : optim::linear()},
      .max_duration = duration,
      .algorithms = algorithms,
      .run_name = run_name_of(job),
      .precision = parse_precision(job.precision),
      .seed = job.seed,
      .tune = job.tune,
  };
  if (!job.recipe.empty()) options.callbacks.add(RecipeName(job));
  return options;
}

}  // namespace composer::examples
