// Losses that train different parts of one model, with Frozen, also by optimizers of their own: a GAN in one trainer.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/callbacks/lr_monitor.h"
#include "composer/callbacks/optimizer_monitor.h"
#include "composer/core/frozen.h"
#include "composer/core/model.h"
#include "composer/data/in_memory.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/optim/schedulers.h"
#include "composer/trainer/lr_finder.h"
#include "composer/util/recompute.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"

namespace composer::test::parts_apart_test {
namespace {

namespace nn = torch::nn;

at::Tensor bce(const at::Tensor& logits, double target) {
  return nn::functional::binary_cross_entropy_with_logits(logits, at::full_like(logits, target));
}

struct Gan final : Model {
  Gan() {
    forger = register_module("forger", nn::Sequential(nn::Linear(3, 8), nn::Tanh(), nn::Linear(8, 4)));
    judge = register_module("judge", nn::Sequential(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 1)));
    // Not random: ranks are threads here, which share the default generator.
    const at::NoGradGuard no_grad;
    for (const at::Tensor& one : Module::parameters())
      one.copy_(at::sin(at::arange(one.numel(), at::kFloat) * 1.3 + 0.4).view(one.sizes()) * 0.5);
  }
  Outputs forward(const Batch& batch) override { return forger->forward(batch["noise"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    const at::Tensor& fake = outputs.only();
    const at::Tensor real = bce(judge->forward(batch["input"]), 1);
    const at::Tensor judged = bce(judge->forward(fake.detach()), 0);
    const Frozen frozen(*judge);
    return {{"judge", real + judged}, {"forger", bce(judge->forward(fake), 1)}};
  }
  nn::Sequential forger{nullptr}, judge{nullptr};
};

Batch points(std::int64_t count) {
  return {{"input", at::sin(at::arange(count * 4, at::kDouble) * 1.7).to(at::kFloat).view({count, 4})},
          {"noise", at::cos(at::arange(count * 3, at::kDouble) * 2.3).to(at::kFloat).view({count, 3})}};
}

TrainerOptions options() {
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Gan>();
  options.train_dataloader = data::in_memory(points(24), {.batch_size = 8, .seed = 3});
  options.optimizer = optim::adam({.lr = 0.01});
  options.max_duration = "4ep";
  return options;
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& one : tensors) all.push_back(one.detach().clone());
  return all;
}

TEST_CASE("Each of two losses in one backward pass trains its own part, as two passes would") {
  Gan model;
  const Batch batch = points(8);
  const Losses losses = model.loss(model.forward(batch), batch);
  (losses.at("judge") + losses.at("forger")).backward();
  const at::Tensor fake = model.forward(batch).only();
  const auto gradients = [](const at::Tensor& loss, nn::Sequential& part) {
    return torch::autograd::grad({loss}, part->parameters());
  };
  const auto of_judge = gradients(
      bce(model.judge->forward(batch["input"]), 1) + bce(model.judge->forward(fake.detach()), 0), model.judge);
  const auto of_forger = gradients(bce(model.judge->forward(fake), 1), model.forger);
  for (std::size_t i = 0; i < of_judge.size(); ++i) {
    CHECK(model.judge->parameters()[i].grad().equal(of_judge[i]));
    CHECK(model.forger->parameters()[i].grad().equal(of_forger[i]));
  }
}

TEST_CASE("What was frozen when gradient checkpointing recorded a segment gets no gradients when that is repeated") {
  for (const bool nested : {false, true}) {
    CAPTURE(nested);
    const auto gradients = [&](bool checkpoints) {
      Gan model;
      const Batch batch = points(8);
      const auto judged = [&](const at::Tensor& x) -> at::Tensor {
        const std::function<at::Tensor(const at::Tensor&)> of_judge =
            [judge = model.judge](const at::Tensor& input) mutable { return judge->forward(input); };
        if (!checkpoints) return of_judge(x);
        if (!nested) return checkpoint(of_judge, x);
        return checkpoint([=](const at::Tensor& input) { return checkpoint(of_judge, input); }, x);
      };
      const at::Tensor fake = model.forward(batch).only();
      at::Tensor loss = bce(judged(fake.detach()), 0);
      {
        const Frozen frozen(*model.judge);
        loss = loss + bce(judged(fake), 1);
      }
      loss.backward();
      std::vector<at::Tensor> all;
      for (const at::Tensor& one : model.parameters()) {
        CHECK(one.requires_grad());
        all.push_back(one.grad());
      }
      return all;
    };
    const std::vector<at::Tensor> expected = gradients(false), got = gradients(true);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(got[i].allclose(expected[i]));
  }
  CHECK(Frozen::all().empty());
}

TEST_CASE("Frozen leaves what was frozen before frozen, and ends with an exception as well") {
  Gan model;
  model.judge->parameters()[1].set_requires_grad(false);
  try {
    const Frozen frozen(*model.judge);
    for (const at::Tensor& one : model.judge->parameters()) CHECK_FALSE(one.requires_grad());
    throw 1;
  } catch (int) {  // NOLINT(bugprone-empty-catch)
  }
  for (std::size_t i = 0; i < 4; ++i) CHECK(model.judge->parameters()[i].requires_grad() == (i != 1));
}

// With an optimizer for each part.
TrainerOptions combined_options() {
  TrainerOptions with = options();
  with.optimizer = optim::combined(
      {{"forger.*", optim::adam({.lr = 0.01, .beta1 = 0.5})}, {"judge.*", optim::sgd({.lr = 0.1, .momentum = 0.9})}});
  with.schedulers = {optim::linear({.alpha_f = 0.1})};
  return with;
}

using Options = TrainerOptions (*)();

void check_ends_alike(Options options) {
  struct Way {
    int ranks;
    std::int64_t microbatch, zero_stage;
  };
  const auto weights = [&](const Way& way) {
    return dist::test::results_in_ranks(way.ranks, [&](const std::shared_ptr<dist::World>& world) {
      TrainerOptions with = options();
      with.world = world;
      with.device_train_microbatch_size = way.microbatch;
      with.distributed.zero_stage = way.zero_stage;
      Trainer trainer(std::move(with));
      trainer.fit();
      return copies(trainer.state().model->parameters());
    });
  };
  const std::vector<at::Tensor> expected = weights({1, 8, 0}).front();
  for (const Way& way : {Way{1, 3, 0}, Way{2, 4, 0}, Way{2, 2, 0}, Way{2, 4, 1}, Way{2, 4, 2}}) {
    CAPTURE(way.ranks);
    CAPTURE(way.zero_stage);
    for (const std::vector<at::Tensor>& rank : weights(way))
      for (std::size_t i = 0; i < expected.size(); ++i) CHECK(rank[i].allclose(expected[i], 1e-4, 1e-5));
  }
}

TEST_CASE("Parts that train apart end alike with microbatches, on several ranks, and with a sharded optimizer") {
  check_ends_alike(options);
}

TEST_CASE("Parts with optimizers of their own end alike with microbatches, on several ranks, and sharded") {
  check_ends_alike(combined_options);
}

TEST_CASE("A run whose parts train apart, cut and resumed, ends as one that is not") {
  for (const Options some : {options, combined_options})
    for (const std::int64_t batch : {1, 4, 8}) check_cut_and_resumed(some, batch);
}

TEST_CASE("The first step of a part is that of its optimizer alone") {
  const auto ends_with = [](const optim::AnyOptimizer& optimizer, bool forger) {
    TrainerOptions with = options();
    with.optimizer = optimizer;
    with.max_duration = "1ba";  // later gradients depend on both
    Trainer trainer(std::move(with));
    trainer.fit();
    auto& gan = dynamic_cast<Gan&>(*trainer.state().model);
    return copies((forger ? gan.forger : gan.judge)->parameters());
  };
  const auto adam = optim::adam({.lr = 0.01, .beta1 = 0.5}), sgd = optim::sgd({.lr = 0.1, .momentum = 0.9});
  const auto both = optim::combined({{"forger.*", adam}, {"judge.*", sgd}});
  for (const bool forger : {false, true}) {
    const auto together = ends_with(both, forger), alone = ends_with(forger ? adam : sgd, forger);
    for (std::size_t i = 0; i < alone.size(); ++i) CHECK(together[i].equal(alone[i]));
  }
}

TEST_CASE("Rates, options and moments are logged of the optimizer of each part") {
  TrainerOptions with = combined_options();
  const auto logger = std::make_shared<loggers::InMemoryLogger>();
  with.loggers = {logger};
  with.callbacks = {callbacks::LRMonitor(), callbacks::OptimizerMonitor({.batch_log_interval = 1})};
  with.algorithms = {algorithms::GradientClipping({.clipping_threshold = 0.5})};
  Trainer trainer(std::move(with));
  trainer.fit();
  for (const char* key :
       {"lr-Adam/group0", "lr-SGD/group1", "l2_norm/moment/forger.0.weight", "l2_norm/moment/judge.0.weight"}) {
    CAPTURE(key);
    CHECK(logger->get_timeseries(key).size() == 12);  // throws if there is none
  }
  const auto& told = logger->hyperparameters();
  CHECK(std::get<std::string>(told.at("optimizer/class")) == "Combined");
  CHECK(std::get<std::string>(told.at("optimizer/0/class")) == "Adam");
  CHECK(std::get<double>(told.at("optimizer/0/beta1")) == 0.5);
  CHECK(std::get<std::string>(told.at("optimizer/1/class")) == "SGD");
  CHECK(std::get<double>(told.at("optimizer/1/momentum")) == 0.9);
}

TEST_CASE("A run whose optimizer has another part for a parameter is not resumed") {
  const Folder folder;
  const auto saving = [&] {
    TrainerOptions with = combined_options();
    with.save_folder = folder / "ck";
    return with;
  };
  Trainer(saving()).fit();
  TrainerOptions other = saving();
  other.max_duration = "5ep";
  other.optimizer = optim::combined(
      {{"forger.*", optim::adamw({.lr = 0.01, .beta1 = 0.5})}, {"judge.*", optim::sgd({.lr = 0.1, .momentum = 0.9})}});
  const std::string error = error_of([&] { Trainer trainer(std::move(other)); });
  CHECK_MESSAGE(error.find("for Adam, but this run has AdamW") != std::string::npos, error);
}

TEST_CASE("The learning-rate finder raises the rates of both parts in their ratio") {
  Trainer trainer(combined_options());
  const LrCurve curve = trainer.find_lr({.start_lr = 1e-4, .end_lr = 1e-2, .num_batches = 6});
  CHECK(curve.points.size() == 6);
  CHECK(optim::learning_rates(*trainer.state().optimizer) == std::vector<double>{0.01, 0.1});
}

}  // namespace
}  // namespace composer::test::parts_apart_test
