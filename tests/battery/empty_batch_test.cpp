// What every algorithm does with a batch that has no samples: a rank may get none of a small last batch.
#include <cmath>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include "composer/algorithms/alibi.h"
#include "composer/algorithms/registry.h"
#include "composer/algorithms/seq_length_warmup.h"
#include "composer/core/state_dict.h"
#include "composer/trainer/trainer.h"
#include "tests/battery/variants.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/sandbox.h"
#include "tests/support/saved_by.h"
#include "tests/support/tiny_images.h"
#include "tests/support/warnings.h"

namespace composer::test::empty_batch_test {
namespace {

constexpr Event kEvents[] = {Event::AFTER_DATALOADER, Event::BATCH_START, Event::BEFORE_TRAIN_BATCH,
                             Event::AFTER_TRAIN_BATCH, Event::BATCH_END};

// Images, and tokens as well: each algorithm finds what it needs.
Batch samples(std::int64_t number) {
  Batch batch = tiny_images(number, 8);
  batch.set("input_ids", at::arange(number * 8, at::kLong).remainder(11).view({number, 8}));
  batch.set("attention_mask", at::ones({number, 8}, at::kLong));
  return batch;
}

Batch no_samples() {
  Batch batch = samples(4);
  for (auto& [name, tensor] : batch) tensor = tensor.narrow(0, 0, 0);
  return batch;
}

bool is_finite(const StateDict& state) {
  for (const auto& [name, value] : state.entries()) {
    const auto* inner = std::get_if<StateDict>(&value);
    const auto* number = std::get_if<double>(&value);
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (inner && !is_finite(*inner)) return false;
    if (number && !std::isfinite(*number)) return false;
    if (tensor && tensor->defined() && !at::isfinite(*tensor).all().item<bool>()) return false;
  }
  return true;
}

// What happens on a rank that gets no samples, at the events that do not depend on microbatches.
void pass_empty_batch(Trainer& trainer, bool with_gradients) {
  State& state = trainer.state();
  if (!with_gradients) state.optimizer->zero_grad(/*set_to_none=*/true);
  state.batch = no_samples();
  for (const Event event : kEvents) {
    CAPTURE(to_string(event));
    for (const auto& [algorithm, name, events, interfaces] : trainer.engine().algorithms())
      if (events.contains(event) && algorithm->match(event, state))
        CHECK_NOTHROW(algorithm->apply(event, state, trainer.logger()));
    for (const auto& [name, tensor] : state.batch) CHECK(tensor.size(0) == 0);
    for (const auto& plugin : trainer.engine().algorithms()) CHECK(is_finite(saved_by(*plugin.object)));
  }
}

TEST_CASE("Every algorithm passes a batch without samples through, and trains on") {
  for (const std::string& name : algorithms::registry().names()) {
    const auto& entry = algorithms::registry().find(name);
    for (const Settings& settings : variants(entry)) {
      std::string text = name;
      for (const auto& [option, value] : settings) text += join(' ', option, '=', value);
      CAPTURE(text);
      const Sandbox sandbox;
      const Warnings warnings;
      const auto log = std::make_shared<RecordingLogger>();
      TrainerOptions with = tiny_image_options();
      with.train_dataloader = data::in_memory(samples(16), {.batch_size = 4, .shuffle = false});
      with.algorithms = entry.make(settings);
      with.loggers = {log};
      Trainer trainer(std::move(with));
      trainer.begin();
      bool with_gradients = false;
      do pass_empty_batch(trainer, with_gradients = !with_gradients);
      while (trainer.step());
      trainer.end();
      CHECK(trainer.state().timestamp.batch > 0);
      CHECK(at::isfinite(weights_of(trainer)).all().item<bool>());
      for (const auto& [key, values] : log->values)
        for (const double value : values) {
          CAPTURE(key);
          CHECK(std::isfinite(value));
        }
    }
  }
}

TEST_CASE("Functions that change the sequences of a batch take one without samples") {
  const Batch tokens{{"input_ids", at::zeros({0, 8}, at::kLong)}, {"attention_mask", at::zeros({0, 8}, at::kLong)}};
  CHECK(algorithms::alibi_cut_sequences(tokens, 0.25).at("input_ids").sizes() == at::IntArrayRef({0, 2}));
  for (const bool truncate : {false, true})
    for (const bool preserve : {false, true}) {
      if (preserve && !truncate) continue;
      const Batch shorter = algorithms::set_batch_sequence_length(
          tokens, 3, {.truncate = truncate, .preserve_end_of_sequence = preserve});
      CHECK(shorter.at("input_ids").sizes() == at::IntArrayRef({0, 3}));
      CHECK(shorter.at("attention_mask").sizes() == at::IntArrayRef({0, 3}));
    }
}

TEST_CASE("Images without samples do not keep RandAugment and AugMix from warning of the next batch") {
  for (const std::string name : {"randaugment", "augmix"}) {
    CAPTURE(name);
    FakeRun run;
    const Algorithms made = algorithms::registry().find(name).make({});
    Algorithm& algorithm = *made.list().front().object;
    const Warnings warnings;
    for (const std::int64_t number : {0, 2}) {
      run.state.batch = {{"input", at::full({number, 1, 8, 8}, -2.0)}};
      algorithm.apply(Event::AFTER_DATALOADER, run.state, run.logger);
    }
    CHECK(warnings.say("needs images with values from 0 to 1"));
  }
}

}  // namespace
}  // namespace composer::test::empty_batch_test
