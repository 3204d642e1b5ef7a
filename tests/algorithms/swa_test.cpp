#include "composer/algorithms/swa.h"

#include <cmath>
#include <memory>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/optim/schedulers.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::swa_test {

using algorithms::AnnealStrategy;
using algorithms::SWA;
using algorithms::swa_learning_rate;
using algorithms::SWAOptions;

namespace {

using Values = std::vector<at::Tensor>;

TrainerOptions options(const SWAOptions& swa) {
  TrainerOptions options = test::tiny_options();
  at::manual_seed(1);
  options.model = std::make_shared<models::Classifier>(
      torch::nn::Sequential(torch::nn::Linear(4, 5), torch::nn::BatchNorm1d(5), torch::nn::Linear(5, 3)),
      models::ClassifierOptions{.num_classes = 3});
  options.max_duration = "5ep";
  options.algorithms = {SWA(swa)};
  return options;
}

Values values_of(const Model& model) {
  Values values;
  for (const at::Tensor& parameter : model.parameters()) values.push_back(parameter.detach().clone());
  return values;
}

struct Course {
  std::vector<Values> before, after;  // the parameters at the end of each batch, before and after SWA acts
  std::vector<double> rates;
};

// Notes the parameters before SWA has done anything at this event.
class Before final : public Algorithm {
 public:
  Before(Course& run, Event event) : run_(run), event_(event) {}
  EventSet events() const override { return {event_}; }
  void apply(Event, State& state, Logger&) override { run_.before.push_back(values_of(*state.model)); }

 private:
  Course& run_;
  Event event_;
};

Course run(TrainerOptions options, Event event) {
  Course seen;
  Algorithms algorithms = {Before(seen, event)};
  for (const auto& one : options.algorithms.list()) algorithms.add(one.object);
  options.algorithms = algorithms;
  options.callbacks = {test::At([&seen, event](Event now, const State& state) {
    if (now == event) seen.after.push_back(values_of(*state.model));
    if (now == Event::BATCH_START) seen.rates.push_back(optim::learning_rates(*state.optimizer).front());
  })};
  Trainer(std::move(options)).fit();
  return seen;
}

bool close(const Values& a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!at::allclose(a[i], b[i], 1e-5, 1e-6)) return false;
  return a.size() == b.size();
}

Values mean(const std::vector<Values>& all, const std::vector<std::size_t>& which) {
  Values sum = all[which.front()];
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] = at::zeros_like(sum[i]);
    for (const std::size_t one : which) sum[i] += all[one][i] / static_cast<double>(which.size());
  }
  return sum;
}

}  // namespace

TEST_CASE("SWA puts the mean of the weights after each epoch since swa_start into the model at swa_end") {
  for (const auto& swa :
       {SWAOptions{.swa_start = "2ep", .swa_end = "4ep"}, SWAOptions{.swa_start = "0.4dur", .swa_end = "0.8dur"}}) {
    const Course seen = run(options(swa), Event::EPOCH_END);
    for (const std::size_t epoch : {0, 1, 2, 4}) CHECK(close(seen.before[epoch], seen.after[epoch]));
    CHECK_FALSE(close(seen.before[3], seen.after[3]));
    CHECK(close(seen.after[3], mean(seen.before, {1, 2, 3})));
  }
}

TEST_CASE("SWA counted in batches averages every update_interval from its first batch on") {
  TrainerOptions with = options({.swa_start = "0.25dur", .swa_end = "0.9dur", .update_interval = "4ba"});
  with.max_duration = "20ba";
  const Course seen = run(std::move(with), Event::BATCH_END);
  // batches 5, 9, 13 and 17 of 20; 18 is the first at 0.9 of the run
  CHECK(close(seen.after[17], mean(seen.before, {4, 8, 12, 16})));
  for (const std::size_t batch : {0, 4, 8, 16, 18, 19}) CHECK(close(seen.before[batch], seen.after[batch]));
}

TEST_CASE("A run in epochs gets the averages of batches when the last epoch is counted") {
  TrainerOptions with = options({.swa_start = "0.2dur", .swa_end = "0.9dur", .update_interval = "4ba"});
  std::vector<Values> ends;
  Values last;
  with.callbacks = {test::At([&](Event event, const State& state) {
    if (event == Event::BATCH_END) ends.push_back(values_of(*state.model));
    if (event == Event::EPOCH_END) last = values_of(*state.model);
  })};
  Trainer(std::move(with)).fit();
  // the first epoch is counted after batch 4, so the updates are those of batches 5, 9, 13 and 17 of 20
  CHECK(close(last, mean(ends, {4, 8, 12, 16})));
}

TEST_CASE("SWA takes the learning rate to swa_lr in anneal_steps updates, with and without schedules") {
  for (const bool scheduled : {false, true}) {
    TrainerOptions with =
        options({.swa_start = "1ep", .swa_end = "4ep", .schedule_swa_lr = true, .anneal_steps = 2, .swa_lr = 0.01});
    if (scheduled) with.schedulers = {optim::constant()};
    const Course seen = run(std::move(with), Event::EPOCH_END);
    const std::vector<double> of_epochs{0.1, 0.055, 0.01, 0.01, 0.01};
    for (std::size_t batch = 0; batch < 20; ++batch) {
      CAPTURE(batch);
      CHECK(seen.rates[batch] == doctest::Approx(of_epochs[batch / 4]));
    }
  }
}

TEST_CASE("SWA sets the learning rates of the fit in which it was completed, not of later ones") {
  for (const bool scheduled : {false, true}) {
    CAPTURE(scheduled);
    std::vector<double> rates;
    TrainerOptions with =
        options({.swa_start = "1ep", .swa_end = "3ep", .schedule_swa_lr = true, .anneal_steps = 1, .swa_lr = 0.01});
    if (scheduled) with.schedulers = {optim::constant()};
    with.max_duration = "4ep";
    with.callbacks = {test::At([&](Event event, const State& state) {
      if (event == Event::EPOCH_START) rates.push_back(optim::learning_rates(*state.optimizer).front());
      if (event == Event::BATCH_START) rates.back() = optim::learning_rates(*state.optimizer).front();
    })};
    Trainer trainer(std::move(with));
    trainer.fit();
    trainer.fit("2ep");
    CHECK(rates == std::vector<double>{0.1, 0.01, 0.01, 0.01, 0.1, 0.1});
  }
}

TEST_CASE("SWA that a stop has interrupted sets the learning rates of the rest of the run") {
  std::vector<double> rates;
  TrainerOptions with =
      options({.swa_start = "1ep", .swa_end = "2ep", .schedule_swa_lr = true, .anneal_steps = 1, .swa_lr = 0.01});
  with.callbacks = {test::At([&](Event event, const State& state) {
    if (event == Event::BATCH_START) rates.push_back(optim::learning_rates(*state.optimizer).front());
  })};
  Trainer trainer(std::move(with));
  trainer.begin();
  while (trainer.state().timestamp.batch < 14) trainer.step();
  trainer.end();
  trainer.fit();
  REQUIRE(rates.size() == 20);
  CHECK(rates.back() == 0.01);
}

TEST_CASE("A fit in shares of a longer run has its own learning rates until its swa_start") {
  std::vector<double> rates;
  TrainerOptions with = options({.swa_start = "0.5dur",
                                 .swa_end = "1dur",
                                 .update_interval = "1ba",
                                 .schedule_swa_lr = true,
                                 .anneal_steps = 1,
                                 .swa_lr = 0.01});
  with.max_duration = "8ba";
  with.callbacks = {test::At([&](Event event, const State& state) {
    if (event == Event::BATCH_START) rates.push_back(optim::learning_rates(*state.optimizer).front());
  })};
  Trainer trainer(std::move(with));
  trainer.begin();
  while (trainer.state().timestamp.batch < 6) trainer.step();
  trainer.end();
  trainer.fit("14ba");
  REQUIRE(rates.size() == 20);
  CHECK(rates[5] == 0.01);
  CHECK(rates[6] == 0.1);
  CHECK(rates[19] == 0.01);
}

TEST_CASE("SWA begins anew in a fit that counts from zero") {
  for (const bool completed : {false, true}) {
    CAPTURE(completed);
    const auto swa = std::make_shared<SWA>(SWAOptions{.swa_start = "1ep", .swa_end = "4ep"});
    Course seen;
    TrainerOptions with = options({});
    with.algorithms = {Before(seen, Event::EPOCH_END), swa};
    with.callbacks = {test::At([&seen](Event event, const State& state) {
      if (event == Event::EPOCH_END) seen.after.push_back(values_of(*state.model));
    })};
    Trainer trainer(std::move(with));
    trainer.fit(Time(completed ? 5 : 3, TimeUnit::EPOCH));
    seen = {};
    trainer.fit({.duration = "5ep", .reset_time = true});
    CHECK(swa->updates() == 4);
    REQUIRE(seen.after.size() == 5);
    CHECK(close(seen.after[0], seen.before[0]));
    CHECK(close(seen.after[3], mean(seen.before, {0, 1, 2, 3})));
  }
}

TEST_CASE("The rate of SWA follows a line or half a cosine") {
  const SWAOptions line{.schedule_swa_lr = true, .anneal_steps = 4, .swa_lr = 0.5};
  SWAOptions cosine = line;
  cosine.anneal_strategy = AnnealStrategy::COS;
  CHECK(swa_learning_rate(1, 0, line) == 1);
  CHECK(swa_learning_rate(1, 1, line) == 0.875);
  CHECK(swa_learning_rate(1, 9, line) == 0.5);
  CHECK(swa_learning_rate(1, 1, cosine) == doctest::Approx(1 - 0.25 * (1 - std::sqrt(0.5))));
  CHECK(swa_learning_rate(1, 4, cosine) == 0.5);
  CHECK(swa_learning_rate(1, 3, {}) == 1);
}

TEST_CASE("A run with SWA that is cut and resumed ends as one that is not, before, while and after it averages") {
  for (const std::int64_t batch : {2, 9, 13, 17}) {
    CAPTURE(batch);
    test::check_cut_and_resumed(
        [] {
          return options({.swa_start = "1ep",
                          .swa_end = "4ep",
                          .update_interval = "3ba",
                          .schedule_swa_lr = true,
                          .anneal_steps = 3,
                          .swa_lr = 0.02});
        },
        batch);
  }
}

TEST_CASE("SWA warns if training ends before swa_end, or with it and batch norms have stale statistics") {
  {
    const test::Warnings warnings;
    Trainer(options({.swa_start = "2ep", .swa_end = "9ep"})).fit();
    CHECK(warnings.say("SWA: swa_end is 9ep, and training ends before, at 5ep"));
  }
  const test::Warnings warnings;
  Trainer(options({.swa_start = "2ep", .swa_end = "5ep"})).fit();
  CHECK(warnings.say("SWA: training ends where averaging does"));
}

TEST_CASE("SWA warns at the end of a run in which the model did not get the averages") {
  const test::Warnings warnings;
  TrainerOptions with = options({});  // at the ends of epochs
  with.max_duration = "3ba";
  Trainer(std::move(with)).fit();
  CHECK(warnings.say("SWA: the run is over, and the model did not get the averages"));
}

TEST_CASE("SWA begins anew in the next trainer") {
  const auto swa = std::make_shared<SWA>(SWAOptions{.swa_start = "2ep", .swa_end = "4ep"});
  std::vector<Values> ends;
  for (int i = 0; i < 2; ++i) {
    TrainerOptions with = options({});
    with.algorithms = {swa};
    Trainer trainer(std::move(with));
    trainer.fit();
    CHECK(swa->updates() == 3);
    ends.push_back(values_of(*trainer.state().model));
  }
  for (std::size_t i = 0; i < ends[0].size(); ++i) CHECK(ends[0][i].equal(ends[1][i]));
}

TEST_CASE("With the averages of SWA the model gets the buffers of the last update") {
  TrainerOptions with = options({.swa_start = "1ep", .swa_end = "4ep", .update_interval = "2ep"});
  std::vector<std::vector<at::Tensor>> seen;
  std::vector<at::Tensor> put;
  const auto buffers_of = [](const State& state) {
    std::vector<at::Tensor> buffers;
    for (const at::Tensor& buffer : state.model->buffers()) buffers.push_back(buffer.clone());
    return buffers;
  };
  with.callbacks = {test::At([&](Event event, const State& state) {
    if (event == Event::BATCH_END && state.timestamp.batch_in_epoch == 4) seen.push_back(buffers_of(state));
    if (event == Event::EPOCH_END && state.timestamp.epoch == 4) put = buffers_of(state);
  })};
  Trainer(std::move(with)).fit();
  REQUIRE(seen.size() == 5);
  REQUIRE(put.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(put[i].equal(seen[2][i]));  // updates after epochs 1 and 3
}

TEST_CASE("SWA refuses options that make no sense, with their values") {
  const auto refuse = [](const SWAOptions& options, const char* text) {
    CHECK_THROWS_WITH_AS(SWA{options}, doctest::Contains(text), ConfigError);
  };
  refuse({.swa_end = "4ep"}, "SWA: swa_start and swa_end must have the same unit, got 0.7dur and 4ep");
  refuse({.swa_start = "5ba", .swa_end = "8ba"},
         "swa_start must be a share of the run (dur) or in epochs (ep), got 5ba");
  refuse({.swa_start = "0.9dur", .swa_end = "0.5dur"}, "swa_end must be after swa_start, 0.9dur, got 0.5dur");
  refuse({.swa_end = "1.5dur"}, "a share at most 1dur, got 1.5dur");
  refuse({.update_interval = "10sp"}, "update_interval must be > 0, in batches (ba) or epochs (ep), got 10sp");
  refuse({.anneal_steps = 0}, "anneal_steps must be >= 1, got 0");
  refuse({.schedule_swa_lr = true, .swa_lr = -1}, "swa_lr must be > 0");
  refuse({.schedule_swa_lr = true, .swa_lr = NAN}, "swa_lr must be > 0");
  refuse({.swa_lr = 0.1}, "swa_lr is 0.1, and has no effect unless schedule_swa_lr is true");
}

}  // namespace composer::swa_test
