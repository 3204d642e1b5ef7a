#include <algorithm>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/optim/any_optimizer.h"
#include "tests/replay/training_run.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace composer::replay::training_test {
namespace {

const Context& unseen() {
  static const Context context(test::repository() / "tests/replay/unseen/training.json");
  return context;
}

Json case_of(const std::string& id) {
  const Json& cases = unseen().cases();
  return *std::ranges::find_if(cases, [&](const Json& c) { return c["id"] == id; });
}

// As the program that replays: what a rule throws is a wrong result.
Outcome outcome(const Json& c, const Algorithms& faults = {}) {
  try {
    return run_training(c, unseen(), faults);
  } catch (const std::runtime_error& error) {
    return wrong(error.what());
  }
}

at::Tensor tensor_of(const State& state, const std::string& name) {
  for (const auto& item : state.model->named_parameters())
    if (item.key() == name) return item.value();
  for (const auto& item : state.model->named_buffers())
    if (item.key() == name) return item.value();
  throw std::runtime_error("no tensor " + name);
}

// Adds to the gradient of a parameter at each batch, or to the tensor itself after the fourth batch.
class Fault final : public Algorithm {
 public:
  Fault(Event event, std::string name, double amount) : event_(event), name_(std::move(name)), amount_(amount) {}
  EventSet events() const override { return {event_}; }
  void apply(Event event, State& state, Logger&) override {
    const at::NoGradGuard no_grad;
    if (event == Event::AFTER_TRAIN_BATCH)
      tensor_of(state, name_).mutable_grad().add_(amount_);
    else if (state.timestamp.batch == 4)
      tensor_of(state, name_).add_(amount_);
  }

 private:
  Event event_;
  std::string name_;
  double amount_;
};

TEST_CASE("A notable gradient of a bias before a batch norm is found behind its rounding errors") {
  for (const char* id : {"conv_adam_amsgrad_f64", "conv_adam_amsgrad_f32", "conv_rmsprop_f32", "conv_adagrad_f64",
                         "conv_adam_clip_value_f32", "mlp_bn_adam_f64", "conv_adam_cosine_f32"}) {
    CAPTURE(id);
    const Outcome found = outcome(case_of(id), {Fault(Event::AFTER_TRAIN_BATCH, kNoisyBias, 1e-3)});
    CHECK(found.verdict == Verdict::WRONG);
    CHECK(found.text.find("more than rounding errors") != std::string::npos);
  }
  CHECK(outcome(case_of("conv_sgd_momentum_f32"), {Fault(Event::AFTER_TRAIN_BATCH, kNoisyBias, 1e-3)}).verdict ==
        Verdict::WRONG);
}

TEST_CASE("A bias before a batch norm that moves by itself, and a wrong running mean, are found") {
  const Json c = case_of("conv_adam_amsgrad_f32");
  const Outcome bias = outcome(c, {Fault(Event::BATCH_END, kNoisyBias, 1e-3)});
  CHECK(bias.verdict == Verdict::WRONG);
  CHECK(bias.text.find("not what the optimizer makes") != std::string::npos);
  const Outcome mean = outcome(c, {Fault(Event::BATCH_END, kShiftedMean, 1e-2)});
  CHECK(mean.verdict == Verdict::WRONG);
}

TEST_CASE("The rule for the bias before a batch norm hides no error of another weight") {
  for (const char* id : {"conv_adam_amsgrad_f64", "conv_rmsprop_f32"}) {
    CAPTURE(id);
    CHECK(outcome(case_of(id), {Fault(Event::AFTER_TRAIN_BATCH, "module.9.bias", 1e-4)}).verdict == Verdict::WRONG);
    Json other = case_of(id);
    Json& loss = other["rows"][5][2]["loss/train/total"];
    loss = loss.get<double>() * 1.001;
    CHECK(outcome(other).verdict == Verdict::WRONG);
  }
}

TEST_CASE("A recording with schedules must come out with Composer's rates before ours count") {
  for (const char* id : {"mlp_sgd_clip_norm_linear_f64", "mlp_bn_rmsprop_samples_cosine_f64"}) {
    CAPTURE(id);
    CHECK(outcome(case_of(id)).verdict == Verdict::DIFFERENT);
    Json other = case_of(id);
    Json& loss = other["rows"][5][2]["loss/train/total"];
    loss = loss.get<double>() * 1.001;
    const Outcome found = outcome(other);
    CHECK(found.verdict == Verdict::WRONG);
    CHECK(found.text.find("with Composer's rates is not what was recorded") != std::string::npos);
  }
}

// Trains each batch with another rate than the schedule's.
class OtherRate final : public Algorithm {
 public:
  EventSet events() const override { return {Event::BATCH_START}; }
  void apply(Event, State& state, Logger&) override { optim::set_learning_rate(*state.optimizer, 0, 0.0123); }
};

TEST_CASE("A wrong learning rate of a run with schedules is found") {
  const Outcome found = outcome(case_of("mlp_sgd_clip_norm_linear_f64"), {OtherRate()});
  CHECK(found.verdict == Verdict::WRONG);
}

}  // namespace
}  // namespace composer::replay::training_test
