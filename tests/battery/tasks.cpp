#include "tests/battery/tasks.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>

#include "composer/algorithms/registry.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/data/in_memory.h"
#include "composer/models/bert.h"
#include "composer/models/classifier.h"
#include "composer/models/gpt.h"
#include "composer/models/resnet_cifar.h"
#include "composer/models/vit.h"
#include "composer/util/random.h"
#include "tests/support/device.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::test {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kSamples = 64;
constexpr std::int64_t kVocabulary = 11, kLength = 8;

at::Tensor noise(std::int64_t count) { return at::sin(at::arange(count, at::kDouble).square() * 1.7).add_(1).div_(2); }

Batch images() {
  return {{"input", noise(kSamples * 3 * 64).to(at::kFloat).view({kSamples, 3, 8, 8})},
          {"target", at::arange(kSamples).remainder(3)}};
}
at::Tensor tokens() {
  return noise(kSamples * (kLength + 1)).mul_(kVocabulary - 1e-6).to(at::kLong).view({kSamples, kLength + 1});
}
Batch texts() {
  return {{"input_ids", tokens().slice(1, 0, kLength).contiguous()}, {"target", at::arange(kSamples).remainder(3)}};
}
Batch next_tokens() {
  const at::Tensor all = tokens();
  return {{"input_ids", all.slice(1, 0, kLength).contiguous()}, {"target", all.slice(1, 1).contiguous()}};
}

// AdaptiveAvgPool2d(2), of which libtorch has no deterministic gradient on a GPU.
at::Tensor two_by_two(const at::Tensor& images) {
  const auto half = [](const at::Tensor& x, std::int64_t dim, std::int64_t i) {
    const std::int64_t size = x.size(dim), begin = i * size / 2, end = ((i + 1) * size + 1) / 2;
    return x.narrow(dim, begin, end - begin);
  };
  std::vector<at::Tensor> cells;
  for (std::int64_t i = 0; i < 4; ++i) cells.push_back(half(half(images, 2, i / 2), 3, i % 2).mean({2, 3}));
  return at::stack(cells, -1);
}

// What no ready model has, too.
std::shared_ptr<Model> plain_net() {
  const nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::ReLU(),
                           nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)),
                           nn::GroupNorm(nn::GroupNormOptions(2, 8)), nn::ReLU(), nn::Functional(two_by_two),
                           nn::Flatten(), nn::LayerNorm(nn::LayerNormOptions({32})), nn::Linear(32, 16), nn::ReLU(),
                           nn::Dropout(0.2), nn::Linear(16, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

// Its batches may be divided in any way.
std::shared_ptr<Model> net_without_batch_norms() {
  const nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
                           nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)), nn::GroupNorm(nn::GroupNormOptions(2, 8)),
                           nn::ReLU(), nn::Functional(two_by_two), nn::Flatten(),
                           nn::LayerNorm(nn::LayerNormOptions({32})), nn::Linear(32, 16), nn::ReLU(),
                           nn::Linear(16, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

std::shared_ptr<Model> small_gpt() {
  return models::gpt({.vocabulary = kVocabulary, .sequence_length = kLength, .width = 16, .depth = 2, .heads = 2});
}

constexpr Task kTasks[] = {
    {"ResNet", [] { return std::shared_ptr<Model>(models::resnet_cifar({.depth = 8, .num_classes = 3})); }, images},
    {"GPT", small_gpt, next_tokens},
    {"BERT",
     [] {
       return std::shared_ptr<Model>(models::bert({.num_classes = 3,
                                                   .vocabulary = kVocabulary,
                                                   .sequence_length = kLength,
                                                   .width = 16,
                                                   .depth = 2,
                                                   .heads = 2}));
     },
     texts},
    {"ViT",
     [] {
       return std::shared_ptr<Model>(
           models::vit({.image_size = 8, .num_classes = 3, .width = 16, .depth = 2, .heads = 2, .dropout = 0.1}));
     },
     images},
    {"plain net", plain_net, images},
    {"plain net in bf16", plain_net, images, Precision::AMP_BF16},
    {"GPT in bf16", small_gpt, next_tokens, Precision::AMP_BF16},
    {"net without batch norms", net_without_batch_norms, images},
};

bool is_equal(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined() || a.equal(b)) return true;
  return a.sizes() == b.sizes() && a.is_floating_point() && at::allclose(a, b, 0, 0, /*equal_nan=*/true);
}

void find_differences(const StateDict& a, const StateDict& b, const std::string& path, Names& found) {
  if (a.size() != b.size()) found.push_back(path);
  for (const auto& [name, value] : a.entries()) {
    const std::string here = join(path, '/', name);
    const StateValue* other = b.find(name);
    if (!other || other->index() != value.index()) {
      found.push_back(here);
    } else if (const auto* dict = std::get_if<StateDict>(&value)) {
      find_differences(*dict, std::get<StateDict>(*other), here, found);
    } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      if (!is_equal(*tensor, std::get<at::Tensor>(*other))) found.push_back(here);
    } else {
      if (std::get_if<double>(&value)        ? std::get<double>(value) != std::get<double>(*other)
          : std::get_if<bool>(&value)        ? std::get<bool>(value) != std::get<bool>(*other)
          : std::get_if<std::string>(&value) ? std::get<std::string>(value) != std::get<std::string>(*other)
                                             : std::get<std::int64_t>(value) != std::get<std::int64_t>(*other))
        found.push_back(here);
    }
  }
}

}  // namespace

std::span<const Task> tasks() { return kTasks; }

Settings task_settings(const std::string& name) {
  static const std::map<std::string, Settings> all = {
      {"alibi", {{"max_sequence_length", "16"}, {"train_sequence_length_scaling", "0.5"}}},
      {"blurpool", {{"min_channels", "4"}}},
      {"ema", {{"half_life", "5ba"}}},
      {"factorize",
       {{"min_channels", "8"}, {"latent_channels", "0.5"}, {"min_features", "4"}, {"latent_features", "0.5"}}},
      {"freeze_until", {{"parameters", "*.weight"}, {"until", "5ba"}}},
      {"ghost_batchnorm", {{"ghost_batch_size", "4"}}},
      {"gyro_dropout", {{"sigma", "8"}, {"tau", "4"}}},
      {"layer_freezing", {{"freeze_start", "0.2"}}},
      {"sam", {{"interval", "2"}}},
      {"selective_backprop", {{"start", "0"}}},
      {"seq_length_warmup",
       {{"duration", "0.7"}, {"min_seq_length", "2"}, {"max_seq_length", "8"}, {"step_size", "2"}}},
      {"squeeze_excite", {{"min_channels", "8"}, {"latent_channels", "4"}}},
      {"stochastic_depth", {{"drop_rate", "0.5"}}},
      {"swa", {{"swa_start", "0.3dur"}, {"swa_end", "0.8dur"}, {"update_interval", "3ba"}}},
  };
  Settings settings;
  for (const OptionInfo& option : algorithms::registry().find(name).options)
    if (option.example) settings[option.name] = *option.example;
  if (const auto found = all.find(name); found != all.end())
    for (const auto& [option, text] : found->second) settings[option] = text;
  return settings;
}

TrainerOptions options_of(const Task& task, const Names& names) {
  at::manual_seed(1);
  TrainerOptions options;
  options.model = task.model();
  options.train_dataloader = data::in_memory(task.data(), {.batch_size = kTaskBatchSize});
  options.eval_dataloader = data::in_memory(task.data(), {.batch_size = kSamples / 2, .shuffle = false});
  options.eval_interval = "8ba";
  options.optimizer = optim::sgd({.lr = 0.02, .momentum = 0.9});
  options.max_duration = Time(kTaskBatches, TimeUnit::BATCH);
  for (const std::string& name : names)
    algorithms::registry().find(name).add_to(options.algorithms, task_settings(name));
  options.precision = task.precision;
  options.run_name = "pairs";
  options.device = device_of_tests();
  options.deterministic_mode = !options.device->is_cpu();  // the fastest kernels of a GPU add up in any order
  options.seed = 7;
  options.handle_signals = false;
  return options;
}

StateDict end_of(Trainer& trainer) {
  trainer.fit();
  StateDict all = trainer.state().run->snapshot(/*weights_only=*/false), end;
  for (const char* part : {"model", "optimizer", "algorithms", "rng", "required_algorithms"})
    if (const StateValue* value = all.find(part)) end[part] = *value;
  return end;
}

bool is_refusal(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error) || dynamic_cast<const DataError*>(&error)) return true;
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    return is_refusal(cause);
  }
  return false;
}

const std::vector<const Task*>& tasks_of(const std::string& name) {
  static std::map<std::string, std::vector<const Task*>> known;
  const auto [found, is_new] = known.try_emplace(name);
  if (!is_new) return found->second;
  for (const Task& task : kTasks) try {
      const Warnings warnings;
      Trainer trainer(options_of(task, {name}));
      trainer.fit("2ba");
      if (!warnings.say("no module was replaced") && !warnings.say("has no effect")) found->second.push_back(&task);
    } catch (const std::exception& error) {
      CAPTURE(name);
      CAPTURE(describe(error));
      CHECK(is_refusal(error));
    }
  return found->second;
}

const Task* task_of(const Names& names) {
  for (const Task& task : kTasks) {
    const auto is_it = [&](const std::string& name) { return std::ranges::count(tasks_of(name), &task) > 0; };
    if (std::ranges::all_of(names, is_it)) return &task;
  }
  return nullptr;
}

Names differences(const StateDict& a, const StateDict& b) {
  Names found;
  find_differences(a, b, "", found);
  return found;
}

std::uint64_t key_of(const Names& names) {
  std::uint64_t key = 1;
  for (const std::string& name : names)
    for (const char letter : name) key = hash64(key, static_cast<std::uint64_t>(letter));
  return key;
}

}  // namespace composer::test
