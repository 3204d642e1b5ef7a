// Modules that are in evaluation mode while the model is not, and parameters that require no gradients, were frozen on
// purpose: a fit leaves them so, and a run that resumes has them so again.
#include <csignal>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include "composer/optim/optimizer.h"
#include "composer/step/model_settings.h"
#include "tests/optim/every_optimizer.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/killed.h"
#include "tests/support/tiny.h"
#include "tests/trainer/zero_runs.h"

namespace composer::test::frozen_test {
namespace {

namespace nn = torch::nn;

struct Norms {
  nn::BatchNorm1d first{4}, second{4};
  nn::Linear linear{4, 3};
  nn::Sequential net{first, second, linear};
  std::shared_ptr<Model> model;
  Norms() {
    const at::NoGradGuard no_grad;
    linear->weight.copy_(at::cos(at::arange(12, at::kFloat)).view({3, 4}));
    linear->bias.zero_();
    model = std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
  }
  bool learnt(nn::BatchNorm1d& norm) const { return norm->running_mean.abs().max().item<float>() > 0; }
};

TrainerOptions options_of(const Norms& norms) {
  TrainerOptions options = tiny_options();
  options.model = norms.model;
  options.eval_dataloader = tiny_loader(8, 4);
  options.eval_interval = "2ba";
  options.max_duration = "2ep";
  return options;
}

TEST_CASE("A batch norm that is in evaluation mode before fit() keeps its statistics, and the others learn") {
  Norms norms;
  norms.first->eval();
  Trainer trainer(options_of(norms));
  trainer.fit();
  CHECK_FALSE(norms.learnt(norms.first));
  CHECK_FALSE(norms.first->is_training());
  CHECK(norms.learnt(norms.second));
}

TEST_CASE("A batch norm that an algorithm freezes at FIT_START stays frozen, also in a model that was evaluating") {
  for (const bool evaluating : {false, true}) {
    Norms norms;
    if (evaluating) norms.model->eval();
    TrainerOptions options = options_of(norms);
    options.algorithms = {AtAlgorithm({Event::FIT_START}, [&](State&) { norms.first->eval(); })};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK_FALSE(norms.learnt(norms.first));
    CHECK(norms.learnt(norms.second));
  }
}

TEST_CASE("A model that was left in evaluation mode as a whole is trained as a whole") {
  Norms norms;
  norms.model->eval();
  Trainer trainer(options_of(norms));
  trainer.fit();
  CHECK(norms.learnt(norms.first));
  CHECK(norms.learnt(norms.second));
  CHECK(norms.model->is_training());
}

struct FreezesItself : nn::Module {
  nn::BatchNorm1d norm{4};
  nn::Linear linear{4, 3};
  FreezesItself() { register_module("norm", norm), register_module("linear", linear); }
  void train(bool on = true) override {
    Module::train(on);
    norm->eval();
  }
};

TEST_CASE("What a module freezes in its own train() is frozen, and what is in training mode below a frozen one stays") {
  FreezesItself own;
  train_unfrozen(own);
  CHECK_FALSE(own.norm->is_training());
  CHECK(own.linear->is_training());
  Norms norms;
  norms.net->eval();
  norms.linear->train();
  train_unfrozen(*norms.model);
  CHECK_FALSE(norms.net->is_training());
  CHECK_FALSE(norms.first->is_training());
  CHECK(norms.linear->is_training());
}

// Freezes the first norm once, when epoch 1 begins.
TrainerOptions freezing_in(const Norms& norms, const Folder& folder) {
  TrainerOptions options = options_of(norms);
  options.max_duration = "4ep";
  options.save_folder = folder / "ck";
  options.algorithms = {AtAlgorithm({Event::EPOCH_START}, [first = norms.first](State& state) mutable {
    if (state.timestamp.epoch != 1) return;
    first->eval();
    first->weight.set_requires_grad(false);
  })};
  return options;
}

TEST_CASE("What was frozen once is frozen again in a run that resumes, and what the program sets is the program's") {
  Norms whole;
  const Folder other;
  Trainer trainer(freezing_in(whole, other));
  trainer.fit();
  const Folder folder;
  {
    Norms cut;
    TrainerOptions options = freezing_in(cut, folder);
    options.callbacks = {At([](Event event, const State& state) {
      if (event == Event::EPOCH_CHECKPOINT && state.timestamp.epoch == 2) state.stop.ask("enough");
    })};
    Trainer(std::move(options)).fit();
  }
  Norms resumed;
  resumed.linear->bias.set_requires_grad(false);  // the program is another now
  TrainerOptions options = freezing_in(resumed, folder);
  Trainer again(std::move(options));
  CHECK(resumed.first->weight.requires_grad());
  again.begin();
  CHECK_FALSE(resumed.first->weight.requires_grad());
  CHECK_FALSE(resumed.first->is_training());
  CHECK(resumed.second->is_training());
  CHECK_FALSE(resumed.linear->bias.requires_grad());
  while (again.step()) {
  }
  again.end();
  CHECK(resumed.first->weight.equal(whole.first->weight));
  CHECK(resumed.first->running_mean.equal(whole.first->running_mean));
}

TEST_CASE("A frozen batch norm stays so in a model that the program leaves in evaluation mode before or between fits") {
  using Before = std::function<void(Trainer&)>;
  for (const Before& before :
       {Before([](Trainer&) {}), Before([](Trainer& trainer) { trainer.fit("1ep"); }), Before([](Trainer& trainer) {
          trainer.state().model->eval();
          trainer.find_lr({.num_batches = 3});
        })}) {
    Norms norms;
    norms.first->eval();
    Trainer trainer(options_of(norms));
    before(trainer);
    norms.model->eval();
    trainer.fit("1ep");
    CHECK_FALSE(norms.learnt(norms.first));
    CHECK_FALSE(norms.first->is_training());
    CHECK(norms.second->is_training());
    norms.model->train();
    trainer.fit("1ep");  // what the program has released is trained
    CHECK(norms.learnt(norms.first));
  }
}

TEST_CASE("What was frozen is in a checkpoint that is saved while the model evaluates") {
  const Folder folder;
  {
    Norms norms;
    TrainerOptions options = freezing_in(norms, folder);
    options.save_interval = "10ep";
    Trainer trainer(std::move(options));
    trainer.fit("2ep");
    norms.model->eval();
    trainer.save_checkpoint("mine");
  }
  Norms resumed;
  Trainer again(freezing_in(resumed, folder));
  again.begin({.duration = "2ep"});
  CHECK_FALSE(resumed.first->is_training());
  CHECK(resumed.second->is_training());
}

// The first layer is frozen for the first fit and the last, after the trainer was made. `dies`: after which batch.
at::Tensor train_in_parts(TrainerOptions options, std::int64_t dies) {
  options.seed = 7;
  options.max_duration = {};
  options.save_interval = "1ba";
  options.callbacks.add(killed_at(Event::BATCH_CHECKPOINT, dies));
  Trainer trainer(std::move(options));
  const auto freeze = [&](bool on) {
    const auto modules = trainer.state().model->modules();
    const auto first =
        std::ranges::find_if(modules, [](const auto& one) { return dynamic_cast<nn::LinearImpl*>(one.get()); });
    for (const at::Tensor& parameter : (*first)->parameters()) parameter.set_requires_grad(!on);
  };
  for (const bool frozen : {true, false, true}) {
    freeze(frozen);
    trainer.fit("3ba");
  }
  return weights_of(trainer).clone();
}

TEST_CASE("A layer that is frozen for some fits is so again after a kill in any of them, with any optimizer") {
  std::vector<std::pair<std::string, std::function<void(TrainerOptions&)>>> optimizers;
  const auto add = [&](const std::string& name, const optim::AnyOptimizer& optimizer) {
    optimizers.emplace_back(name, [=](TrainerOptions& options) { options.optimizer = optimizer; });
  };
  for (const auto& [name, optimizer] : every_optimizer()) add(name, optimizer);
  add("adamw, groups", optim::adamw({.lr = 0.02, .groups = {{.match = "*.bias", .weight_decay = 0}}}));
  optimizers.emplace_back("libtorch's Adam", [](TrainerOptions& options) {
    options.optimizer = std::make_shared<torch::optim::Adam>(options.model->parameters(), 0.02);
  });
  for (const auto& [name, change] : optimizers) {
    CAPTURE(name);
    const auto run = [&](const Folder& folder, std::int64_t dies) {
      TrainerOptions options = zero_options();
      options.save_folder = folder / "ck";
      change(options);
      return train_in_parts(std::move(options), dies);
    };
    const Folder other;
    const at::Tensor whole = run(other, -1);
    for (const std::int64_t dies : {2, 3, 5, 8}) {
      CAPTURE(dies);
      const Folder folder;
      CHECK_THROWS(run(folder, dies));
      CHECK(run(folder, -1).equal(whole));
    }
  }
}

TEST_CASE("A layer that was frozen is so again where ranks divide the optimizer and write checkpoints in parts") {
  for (const std::int64_t stage : {1, 2}) {
    CAPTURE(stage);
    const auto run = [&](const Folder& folder, std::int64_t dies) {
      return dist::test::results_in_ranks(2, [&](const std::shared_ptr<dist::World>& world) {
        TrainerOptions options = zero_options(stage);
        options.distributed.sharded_checkpoints = true;
        options.save_folder = folder / "ck";
        options.world = world;
        return train_in_parts(std::move(options), dies);
      });
    };
    const Folder other, folder;
    const at::Tensor whole = run(other, -1).front();
    CHECK_THROWS(run(folder, 2));
    CHECK(run(folder, -1).front().equal(whole));
  }
}

TEST_CASE("A checkpoint of a run with a frozen layer is where another may begin, with that layer free") {
  const Folder folder;
  TrainerOptions options = zero_options();
  options.save_folder = folder / "ck";
  CHECK_THROWS(train_in_parts(std::move(options), 3));
  TrainerOptions another = zero_options();
  another.load_path = folder / "ck/latest";
  Trainer trainer(std::move(another));
  trainer.fit("1ep");
  CHECK(trainer.state().timestamp.batch > 3);
}

}  // namespace
}  // namespace composer::test::frozen_test
