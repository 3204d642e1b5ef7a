// Every algorithm that can be made by name, alone and with every other: 20 batches of a model that both change, and
// once more, killed after a random batch and resumed, which must end equal to the bit. The usual tests try some of the
// pairs; COMPOSER_PAIRS=1000 scripts/test "pair of algorithms" tries all, and lists those that are refused.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>

#include <doctest/doctest.h>

#include "composer/algorithms/registry.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/data/in_memory.h"
#include "composer/models/bert.h"
#include "composer/models/gpt.h"
#include "composer/models/resnet_cifar.h"
#include "composer/models/vit.h"
#include "composer/trainer/trainer.h"
#include "composer/util/random.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kBatches = 20, kSamples = 64, kBatchSize = 8;
constexpr std::int64_t kVocabulary = 11, kLength = 8;

// Of algorithms whose defaults do nothing to so small a model, or in so few batches.
Settings settings_of(const std::string& name) {
  static const std::map<std::string, Settings> all = {
      {"alibi", {{"max_sequence_length", "16"}, {"train_sequence_length_scaling", "0.5"}}},
      {"blurpool", {{"min_channels", "4"}}},
      {"ema", {{"half_life", "5ba"}}},
      {"factorize",
       {{"min_channels", "8"}, {"latent_channels", "0.5"}, {"min_features", "4"}, {"latent_features", "0.5"}}},
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

// What no ready model has, too.
std::shared_ptr<Model> plain_net() {
  const nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::ReLU(),
                           nn::MaxPool2d(2), nn::Conv2d(nn::Conv2dOptions(8, 8, 3).padding(1)),
                           nn::GroupNorm(nn::GroupNormOptions(2, 8)), nn::ReLU(), nn::AdaptiveAvgPool2d(2),
                           nn::Flatten(), nn::LayerNorm(nn::LayerNormOptions({32})), nn::Linear(32, 16), nn::ReLU(),
                           nn::Dropout(0.2), nn::Linear(16, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

std::shared_ptr<Model> small_gpt() {
  return models::gpt({.vocabulary = kVocabulary, .sequence_length = kLength, .width = 16, .depth = 2, .heads = 2});
}

struct Task {
  const char* name;
  std::shared_ptr<Model> (*model)();
  Batch (*data)();
  Precision precision = Precision::FP32;
};
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
};

using Names = std::vector<std::string>;

std::string text(const Names& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : " + ") + name;
  return all;
}

TrainerOptions options_of(const Task& task, const Names& names) {
  at::manual_seed(1);
  TrainerOptions options;
  options.model = task.model();
  options.train_dataloader = data::in_memory(task.data(), {.batch_size = kBatchSize});
  options.eval_dataloader = data::in_memory(task.data(), {.batch_size = kSamples / 2, .shuffle = false});
  options.eval_interval = "8ba";
  options.optimizer = optim::sgd({.lr = 0.02, .momentum = 0.9});
  options.max_duration = Time(kBatches, TimeUnit::BATCH);
  for (const std::string& name : names) algorithms::registry().find(name).add_to(options.algorithms, settings_of(name));
  options.precision = task.precision;
  options.run_name = "pairs";
  options.device = at::Device(at::kCPU);
  options.seed = 7;
  options.handle_signals = false;
  return options;
}

// What a resumed run must have in common with one that was not killed.
StateDict end_of(Trainer& trainer) {
  trainer.fit();
  StateDict all = trainer.state().run->snapshot(/*weights_only=*/false), end;
  for (const char* part : {"model", "optimizer", "algorithms", "rng", "required_algorithms"})
    if (const StateValue* value = all.find(part)) end[part] = *value;
  return end;
}

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

// Whether it says that what was asked for cannot be done.
bool is_refusal(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error) || dynamic_cast<const DataError*>(&error)) return true;
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    return is_refusal(cause);
  }
  return false;
}

// The tasks whose model and batches the algorithm changes.
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

std::uint64_t key_of(const Names& names) {
  std::uint64_t key = 1;
  for (const std::string& name : names)
    for (const char letter : name) key = hash64(key, static_cast<std::uint64_t>(letter));
  return key;
}

// Checks what the head of this file says. Returns why the first batch refuses them together; empty: it does not.
std::string check_together(const Task& task, const Names& names) {
  CAPTURE(text(names));
  CAPTURE(std::string(task.name));
  const auto cut = static_cast<std::int64_t>(1 + RandomStream(key_of(names)).below(kBatches - 1));
  CAPTURE(cut);
  const Warnings warnings;
  StateDict whole, resumed;
  std::int64_t trained = 0;
  try {
    TrainerOptions options = options_of(task, names);
    options.callbacks.add(At([&](Event event, const State&) { trained += event == Event::BATCH_END ? 1 : 0; }));
    Trainer trainer(std::move(options));
    whole = end_of(trainer);
  } catch (const std::exception& error) {
    CAPTURE(describe(error));
    CHECK(is_refusal(error));
    CHECK(trained == 0);
    return describe(error);
  }
  CHECK(trained == kBatches);

  struct Cut : std::exception {};
  const Folder folder;
  const auto saving = [&] {
    TrainerOptions options = options_of(task, names);
    options.save_folder = folder / "ck";
    options.save_interval = Time(cut, TimeUnit::BATCH);
    return options;
  };
  try {
    {
      TrainerOptions options = saving();
      options.callbacks.add(At([=](Event event, const State& state) {
        if (event == Event::BATCH_START && state.timestamp.batch == cut) throw Cut();
      }));
      Trainer killed(std::move(options));
      CHECK_THROWS(killed.fit());
    }
    Trainer next(saving());
    CHECK(next.state().timestamp.batch == cut);
    resumed = end_of(next);
  } catch (const std::exception& error) {
    CAPTURE(describe(error));
    FAIL_CHECK("the run that is cut off or resumed fails, and the other does not");
    return {};
  }
  Names differences;
  find_differences(whole, resumed, "", differences);
  CAPTURE(differences.size());
  CHECK((differences.empty() ? "equal" : differences.front()) == "equal");
  return {};
}

TEST_CASE("Every algorithm changes some model, and is equal to the bit when it is killed and resumed") {
  for (const std::string& name : algorithms::registry().names()) {
    CAPTURE(name);
    const Task* task = task_of({name});
    REQUIRE(task);
    CHECK(check_together(*task, {name}).empty());
  }
}

TEST_CASE("A pair of algorithms that is not refused at once is equal to the bit when it is killed and resumed") {
  const char* given = std::getenv("COMPOSER_PAIRS");
  const auto names = algorithms::registry().names();
  std::vector<Names> pairs;
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      pairs.push_back(key_of({names[i], names[j]}) % 2 == 0 ? Names{names[i], names[j]} : Names{names[j], names[i]});
  std::ranges::sort(pairs, {}, key_of);  // the same unrelated ones each time
  if (const std::size_t wanted = given ? std::stoul(given) : 12; wanted < pairs.size()) pairs.resize(wanted);

  std::size_t without_task = 0, refused = 0;
  for (const Names& pair : pairs) {
    const Task* task = task_of(pair);
    if (!task) {
      ++without_task;
      if (given) MESSAGE("no model here has use for both: " << text(pair));
      continue;
    }
    const std::string why = check_together(*task, pair);
    if (why.empty()) continue;
    ++refused;
    if (given) MESSAGE("refused: " << text(pair) << ": " << why);
  }
  if (given)
    MESSAGE(pairs.size() << " pairs: " << without_task << " without a model for both, " << refused << " refused");
}

}  // namespace
}  // namespace composer::test
