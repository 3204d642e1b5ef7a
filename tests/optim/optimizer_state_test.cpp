// What libtorch's own and users' optimizers remember goes through a checkpoint to the bit.
#include "composer/optim/optimizer_state.h"

#include <algorithm>
#include <ctime>
#include <sstream>
#include <stdexcept>

#include <torch/csrc/jit/api/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "composer/core/error.h"
#include "composer/core/run.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"

namespace composer::test::optimizer_state_test {
namespace {

namespace libtorch = torch::optim;
using Parameters = std::vector<at::Tensor>;
using Make = std::function<std::shared_ptr<libtorch::Optimizer>(Parameters)>;

struct Killed {};

struct NoOptions final : libtorch::OptimizerCloneableOptions<NoOptions> {
  double get_lr() const override { return 0.1; }
  void set_lr(const double) override {}
};

struct Counted final : libtorch::OptimizerCloneableParamState<Counted> {
  at::Tensor sum;
};

// A user's: adds gradients up, and forgets them when it is saved.
class Forgetful : public libtorch::Optimizer {
 public:
  explicit Forgetful(Parameters parameters)
      : Optimizer({libtorch::OptimizerParamGroup(std::move(parameters))}, std::make_unique<NoOptions>()) {}

  at::Tensor step(LossClosure closure) override {
    const at::Tensor loss = closure ? closure() : at::Tensor();
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : param_groups()[0].params()) {
      at::Tensor& sum = sum_of(parameter);
      sum = sum.defined() ? sum + parameter.grad() : parameter.grad().clone();
      parameter.sub_(sum, 0.01);
    }
    return loss;
  }

 protected:
  at::Tensor& sum_of(const at::Tensor& parameter) {
    auto& state = state_[parameter.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<Counted>();
    return static_cast<Counted&>(*state).sum;
  }
};

class Remembering final : public Forgetful {
 public:
  using Forgetful::Forgetful;
  void save(torch::serialize::OutputArchive& archive) const override {
    for (std::size_t i = 0; i < param_groups()[0].params().size(); ++i)
      if (const auto it = state().find(param_groups()[0].params()[i].unsafeGetTensorImpl()); it != state().end())
        archive.write(std::to_string(i), static_cast<const Counted&>(*it->second).sum);
  }
  void load(torch::serialize::InputArchive& archive) override {
    for (const std::string& key : archive.keys())
      archive.read(key, sum_of(param_groups()[0].params().at(std::stoul(key))));
  }
};

template <class Optimizer, class Options>
Make maker(Options options) {
  return [options](Parameters parameters) { return std::make_shared<Optimizer>(std::move(parameters), options); };
}

TrainerOptions saved_options(const Folder& folder, const Make& make) {
  TrainerOptions options = tiny_options();
  options.optimizer = make(options.model->parameters());
  options.save_folder = folder / "ck";
  options.save_interval = "1ba";
  return options;
}

void check_goes_on(const std::string& name, const Make& make) {
  CAPTURE(name);
  const Folder whole_folder, folder;
  Trainer whole(saved_options(whole_folder, make));
  whole.fit();
  {
    TrainerOptions options = saved_options(folder, make);
    options.callbacks = {At([](Event event, const State& state) {
      if (event == Event::BATCH_START && state.timestamp.batch == 2) throw Killed();
    })};
    Trainer trainer(std::move(options));
    CHECK_THROWS(trainer.fit());
  }
  Trainer trainer(saved_options(folder, make));
  REQUIRE(trainer.state().timestamp.batch == 2);
  trainer.fit();
  CHECK(weights_of(trainer).equal(weights_of(whole)));
}

TEST_CASE("each of libtorch's optimizers goes on to the bit") {
  check_goes_on("SGD", maker<libtorch::SGD>(libtorch::SGDOptions(0.1)));
  check_goes_on("SGD with momentum", maker<libtorch::SGD>(libtorch::SGDOptions(0.1).momentum(0.9).nesterov(true)));
  check_goes_on("Adam", maker<libtorch::Adam>(libtorch::AdamOptions(0.1)));
  check_goes_on("Adam with amsgrad", maker<libtorch::Adam>(libtorch::AdamOptions(0.1).amsgrad(true)));
  check_goes_on("AdamW", maker<libtorch::AdamW>(libtorch::AdamWOptions(0.1)));
  check_goes_on("Adagrad", maker<libtorch::Adagrad>(libtorch::AdagradOptions(0.1).lr_decay(0.1)));
  check_goes_on("RMSprop", maker<libtorch::RMSprop>(libtorch::RMSpropOptions(0.1)));
  check_goes_on("RMSprop, centered",
                maker<libtorch::RMSprop>(libtorch::RMSpropOptions(0.1).momentum(0.9).centered(true)));
  check_goes_on("LBFGS", maker<libtorch::LBFGS>(libtorch::LBFGSOptions(0.1).max_iter(3)));
  check_goes_on("LBFGS with a line search",
                maker<libtorch::LBFGS>(libtorch::LBFGSOptions(0.1).max_iter(3).line_search_fn("strong_wolfe")));
}

TEST_CASE("a user's optimizer goes on by its save() and load()") {
  check_goes_on("Remembering", [](Parameters p) { return std::make_shared<Remembering>(std::move(p)); });
}

TEST_CASE("a user's optimizer that keeps state and does not save it is an error of the first checkpoint") {
  const Folder folder;
  Trainer trainer(saved_options(folder, [](Parameters p) { return std::make_shared<Forgetful>(std::move(p)); }));
  std::string said;
  try {
    trainer.fit();
  } catch (const std::exception& error) {
    said = describe(error);
  }
  CHECK(said.find("override its save() and load()") != std::string::npos);
}

TEST_CASE("libtorch's optimizers are saved by the names of parameters, and without options") {
  const Folder folder;
  const auto with_rate = [](double lr) { return maker<libtorch::Adam>(libtorch::AdamOptions(lr)); };
  {
    Trainer trainer(saved_options(folder, with_rate(0.1)));
    trainer.fit();
    const StateDict saved = trainer.state().run->snapshot(/*weights_only=*/false);
    const auto inside = [](const StateDict& dict, const char* name) {
      const StateValue* found = dict.find(name);
      REQUIRE(found);
      return std::get<StateDict>(*found);
    };
    const StateDict weight = inside(inside(inside(saved, "optimizer"), "state"), "module.weight");
    CHECK(std::get<std::int64_t>(*weight.find("step")) == 4);
    CHECK(std::get<at::Tensor>(*weight.find("exp_avg")).sizes() == at::IntArrayRef{3, 4});
    CHECK(!weight.find("max_exp_avg_sq"));
  }
  TrainerOptions options = saved_options(folder, with_rate(0.25));
  options.max_duration = "2ep";
  Trainer trainer(std::move(options));
  CHECK(trainer.state().timestamp.batch == 4);
  CHECK(trainer.state().optimizer->param_groups()[0].options().get_lr() == 0.25);
}

struct Trained {
  torch::nn::Linear model{4, 3};
  libtorch::Adam optimizer{model->parameters(), libtorch::AdamOptions(0.1)};

  Trained() {
    model->forward(at::ones({2, 4})).sum().backward();
    optimizer.step();
  }
  StateDict saved() {
    StateDict state;
    StateVisitor visit = StateVisitor::saving(state);
    visit_optimizer(visit, optimizer, *model);
    return state;
  }
  void load(const StateDict& state) {
    StateVisitor visit = StateVisitor::loading(state, "optimizer");
    visit_optimizer(visit, optimizer, *model);
  }
  const at::Tensor& average() {
    return static_cast<const libtorch::AdamParamState&>(*optimizer.state().at(model->weight.unsafeGetTensorImpl()))
        .exp_avg();
  }
};

// Of the parameters [weight, bias], or in the other order.
struct Lbfgs {
  torch::nn::Linear model{4, 3};
  libtorch::LBFGS optimizer;

  explicit Lbfgs(bool reversed = false)
      : optimizer(reversed ? Parameters{model->bias, model->weight} : model->parameters(),
                  libtorch::LBFGSOptions(0.1).max_iter(2)) {}
  void step() {
    optimizer.step([this] {
      optimizer.zero_grad();
      const at::Tensor loss = model->forward(at::ones({2, 4})).square().sum();
      loss.backward();
      return loss;
    });
  }
  StateDict saved() {
    StateDict state;
    StateVisitor visit = StateVisitor::saving(state);
    visit_optimizer(visit, optimizer, *model);
    return state;
  }
  void load(const StateDict& state) {
    StateVisitor visit = StateVisitor::loading(state, "optimizer");
    visit_optimizer(visit, optimizer, *model);
  }
};

TEST_CASE("LBFGS, which keeps one state for all parameters, refuses that of parameters in another order") {
  Lbfgs trained;
  trained.step();
  const StateDict saved = trained.saved();
  Lbfgs other(/*reversed=*/true);
  CHECK_THROWS_WITH_AS(other.load(saved),
                       doctest::Contains("optimizer: LBFGS keeps one state for all parameters in their order, and this "
                                         "run has bias where weight was"),
                       CheckpointError);
  CHECK(other.optimizer.state().empty());
  Lbfgs same;
  same.load(saved);
  CHECK(same.optimizer.state().size() == 1);
}

TEST_CASE("A state of LBFGS that does not tell the order of its parameters is loaded") {
  Lbfgs trained;
  trained.step();
  StateDict saved = trained.saved();
  saved.erase("parameters");
  Lbfgs other;
  other.load(saved);
  CHECK(other.optimizer.state().size() == 1);
}

StateDict& states_of(StateDict& saved) { return std::get<StateDict>(saved["state"]); }

TEST_CASE("state that does not fit libtorch's optimizer is an error that says what, and changes nothing") {
  Trained trained;
  const at::Tensor before = trained.average().clone();
  SUBCASE("of another shape") {
    StateDict saved = trained.saved();
    std::get<StateDict>(states_of(saved)["bias"])["exp_avg"] = at::ones({5});
    CHECK_THROWS_WITH_AS(trained.load(saved), doctest::Contains("bias/exp_avg: has the shape [5], must have [3]"),
                         CheckpointError);
  }
  SUBCASE("of a parameter that is not there") {
    StateDict saved = trained.saved();
    states_of(saved)["head.weight"] = StateDict();
    CHECK_THROWS_WITH_AS(trained.load(saved), doctest::Contains("head.weight"), CheckpointError);
  }
  SUBCASE("without the number of steps") {
    StateDict saved = trained.saved();
    std::get<StateDict>(states_of(saved)["bias"]).erase("step");
    CHECK_THROWS_WITH_AS(trained.load(saved), doctest::Contains("step"), CheckpointError);
  }
  CHECK(trained.average().equal(before));
}

TEST_CASE("a parameter that had no state has none again") {
  Trained trained;
  StateDict saved = trained.saved();
  states_of(saved).erase("bias");
  trained.load(saved);
  CHECK(trained.optimizer.state().size() == 1);
}

TEST_CASE("an optimizer's archive with functions in it is refused before anything reads it") {
  torch::nn::Linear model(4, 3);
  Remembering optimizer(model->parameters());
  torch::jit::Module module("Evil");
  module.define("def __setstate__(self, x: int) -> None:\n  print(x)\n");
  module.define("def __getstate__(self) -> int:\n  return 1\n");
  std::ostringstream text;
  module.save(text);
  const std::string bytes = text.str();
  StateDict saved;
  StateVisitor saving = StateVisitor::saving(saved);
  visit_optimizer(saving, optimizer, *model);
  states_of(saved)["archive"] =
      at::from_blob(const_cast<char*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())}, at::kByte).clone();
  StateVisitor visit = StateVisitor::loading(saved, "optimizer");
  CHECK_THROWS_WITH_AS(visit_optimizer(visit, optimizer, *model), doctest::Contains("contains code"), CheckpointError);
}

struct Untold final : libtorch::OptimizerCloneableOptions<Untold> {
  explicit Untold(int what) : throws(what) {}
  double get_lr() const override { return 0.1; }
  void set_lr(const double) override {}
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("warmth", c10::IValue(1.5));
    if (throws == 1) throw std::runtime_error("Untold cannot be serialized");
    if (throws == 2) throw 42;
  }
  int throws;
};

TEST_CASE("Options that cannot be serialized are not told, and keep nothing else from being told") {
  class Own final : public libtorch::Optimizer {
   public:
    explicit Own(std::vector<libtorch::OptimizerParamGroup> groups)
        : Optimizer(std::move(groups), std::make_unique<Untold>(0)) {}
    at::Tensor step(LossClosure) override { return {}; }
  };
  std::vector<libtorch::OptimizerParamGroup> groups;
  for (int i = 0; i < 4; ++i) groups.emplace_back(Parameters{at::ones({2}).set_requires_grad(true)});
  Own optimizer(std::move(groups));
  for (std::size_t i = 0; const int throws : {0, 1, 2, 0})
    optimizer.param_groups()[i++].set_options(std::make_unique<Untold>(throws));
  const std::vector<StateDict> told = serialized_options(optimizer);
  REQUIRE(told.size() == 4);
  for (const std::size_t group : {0, 3}) CHECK(std::get<double>(*told[group].find("warmth")) == 1.5);
  for (const std::size_t group : {1, 2}) CHECK(told[group].entries().empty());
}

TEST_CASE("loading the state of many parameters takes time in proportion to their number") {
  struct Many : torch::nn::Module {
    explicit Many(int count) {
      for (int i = 0; i < count; ++i) register_parameter(join("p", i), at::ones({1}).set_requires_grad(true));
    }
  };
  const auto seconds = [](int count) {  // of the processor
    Many model(count);
    libtorch::SGD optimizer(model.parameters(), libtorch::SGDOptions(0.1).momentum(0.9));
    for (at::Tensor& parameter : model.parameters()) parameter.mutable_grad() = at::ones({1});
    optimizer.step();
    StateDict saved;
    StateVisitor save = StateVisitor::saving(saved);
    visit_optimizer(save, optimizer, model);
    StateVisitor load = StateVisitor::loading(saved, "optimizer");
    const std::clock_t from = std::clock();
    visit_optimizer(load, optimizer, model);
    return static_cast<double>(std::clock() - from) / CLOCKS_PER_SEC;
  };
  const double few = std::max(seconds(2000), 1e-3);
  CHECK(seconds(16000) < 24 * few);  // 8 times; 64 times if each name were looked for among all
}

}  // namespace
}  // namespace composer::test::optimizer_state_test
