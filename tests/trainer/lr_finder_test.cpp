#include "composer/trainer/lr_finder.h"

#include <cmath>
#include <csignal>
#include <sstream>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include "composer/algorithms/mixup.h"
#include "composer/core/algorithm.h"
#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::lr_finder_test {
namespace {

using namespace test;

TrainerOptions options_with_memory() {
  TrainerOptions options = tiny_options();
  options.model = model_with_memory();
  options.train_dataloader = data::in_memory(tiny_data(18), {.batch_size = 4});  // shuffled, a short batch last
  options.optimizer = optim::adamw({.lr = 0.01});
  options.schedulers = {optim::linear()};
  options.algorithms = {algorithms::MixUp({.alpha = 0.3})};
  options.device_train_microbatch_size = 2;  // batch norm refuses a single sample
  options.max_duration = "4ep";
  options.seed = 3;
  return options;
}

// All that a run leaves behind.
std::vector<at::Tensor> left_by(Trainer& trainer, const loggers::InMemoryLogger& memory) {
  std::vector<at::Tensor> left{weights_of(trainer), at::rand({3})};
  for (const at::Tensor& buffer : trainer.state().model->buffers()) left.push_back(buffer.clone());
  std::vector<double> logged;
  for (const char* key : {"loss/train/total", "metrics/train/MulticlassAccuracy", "time/batch"})
    for (const auto& point : memory.get_timeseries(key)) logged.push_back(point.number());
  left.push_back(at::tensor(logged, at::kDouble));
  return left;
}

TEST_CASE("A run that looked for learning rates before, between and after its fits is equal to one that did not") {
  const auto left = [](bool look, std::shared_ptr<optim::Optimizer> (*make)(optim::NamedParameters)) {
    auto memory = std::make_shared<loggers::InMemoryLogger>();
    TrainerOptions options = options_with_memory();
    options.optimizer = optim::AnyOptimizer::Factory(make);
    options.loggers = {memory};
    Trainer trainer(std::move(options));
    const auto find = [&] {
      if (look) CHECK(trainer.find_lr({.start_lr = 1e-4, .end_lr = 100, .num_batches = 12}).points.size() > 3);
    };
    find();
    trainer.fit("7ba");  // into the second epoch
    find();
    find();
    trainer.fit("2ep");
    find();
    return left_by(trainer, *memory);
  };
  const auto ours = [](optim::NamedParameters parameters) {
    return optim::adamw({.lr = 0.01}).make(std::move(parameters));
  };
  const auto torchs = [](optim::NamedParameters parameters) -> std::shared_ptr<optim::Optimizer> {
    std::vector<at::Tensor> list;
    for (const auto& [name, parameter] : parameters) list.push_back(parameter);
    return std::make_shared<torch::optim::Adam>(list, torch::optim::AdamOptions(0.01));
  };
  const auto equal = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].equal(b[i]));
  };
  equal(left(true, ours), left(false, ours));
  equal(left(true, torchs), left(false, torchs));
}

TEST_CASE("A trial leaves state, gradients, modes, learning rates and random numbers as they were") {
  TrainerOptions options = options_with_memory();
  Trainer trainer(std::move(options));
  trainer.fit("6ba");
  State& state = trainer.state();
  auto parameters = state.model->parameters();
  parameters[0].mutable_grad() = at::ones_like(parameters[0]);
  state.model->modules(false).back()->eval();  // a part that somebody has frozen
  state.stop.ask("a reason");
  const Timestamp timestamp = state.timestamp;
  const at::Tensor before = weights_of(trainer).clone(), total = state.batch_loss.at("total");
  const auto rates = optim::learning_rates(*state.optimizer);
  const std::string why = state.stop.why();
  at::manual_seed(8);
  trainer.find_lr({.num_batches = 10});
  const at::Tensor drawn = at::rand({4});
  at::manual_seed(8);
  CHECK(drawn.equal(at::rand({4})));
  CHECK(weights_of(trainer).equal(before));
  CHECK(parameters[0].grad().equal(at::ones_like(parameters[0])));
  CHECK_FALSE(parameters[1].grad().defined());
  CHECK_FALSE(state.model->modules(false).back()->is_training());
  CHECK(optim::learning_rates(*state.optimizer) == rates);
  CHECK(state.timestamp == timestamp);
  CHECK(to_string(*state.max_duration) == "6ba");
  CHECK(state.stop.why() == why);
  CHECK(state.batch_loss.at("total").is_same(total));
}

// Counts what it sees.
class Seen final : public Algorithm {
 public:
  EventSet events() const override { return EventSet::all(); }
  void apply(Event event, State& state, Logger&) override {
    ++count[to_string(event)];
    if (event == Event::BATCH_START) rates.push_back(optim::learning_rates(*state.optimizer));
  }
  std::map<std::string_view, int> count;
  std::vector<std::vector<double>> rates;
};

// Remembers batches, in each of the ways in which an algorithm may, and follows what it remembers.
class Remembering final : public Algorithm {
 public:
  EventSet events() const override { return {Event::BATCH_START, Event::AFTER_TRAIN_BATCH}; }
  void apply(Event event, State& state, Logger&) override {
    if (event == Event::BATCH_START) {
      ++batches;
      in_place.add_(1);
      last = static_cast<double>(batches);
      return;
    }
    for (const at::Tensor& parameter : state.model->parameters()) parameter.mutable_grad().div_(in_place + batches);
  }
  void visit_state(StateVisitor& visit) override {
    visit("batches", batches);
    visit("in_place", in_place);
    visit("last", last);
  }
  std::int64_t batches = 0;
  at::Tensor in_place = at::zeros({1});
  std::optional<double> last;
};

TEST_CASE("A trial is taken back from the memory of algorithms, also what was not there before") {
  const auto train = [](bool look) {
    const auto memory = std::make_shared<Remembering>();
    TrainerOptions options = tiny_options();
    options.algorithms = {memory};
    Trainer trainer(std::move(options));
    for (const std::int64_t batches : {1, 2}) {
      if (look) trainer.find_lr({.num_batches = 5});
      CHECK(memory->batches == memory->in_place.item<double>());
      CHECK(memory->last.has_value() == (memory->batches > 0));
      trainer.fit(Time(batches, TimeUnit::BATCH));
    }
    CHECK(memory->batches == 3);
    return weights_of(trainer);
  };
  CHECK(train(true).equal(train(false)));
}

TEST_CASE("A trial whose algorithm throws what is no std::exception when its memory is put back says so") {
  struct Forgetful : Algorithm {
    EventSet events() const override { return {Event::BATCH_END}; }
    void apply(Event, State&, Logger&) override {}
    void visit_state(StateVisitor& visit) override {
      if (visit.is_loading()) throw 42;
    }
  };
  const Warnings warnings;
  TrainerOptions options = tiny_options();
  options.algorithms = {Forgetful()};
  Trainer trainer(std::move(options));
  CHECK_NOTHROW(trainer.find_lr({.num_batches = 5}));
  CHECK(warnings.say("Forgetful: its state after the trial could not be undone: something that is not a std::exc"));
}

TEST_CASE("Algorithms take part in a trial; callbacks, loggers, evaluators and schedules do not") {
  auto seen = std::make_shared<Seen>();
  auto events = std::make_shared<EventLog>();
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tiny_options();
  options.optimizer = optim::sgd({.lr = 0.5, .groups = {{.match = "*bias", .lr = 0.05}}});
  options.algorithms = {seen};
  options.callbacks = {events};
  options.loggers = {memory};
  options.eval_dataloader = tiny_loader(8, 4);
  options.schedulers = {optim::constant({.alpha = 0.125})};
  options.device_train_microbatch_size = 2;
  Trainer trainer(std::move(options));
  const std::size_t events_before = events->names.size();
  seen->count.clear();
  const LrCurve curve = trainer.find_lr({.start_lr = 1e-4, .end_lr = 1e-2, .num_batches = 5});
  CHECK(curve.points.size() == 5);
  CHECK(seen->count["fit_start"] == 1);
  CHECK(seen->count["batch_end"] == 5);
  CHECK(seen->count["after_loss"] == 10);
  CHECK(seen->count["epoch_start"] == 2);  // of 4 batches
  CHECK(seen->count["eval_start"] == 0);
  CHECK(events->names.size() == events_before);
  CHECK(memory->keys().empty());
  REQUIRE(seen->rates.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(curve.points[i].lr == doctest::Approx(1e-4 * std::pow(100, static_cast<double>(i) / 4)));
    CHECK(seen->rates[i][0] == doctest::Approx(curve.points[i].lr));
    CHECK(seen->rates[i][1] == doctest::Approx(curve.points[i].lr / 10));
  }
}

TEST_CASE("The losses of a trial are those of a fit with the same rates") {
  const std::vector<double> rates = {0.1, 0.2, 0.4, 0.8, 1.6, 3.2};
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tiny_options();
  options.loggers = {memory};
  options.max_duration = "6ba";
  options.schedulers = {[&](const optim::ScheduleContext& now) {
    return rates[static_cast<std::size_t>(std::min<std::int64_t>(now.timestamp.batch, 5))] / 0.1;
  }};
  Trainer trainer(std::move(options));
  const LrCurve curve = trainer.find_lr({.start_lr = 0.1, .end_lr = 3.2, .num_batches = 6, .stop_at = INFINITY});
  trainer.fit();
  const auto losses = memory->get_timeseries("loss/train/total");
  REQUIRE(curve.points.size() == 6);
  REQUIRE(losses.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) CHECK(curve.points[i].loss == doctest::Approx(losses[i].number()).epsilon(1e-6));
}

// Its loss is so many times the real one.
struct Scaled final : Model {
  explicit Scaled(double factor) : inner(register_module("inner", tiny_model())), factor_(factor) {}
  Outputs forward(const Batch& batch) override { return inner->forward(batch); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return inner->loss(outputs, batch).only() * factor_;
  }
  std::shared_ptr<Model> inner;
  double factor_;
};

TEST_CASE("A model that diverges, to NaN or beyond all bounds, ends the trial early and stays as it was") {
  TrainerOptions options = tiny_options();
  Trainer trainer(std::move(options));
  const at::Tensor before = weights_of(trainer).clone();
  const LrCurve far = trainer.find_lr({.start_lr = 1e-3, .end_lr = 1e6});
  CHECK(far.diverged);
  CHECK(far.points.size() < 90);
  CHECK(far.points.back().lr < 1e6);
  const LrCurve nan = trainer.find_lr({.start_lr = 1e30, .end_lr = 1e300, .stop_at = INFINITY});
  CHECK(nan.diverged);
  for (const LrPoint& point : nan.points) CHECK(std::isfinite(point.loss));
  CHECK(weights_of(trainer).equal(before));
  trainer.fit();
  CHECK(at::isfinite(weights_of(trainer)).all().item<bool>());
}

TEST_CASE("A loss that is no number from the start is an error that says so") {
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Scaled>(NAN);
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.find_lr(), "find_lr: the loss of the first batch is nan, before any step has been made",
                       ConfigError);
}

TEST_CASE("An error in the middle of a trial leaves the trainer as it was, ready to fit") {
  class Thrower final : public Algorithm {
   public:
    EventSet events() const override { return {Event::AFTER_LOSS}; }
    void apply(Event, State&, Logger&) override {
      if (--left == 0) throw std::runtime_error("enough");
    }
    int left = 4;
  };
  TrainerOptions options = tiny_options();
  options.algorithms = {Thrower()};
  Trainer trainer(std::move(options));
  const at::Tensor before = weights_of(trainer).clone();
  CHECK_THROWS_AS(trainer.find_lr(), RunError);
  CHECK(weights_of(trainer).equal(before));
  CHECK(optim::learning_rates(*trainer.state().optimizer)[0] == 0.1);
  CHECK_NOTHROW(trainer.fit());
}

// Follows the share of the run that is done, and freezes the model's last parameter at half of it.
class Freezing final : public Algorithm {
 public:
  EventSet events() const override { return {Event::FIT_START, Event::BATCH_END}; }
  void apply(Event, State& state, Logger&) override {
    shares.push_back(state.elapsed_duration());
    limits.push_back(to_string(*state.max_duration));
    if (freezes || shares.back() >= 0.5) state.model->parameters().back().requires_grad_(false);
  }
  std::vector<double> shares;
  std::vector<std::string> limits;
  bool freezes = false;
};

TEST_CASE("Algorithms see the max_duration of the run in a trial, wherever the run is") {
  const auto seen = std::make_shared<Freezing>();
  TrainerOptions options = tiny_options();  // 4 batches an epoch
  options.max_duration = "10ep";
  options.algorithms = {seen};
  Trainer trainer(std::move(options));
  trainer.find_lr({.end_lr = 1e-3, .num_batches = 8});
  CHECK(seen->limits == std::vector<std::string>(9, "10ep"));
  CHECK(seen->shares.back() == doctest::Approx(0.1));
  CHECK(trainer.state().model->parameters().back().requires_grad());

  trainer.fit({.duration = "2ba"});
  CHECK(trainer.find_lr({.end_lr = 1e-3, .num_batches = 8}).points.size() == 8);  // beyond the run of 2 batches
  CHECK(to_string(*trainer.state().max_duration) == "2ba");
  trainer.close();

  TrainerOptions without = tiny_options();
  without.max_duration = std::nullopt;
  without.algorithms = {seen};
  Trainer endless(std::move(without));
  seen->shares.clear();
  CHECK(endless.find_lr({.end_lr = 1e-3, .num_batches = 8}).points.size() == 8);
  CHECK(seen->shares.back() == 1);
  CHECK_FALSE(endless.state().max_duration.has_value());
}

TEST_CASE("What an algorithm freezes in a trial is trainable after it, and the other way round") {
  const auto freezing = std::make_shared<Freezing>();
  freezing->freezes = true;
  TrainerOptions options = tiny_options();
  options.algorithms = {freezing};
  Trainer trainer(std::move(options));
  auto parameters = trainer.state().model->parameters();
  trainer.find_lr({.num_batches = 3});
  CHECK(parameters.back().requires_grad());
  freezing->freezes = false;
  parameters.front().requires_grad_(false);
  trainer.find_lr({.num_batches = 3});
  CHECK_FALSE(parameters.front().requires_grad());
  CHECK(parameters.back().requires_grad());
}

TEST_CASE("An algorithm that takes no part in trials sees nothing of them") {
  class Absent final : public Algorithm {
   public:
    EventSet events() const override { return EventSet::all(); }
    void apply(Event event, State&, Logger&) override { fits += event == Event::FIT_START; }
    bool takes_part_in_trials() const override { return false; }
    void visit_state(StateVisitor& visit) override {
      if (visit.is_loading()) throw std::runtime_error("cannot be restored");
    }
    int fits = 0;
  };
  const auto absent = std::make_shared<Absent>();
  TrainerOptions options = tiny_options();
  options.algorithms = {absent};
  Trainer trainer(std::move(options));
  const Warnings warnings;
  trainer.find_lr({.num_batches = 3});
  CHECK(absent->fits == 0);
  CHECK(warnings.texts.empty());
  trainer.fit();
  CHECK(absent->fits == 1);
}

// No memory holds a copy of its last parameter.
struct Huge final : Model {
  Huge() {
    register_module("fc", fc);
    register_parameter("huge", at::zeros({1}).expand({std::int64_t{1} << 50}), /*requires_grad=*/false);
  }
  Outputs forward(const Batch& batch) override { return fc->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  torch::nn::Linear fc{4, 3};
};

TEST_CASE("A trial for which there is no memory leaves the gradients where they were") {
  const auto model = std::make_shared<Huge>();
  TrainerOptions options = tiny_options();
  options.model = model;
  options.optimizer = std::make_shared<torch::optim::Adam>(model->fc->parameters(), 0.1);
  Trainer trainer(std::move(options));
  model->fc->weight.mutable_grad() = at::ones({3, 4});
  CHECK_THROWS_AS(trainer.find_lr(), c10::Error);
  REQUIRE(model->fc->weight.grad().defined());
  CHECK(model->fc->weight.grad().equal(at::ones({3, 4})));
}

TEST_CASE("A trial keeps the gradient of a parameter that is registered twice") {
  struct Tied final : Model {
    Tied() {
      register_module("a", fc);
      register_module("b", fc);
    }
    Outputs forward(const Batch& batch) override { return fc->forward(batch["input"]); }
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      return at::cross_entropy_loss(outputs.only(), batch["target"]);
    }
    torch::nn::Linear fc{4, 3};
  };
  const auto model = std::make_shared<Tied>();
  TrainerOptions options = tiny_options();
  options.model = model;
  Trainer trainer(std::move(options));
  model->fc->weight.mutable_grad() = at::ones({3, 4});
  trainer.find_lr({.num_batches = 3});
  REQUIRE(model->fc->weight.grad().defined());
  CHECK(model->fc->weight.grad().equal(at::ones({3, 4})));
}

TEST_CASE("What a trial cannot do is refused before anything is trained") {
  const auto refused = [](Trainer& trainer, const FindLrOptions& options, const char* text) {
    const at::Tensor before = weights_of(trainer).clone();
    CHECK_THROWS_WITH_AS(trainer.find_lr(options), doctest::Contains(text), ConfigError);
    CHECK(weights_of(trainer).equal(before));
  };
  Trainer trainer(tiny_options());
  refused(trainer, {.start_lr = 0}, "find_lr: must be 0 < start_lr < end_lr, got 0 and 10");
  refused(trainer, {.start_lr = 1, .end_lr = 1}, "0 < start_lr < end_lr, got 1 and 1");
  refused(trainer, {.start_lr = NAN}, "start_lr");
  refused(trainer, {.num_batches = 1}, "find_lr: num_batches must be >= 2, got 1");
  refused(trainer, {.smoothing = 1}, "find_lr: smoothing must be in [0, 1), got 1");
  refused(trainer, {.stop_at = 1}, "find_lr: stop_at must be > 1, got 1");
  trainer.begin();
  refused(trainer, {}, "find_lr: a fit is going on");
  trainer.end();
  trainer.close();
  CHECK_THROWS_WITH_AS(trainer.find_lr(), "Trainer: find_lr() after close(); make a new Trainer", Error);

  TrainerOptions without = tiny_options();
  without.optimizer = {};
  Trainer no_optimizer(std::move(without));
  refused(no_optimizer, {}, "optimizer: is required to find_lr");
  TrainerOptions empty = tiny_options();
  empty.train_dataloader = {};
  Trainer no_loader(std::move(empty));
  refused(no_loader, {}, "find_lr: a train_dataloader is required");
  CHECK(no_loader.find_lr({.end_lr = 1, .num_batches = 3, .train_dataloader = tiny_loader(16, 4)}).points.size() == 3);
}

std::vector<double> rising(std::size_t count) {
  std::vector<double> rates;
  for (std::size_t i = 0; i < count; ++i)
    rates.push_back(1e-7 * std::pow(1e8, static_cast<double>(i) / static_cast<double>(count - 1)));
  return rates;
}

TEST_CASE("The suggestion is where the loss falls most steeply, neither early nor late") {
  const std::vector<double> rates = rising(100);
  std::vector<double> losses;
  for (const double lr : rates)  // falls around 1e-3, rises from 0.3 on
    losses.push_back(2.3 - 1.8 / (1 + std::pow(1e-3 / lr, 2)) + std::pow(lr / 0.3, 2));
  const LrCurve curve = LrCurve::of(rates, losses);
  REQUIRE(curve.suggestion);
  CHECK(std::abs(std::log10(*curve.suggestion / 1e-3)) < 0.2);
  CHECK(curve.diverged);
}

TEST_CASE("Nothing is suggested for a loss that does not fall, or only by chance") {
  const std::vector<double> rates = rising(100);
  std::vector<double> flat(100, 2.3), noise, up;
  for (std::size_t i = 0; i < 100; ++i) {
    noise.push_back(2.3 + 0.2 * std::sin(static_cast<double>(i * i)));
    up.push_back(1 + static_cast<double>(i) / 100);
  }
  CHECK_FALSE(LrCurve::of(rates, flat).suggestion);
  CHECK_FALSE(LrCurve::of(rates, noise).suggestion);
  CHECK_FALSE(LrCurve::of(rates, up).suggestion);
  CHECK_FALSE(LrCurve::of({1, 2}, {2, 1}).suggestion);
  CHECK(LrCurve::of(rates, {}).points.empty());
  CHECK(LrCurve::of(rates, {}).plot({.utf8 = false}).find("nothing to plot") != std::string::npos);
  CHECK(LrCurve::of(rates, up).plot({.utf8 = false}).find("no learning rate to suggest") != std::string::npos);
}

TEST_CASE("The trial ends at the batch whose moving average is four times the best, counted the same way in groups") {
  std::vector<double> losses(50, 1.0);
  for (std::size_t i = 30; i < 50; ++i) losses[i] = 20;
  const LrCurve curve = LrCurve::of(rising(50), losses, {.smoothing = 0.9});
  // 1 + 19 * (1 - 0.9^k) > 4 at k = 2
  CHECK(curve.diverged);
  CHECK(curve.points.size() == 32);
  CHECK(LrCurve::of(rising(50), losses, {.stop_at = INFINITY}).points.size() == 50);
}

TEST_CASE("The plot of a curve marks and names the suggestion") {
  const std::vector<double> rates = rising(100);
  std::vector<double> losses;
  for (const double lr : rates) losses.push_back(2.3 - 1.8 / (1 + std::pow(1e-3 / lr, 2)) + std::pow(lr / 0.3, 2));
  const LrCurve curve = LrCurve::of(rates, losses);
  const std::string text = curve.plot({.utf8 = false});
  CHECK(text.find('^') != text.npos);
  CHECK(text.find("learning rate") != text.npos);
  REQUIRE(curve.suggestion);
  const auto named = text.find("suggested learning rate: ");
  REQUIRE(named != text.npos);
  CHECK(std::stod(text.substr(named + 25)) == doctest::Approx(*curve.suggestion).epsilon(0.05));
}

}  // namespace
}  // namespace composer::lr_finder_test
