// Every plug-in that can be made by name, on a GPU. One that fails does not hide the others.
#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

#include <ATen/Parallel.h>

#include "composer/algorithms/registry.h"
#include "composer/callbacks/registry.h"
#include "composer/core/error.h"
#include "composer/loggers/console_logger.h"
#include "composer/loggers/registry.h"
#include "tests/battery/tasks.h"
#include "tests/gpu/gpu.h"
#include "tests/support/quiet.h"
#include "tests/support/sandbox.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::gpu_plugins_test {
namespace {

template <class List>
Settings examples(const Entry<List>& entry) {
  Settings settings;
  for (const OptionInfo& option : entry.options)
    if (option.example) settings[option.name] = *option.example;
  return settings;
}

// Runs f where files go nowhere, and says what it failed with.
template <class F>
void attempt(const std::string& name, const F& f) {
  std::string failed;
  {
    const Sandbox sandbox;
    const Quiet quiet;
    const Warnings warnings;
    try {
      f();
    } catch (const std::exception& error) {
      failed = describe(error);
    }
  }
  CAPTURE(name);
  CHECK(failed == "");
}

TrainerOptions tiny_options_on_gpu() {
  TrainerOptions options = tiny_options();
  options.model = tiny_model(/*train_metrics=*/true);
  options.eval_dataloader = tiny_loader(6, 4);
  options.max_duration = "2ep";
  options.device = kGpu;
  return options;
}

TEST_CASE("Every callback goes with two fits, an evaluation and a prediction on a GPU" * on_gpu()) {
  for (const std::string& name : callbacks::registry().names())
    attempt(name, [&] {
      TrainerOptions options = tiny_options_on_gpu();
      const auto& entry = callbacks::registry().find(name);
      entry.add_to(options.callbacks, examples(entry));
      Trainer trainer(std::move(options));
      trainer.fit();
      trainer.fit("1ep");
      trainer.eval();
      trainer.predict(tiny_loader(6, 4));
      trainer.close();
    });
}

TEST_CASE("Every logger goes with two fits and an evaluation on a GPU" * on_gpu()) {
  for (const std::string& name : loggers::registry().names())
    attempt(name, [&] {
      TrainerOptions options = tiny_options_on_gpu();
      const auto& entry = loggers::registry().find(name);
      entry.add_to(options.loggers, examples(entry));
      Trainer trainer(std::move(options));
      trainer.fit();
      trainer.fit("1ep");
      trainer.eval();
      trainer.close();
    });
}

// Without the digits, which may differ in the last places.
std::string printed_on(at::Device device, Time interval) {
  std::ostringstream out;
  TrainerOptions options = tiny_options_on_gpu();
  options.device = device;
  options.loggers = {loggers::ConsoleLogger({.log_interval = interval, .stream = out})};
  Trainer trainer(std::move(options));
  trainer.fit();
  trainer.eval();
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string text = out.str();
  text.erase(0, text.find("[epoch"));  // the hyperparameters name the device
  std::erase_if(text, is_digit);
  return text;
}

TEST_CASE("ConsoleLogger prints on a GPU what it prints on the CPU, in the same order" * on_gpu()) {
  for (const Time interval : {Time("1ba"), Time("2ba"), Time("1ep")})
    CHECK(printed_on(kGpu, interval) == printed_on(kCpu, interval));
}

// Those that draw no random numbers, and the tasks without dropout: a GPU draws other numbers than a CPU.
constexpr const char* kWithoutChance[] = {"alibi",
                                          "blurpool",
                                          "channels_last",
                                          "ema",
                                          "ghost_batchnorm",
                                          "gradient_clipping",
                                          "label_smoothing",
                                          "layer_freezing",
                                          "progressive_resizing",
                                          "sam",
                                          "seq_length_warmup",
                                          "swa",
                                          "weight_standardization"};
constexpr const char* kTasksWithoutChance[] = {"ResNet", "GPT", "net without batch norms"};

// Twelve batches on the CPU, where the task may be none for the algorithm, and as many on the GPU.
void check_algorithm(const std::string& name, const Task& task) {
  const auto options_on = [&](at::Device device) {
    TrainerOptions options = options_of(task, {name});
    options.device = device;
    options.allow_tf32 = false;
    options.max_duration = "12ba";
    return options;
  };
  std::vector<at::Tensor> expected;
  try {
    const Warnings warnings;
    expected = trained(options_on(kCpu));
    if (warnings.say("no module was replaced") || warnings.say("has no effect")) return;
  } catch (const std::exception& error) {
    if (is_refusal(error)) return;
    throw;
  }
  attempt(name + " on " + task.name, [&] {
    const std::vector<at::Tensor> got = trained(options_on(kGpu));
    const double apart = distance(got, expected);
    if (!std::isfinite(apart)) throw Error("a weight is not finite, or there are other weights");
    const bool same =
        std::ranges::find(kWithoutChance, name) != std::end(kWithoutChance) &&
        std::ranges::find(kTasksWithoutChance, std::string_view(task.name)) != std::end(kTasksWithoutChance);
    if (same && apart > 5e-3) throw Error("the weights are ", apart, " apart from those of the CPU");
  });
}

// A test for each of the tasks of tests/battery: each is a process of its own in scripts/gpu.
void check_algorithms(std::string_view task) {
  const auto found = std::ranges::find(tasks(), task, [](const Task& one) { return std::string_view(one.name); });
  REQUIRE(found != tasks().end());
  at::set_num_threads(2);
  for (const std::string& name : algorithms::registry().names()) check_algorithm(name, *found);
}

TEST_CASE("Every algorithm trains a ResNet on a GPU" * on_gpu()) { check_algorithms("ResNet"); }
TEST_CASE("Every algorithm trains a GPT on a GPU" * on_gpu()) { check_algorithms("GPT"); }
TEST_CASE("Every algorithm trains a BERT on a GPU" * on_gpu()) { check_algorithms("BERT"); }
TEST_CASE("Every algorithm trains a ViT on a GPU" * on_gpu()) { check_algorithms("ViT"); }
TEST_CASE("Every algorithm trains a plain net on a GPU" * on_gpu()) { check_algorithms("plain net"); }
TEST_CASE("Every algorithm trains a plain net in bf16 on a GPU" * on_gpu()) { check_algorithms("plain net in bf16"); }
TEST_CASE("Every algorithm trains a GPT in bf16 on a GPU" * on_gpu()) { check_algorithms("GPT in bf16"); }
TEST_CASE("Every algorithm trains a net without batch norms on a GPU" * on_gpu()) {
  check_algorithms("net without batch norms");
}

}  // namespace
}  // namespace composer::test::gpu_plugins_test
