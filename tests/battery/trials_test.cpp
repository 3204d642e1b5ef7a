// What trials of find_lr() leave of every algorithm: nothing.
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/algorithms/registry.h"
#include "composer/models/resnet_cifar.h"
#include "composer/trainer/trainer.h"
#include "tests/battery/variants.h"
#include "tests/support/device.h"
#include "tests/support/doctest.h"
#include "tests/support/sandbox.h"
#include "tests/support/tiny_images.h"
#include "tests/support/warnings.h"

namespace composer::test::trials_test {
namespace {

std::vector<at::Tensor> left_by(const Entry<Algorithms>& entry, const Settings& settings, bool looks) {
  const Sandbox sandbox;
  at::manual_seed(4);
  TrainerOptions with = tiny_image_options();
  Batch batch = tiny_images(16, 8);
  batch.set("input_ids", at::arange(16 * 8, at::kLong).remainder(11).view({16, 8}));
  batch.set("attention_mask", at::ones({16, 8}, at::kLong));
  with.model = models::resnet_cifar({.depth = 8, .num_classes = 3, .in_channels = 1});  // with blocks to drop
  with.train_dataloader = data::in_memory(batch, {.batch_size = 4, .shuffle = false});
  with.max_duration = "8ba";
  with.deterministic_mode = !device_of_tests().is_cpu();
  with.algorithms = entry.make(settings);
  Trainer trainer(std::move(with));
  const auto look = [&] {
    if (looks) trainer.find_lr({.start_lr = 1e-4, .end_lr = 1, .num_batches = 3});
  };
  look();
  trainer.begin();
  while (trainer.state().timestamp.batch < 5 && trainer.step()) {
  }
  trainer.end();
  look();
  std::vector<at::Tensor> left;
  const auto keep = [&] {
    for (const at::Tensor& one : trainer.state().model->parameters()) left.push_back(one.detach().clone());
    for (const at::Tensor& one : trainer.state().model->buffers()) left.push_back(one.clone());
  };
  keep();
  trainer.state().model->eval();
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : batch) tensor = tensor.to(trainer.state().device);
  for (const auto& [name, output] : trainer.state().model->forward(batch)) left.push_back(output.clone());
  trainer.fit();
  keep();
  return left;
}

TEST_CASE("A run that looked for a learning rate, with any algorithm, is equal to one that did not") {
  for (const std::string& name : algorithms::registry().names()) {
    const auto& entry = algorithms::registry().find(name);
    for (Settings settings : variants(entry)) {
      for (const OptionInfo& option : entry.options) {
        if (option.name == "min_channels") settings["min_channels"] = "16";  // this network has few
        if (option.name == "ghost_batch_size") settings["ghost_batch_size"] = "2";
        const bool by_sample = settings.contains("stochastic_method") && settings.at("stochastic_method") == "sample";
        if (option.name == "drop_warmup" && !by_sample) settings["drop_warmup"] = "1dur";
      }
      std::string text = name;
      for (const auto& [option, value] : settings) text += join(' ', option, '=', value);
      CAPTURE(text);
      const Warnings warnings;
      const auto without = left_by(entry, settings, false), with = left_by(entry, settings, true);
      REQUIRE(with.size() == without.size());
      for (std::size_t i = 0; i < with.size(); ++i) CHECK(with[i].equal(without[i]));
    }
  }
}

}  // namespace
}  // namespace composer::test::trials_test
