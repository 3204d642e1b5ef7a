#include <ATen/ops/cross_entropy_loss.h>
#include <torch/optim/sgd.h>

#include "composer/loggers/in_memory_logger.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/algorithm_at.h"

namespace composer::test::loop_test {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("Events of two microbatches a batch and two evaluators fire as often as they should") {
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.train_subset_num_batches = 1;
  options.eval_dataloader = {tiny_loader(4, 4), tiny_loader(4, 4)};
  options.device_train_microbatch_size = 2;
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.fit();
  for (const char* once :
       {"init", "before_load", "after_load", "fit_start", "iteration_start", "epoch_start", "after_dataloader",
        "batch_start", "before_train_batch", "after_train_batch", "batch_end", "batch_checkpoint", "epoch_end",
        "epoch_checkpoint", "fit_end", "eval_before_all", "eval_after_all"}) {
    CAPTURE(once);
    CHECK(log->count(once) == 1);
  }
  for (const char* twice : {"before_dataloader", "before_forward", "after_forward", "before_loss", "after_loss",
                            "before_backward", "after_backward", "eval_start", "eval_end", "eval_batch_start"}) {
    CAPTURE(twice);
    CHECK(log->count(twice) == 2);
  }
  CHECK(log->count("iteration_end") == 0);
}

TEST_CASE("A batch's events come in Composer's order") {
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.max_duration = "1ba";
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(log->names ==
        Names{"init",           "before_load",       "after_load",       "fit_start",        "iteration_start",
              "epoch_start",    "before_dataloader", "after_dataloader", "batch_start",      "before_train_batch",
              "before_forward", "after_forward",     "before_loss",      "after_loss",       "before_backward",
              "after_backward", "after_train_batch", "batch_end",        "batch_checkpoint", "fit_end"});
}

TEST_CASE("Counters show a batch at BATCH_END and an epoch at EPOCH_END, and the final evaluation follows FIT_END") {
  Names seen;
  TrainerOptions options = tiny_options();
  options.max_duration = "5ba";
  options.eval_dataloader = tiny_loader(4, 4);
  options.eval_interval = "10ba";
  options.callbacks = {At([&](Event event, const State& state) {
    const Timestamp& now = state.timestamp;
    if (event == Event::BATCH_START || event == Event::BATCH_END || event == Event::EPOCH_END)
      seen.push_back(join(to_string(event), " ", now.epoch, " ", now.batch, " ", now.batch_in_epoch));
    if (event == Event::FIT_END || event == Event::EVAL_START) seen.emplace_back(to_string(event));
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(seen == Names{"batch_start 0 0 0", "batch_end 0 1 1", "batch_start 0 1 1", "batch_end 0 2 2",
                      "batch_start 0 2 2", "batch_end 0 3 3", "batch_start 0 3 3", "batch_end 0 4 4", "epoch_end 1 4 0",
                      "batch_start 1 4 0", "batch_end 1 5 1", "fit_end", "eval_start"});
}

TEST_CASE("A schedule applies to the batch it is computed for, and ends where it should") {
  std::vector<double> rates;
  TrainerOptions options = tiny_options();
  options.optimizer = optim::sgd({.lr = 1});
  options.max_duration = "8ba";
  options.schedulers = {optim::linear()};
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BEFORE_TRAIN_BATCH) rates.push_back(optim::learning_rates(*state.optimizer).front());
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  REQUIRE(rates.size() == 8);
  for (std::size_t k = 0; k < 8; ++k) CHECK(rates[k] == doctest::Approx(1 - static_cast<double>(k) / 8));
  CHECK(optim::learning_rates(*trainer.state().optimizer).front() == doctest::Approx(0));
}

TEST_CASE("Schedules of whole epochs change between epochs only, and several are multiplied") {
  std::vector<double> rates;
  TrainerOptions options = tiny_options();
  options.optimizer = optim::sgd({.lr = 1});
  options.max_duration = "2ep";
  options.schedulers = {optim::linear(), optim::constant({.alpha = 0.5})};
  options.step_schedulers_every_batch = false;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BEFORE_TRAIN_BATCH) rates.push_back(optim::learning_rates(*state.optimizer).front());
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(rates == std::vector<double>{.5, .5, .5, .5, .25, .25, .25, .25});
}

TEST_CASE("A warm-up that changes between epochs only warns of a first epoch without a learning rate") {
  for (const bool every_batch : {false, true}) {
    CAPTURE(every_batch);
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.max_duration = "2ep";
    options.schedulers = {optim::constant_with_warmup({.t_warmup = "1ep"})};
    options.step_schedulers_every_batch = every_batch;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(warnings.say("the whole first epoch trains with a learning rate of 0") == !every_batch);
    trainer.fit("1ep");
    CHECK(warnings.texts.size() == (every_batch ? 0 : 1));
  }
}

struct ManyLosses : Model {
  explicit ManyLosses(Names given) : names(std::move(given)) { register_module("fc", fc); }
  Outputs forward(const Batch& batch) override { return fc->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch&) override {
    Losses losses;
    for (std::size_t i = 0; i < names.size(); ++i)
      losses.set(names[i], outputs.only().square().mean() * static_cast<double>(i + 1));
    return losses;
  }
  torch::nn::Linear fc{4, 3};
  Names names;
};

TEST_CASE("Losses are logged by name, and their sum or the one called total is minimised") {
  struct Row {
    Names names, keys;
    double total_in_first;  // the total, in units of the first loss
  };
  for (const auto& [names, keys, total] :
       {Row{{"total"}, {"loss/train/total"}, 1},
        Row{{"loss0", "loss1"}, {"loss/train/loss0", "loss/train/loss1", "loss/train/total"}, 3},
        Row{{"ce", "l2", "total"}, {"loss/train/ce", "loss/train/l2", "loss/train/total"}, 3}}) {
    auto memory = std::make_shared<loggers::InMemoryLogger>();
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<ManyLosses>(names);
    options.max_duration = "1ba";
    options.loggers = {memory};
    Trainer trainer(std::move(options));
    trainer.fit();
    Names logged;
    for (const std::string& key : memory->keys())
      if (key.starts_with("loss/")) logged.push_back(key);
    CHECK(logged == keys);
    CHECK(memory->most_recent("loss/train/total").number() ==
          doctest::Approx(total * memory->most_recent("loss/train/" + names.front()).number()));
  }
}

TEST_CASE("state.batch is the whole batch around the microbatches") {
  Names seen;
  TrainerOptions options = tiny_options();
  options.max_duration = "1ba";
  options.device_train_microbatch_size = 3;
  options.callbacks = {At([&](Event event, const State& state) {
    for (Event at : {Event::AFTER_DATALOADER, Event::BATCH_START, Event::BEFORE_TRAIN_BATCH, Event::BEFORE_FORWARD,
                     Event::AFTER_BACKWARD, Event::AFTER_TRAIN_BATCH, Event::BATCH_END})
      if (event == at) seen.push_back(join(to_string(event), " ", state.batch.front().size(0)));
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(seen == Names{"after_dataloader 4", "batch_start 4", "before_train_batch 4", "before_forward 3",
                      "after_backward 3", "before_forward 1", "after_backward 1", "after_train_batch 4",
                      "batch_end 4"});
}

TEST_CASE("Transforms, counts and splits happen in Composer's order") {
  Names seen;
  DataSpec spec{.dataloader = tiny_loader(4, 4)};
  spec.batch_transforms = [&](Batch&) { seen.emplace_back("batch_transforms"); };
  spec.microbatch_transforms = [&](Batch&) { seen.emplace_back("microbatch_transforms"); };
  spec.get_num_samples_in_batch = [&](const Batch& batch) {
    seen.push_back(join("samples ", batch.front().size(0)));
    return batch.front().size(0);
  };
  spec.get_num_tokens_in_batch = [&](const Batch&) {
    seen.emplace_back("tokens");
    return TokenCount(7);
  };
  spec.split_batch = [&](const Batch& batch, std::int64_t size) {
    seen.emplace_back("split");
    return composer::split_batch(batch, size);
  };
  const auto loss_fn = [](const at::Tensor& logits, const at::Tensor& target) {
    return at::cross_entropy_loss(logits, target);
  };
  TrainerOptions options = tiny_options();
  // A model that does not say what its loss is a mean over: the samples of each part are counted.
  options.model = std::make_shared<models::Classifier>(torch::nn::Linear(4, 3),
                                                       models::ClassifierOptions{.num_classes = 3, .loss_fn = loss_fn});
  options.train_dataloader = spec;
  options.max_duration = "1ba";
  options.device_train_microbatch_size = 2;
  options.callbacks = {At([&](Event event, const State&) {
    for (Event at : {Event::AFTER_DATALOADER, Event::BATCH_START, Event::BEFORE_TRAIN_BATCH, Event::BEFORE_FORWARD})
      if (event == at) seen.emplace_back(to_string(event));
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(seen == Names{"batch_transforms", "samples 4", "tokens", "after_dataloader", "batch_start", "split",
                      "before_train_batch", "samples 2", "samples 2", "microbatch_transforms", "samples 2",
                      "before_forward", "microbatch_transforms", "samples 2", "before_forward"});
  CHECK(trainer.state().timestamp.token == 7);
}

// Counts the calls of log_metrics.
struct CallCounter : LoggerDestination {
  void log_metrics(std::span<const LogEntry>, std::int64_t, const State&) override { ++calls; }
  void log_hyperparameters(std::span<const LogEntry> entries, const State&) override {
    for (const auto& [key, value] : entries) hyperparameters.emplace_back(key);
  }
  std::int64_t calls = 0;
  Names hyperparameters;
};

TEST_CASE("Metrics of training are those of each batch, logged again at the end of the epoch") {
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  auto counter = std::make_shared<CallCounter>();
  TrainerOptions options = tiny_options();
  options.model = tiny_model(/*train_metrics=*/true);
  options.max_duration = "2ep";
  options.eval_dataloader = tiny_loader(4, 4);
  options.loggers = {memory, counter};
  Trainer trainer(std::move(options));
  trainer.fit();
  const auto series = memory->get_timeseries("metrics/train/MulticlassAccuracy");
  REQUIRE(series.size() == 10);
  CHECK(series[4].number() == series[3].number());
  for (const auto& point : series) CHECK(std::fmod(point.number() * 4, 1) == doctest::Approx(0));  // of 4 samples
  CHECK(counter->calls == 2 * (2 + 4 * 3 + 1) + 1 + 2);  // one more an epoch for its means
  CHECK(memory->most_recent("trainer/device_train_microbatch_size").number() == 4);
}

TEST_CASE("Hyperparameters name the version, the seed and the algorithms") {
  struct Nothing : Algorithm {
    EventSet events() const override { return {}; }
    void apply(Event, State&, Logger&) override {}
  };
  auto counter = std::make_shared<CallCounter>();
  TrainerOptions options = tiny_options();
  options.algorithms = {Nothing()};
  options.loggers = {counter};
  Trainer trainer(std::move(options));
  trainer.fit();
  for (const char* key : {"composer_version", "rank_zero_seed", "enabled_algorithms/Nothing"}) {
    CAPTURE(key);
    CHECK(std::ranges::count(counter->hyperparameters, key) == 1);
  }
}

TEST_CASE("The optimizer gets a closure; gradients are there at BATCH_END, gone before forward and after fit") {
  struct Counting : torch::optim::SGD {
    using SGD::SGD;
    at::Tensor step(LossClosure closure) override {
      REQUIRE(closure);
      ++steps;
      return SGD::step(closure);
    }
    int steps = 0;
  };
  TrainerOptions options = tiny_options();
  auto optimizer = std::make_shared<Counting>(options.model->parameters(), torch::optim::SGDOptions(0.1));
  options.optimizer = optimizer;
  const auto has_gradients = [model = options.model] {
    return std::ranges::any_of(model->parameters(), [](const at::Tensor& p) { return p.grad().defined(); });
  };
  int at_batch_end = 0, at_forward = 0;
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::BATCH_END) at_batch_end += has_gradients();
    if (event == Event::BEFORE_FORWARD) at_forward += has_gradients();
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(optimizer->steps == 4);
  CHECK(at_batch_end == 4);
  CHECK(at_forward == 0);
  CHECK_FALSE(has_gradients());
}

TEST_CASE("A caller's own loop is the same loop") {
  const auto run = [](bool by_hand) {
    auto log = std::make_shared<EventLog>();
    TrainerOptions options = tiny_options();
    options.eval_dataloader = tiny_loader(4, 4);
    options.callbacks = {log};
    options.max_duration = "6ba";
    Trainer trainer(std::move(options));
    if (by_hand) {
      trainer.begin();
      while (trainer.step()) {
      }
      trainer.end();
    } else {
      trainer.fit();
    }
    return std::pair(log->names, weights_of(trainer));
  };
  const auto [names, weights] = run(false);
  const auto [by_hand, same] = run(true);
  CHECK(names == by_hand);
  CHECK(weights.equal(same));
}

TEST_CASE("A trainer without a loader trains on the batches it is given, for as long as it gets some") {
  TrainerOptions options = tiny_options();
  options.train_dataloader = {};
  options.max_duration = std::nullopt;
  Trainer trainer(std::move(options));
  trainer.begin();
  for (int i = 0; i < 3; ++i) CHECK(trainer.step(tiny_data(5)));
  trainer.end();
  CHECK(trainer.state().timestamp.batch == 3);
  CHECK(trainer.state().timestamp.sample == 15);
}

TEST_CASE("An algorithm that sets the position back gets the batches from there on") {
  std::vector<std::pair<std::int64_t, float>> seen;  // batch of the epoch, and what it begins with
  TrainerOptions options = tiny_options();
  options.max_duration = "6ba";
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_START)
      seen.emplace_back(state.timestamp.batch_in_epoch, state.batch["input"][0][0].item<float>());
  })};
  options.algorithms = {AlgorithmAt({Event::BATCH_END}, [](Event, State& state) {
    if (state.timestamp.batch == 3) state.timestamp.batch_in_epoch = 0;
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  REQUIRE(seen.size() == 6);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(seen[i].first == static_cast<std::int64_t>(i));
    CHECK(seen[i + 3] == seen[i]);
  }
}

TEST_CASE("The trainer's seed decides the order of a training loader that has no seed of its own") {
  const auto order = [](std::uint64_t seed, std::optional<std::uint64_t> own) {
    TrainerOptions options = tiny_options();
    options.seed = seed;
    options.train_dataloader = data::in_memory(tiny_data(32), {.batch_size = 8, .seed = own});
    std::vector<at::Tensor> seen;
    options.callbacks = {std::make_shared<At>([&](Event event, const State& state) {
      if (event == Event::BATCH_START) seen.push_back(state.batch["input"].select(1, 0).clone());
    })};
    Trainer(std::move(options)).fit();
    return at::cat(seen);
  };
  CHECK_FALSE(order(1, {}).equal(order(2, {})));
  CHECK(order(1, {}).equal(order(1, {})));
  CHECK(order(1, 9).equal(order(2, 9)));
  CHECK(order(1, {}).equal(order(7, 1)));
}

TEST_CASE("A resumed run keeps the order of the seed that it began with") {
  const auto order = [](const Folder& folder, std::uint64_t seed, Time until) {
    TrainerOptions options = tiny_options();
    options.seed = seed;
    options.max_duration = until;
    options.train_dataloader = data::in_memory(tiny_data(32), {.batch_size = 4});
    options.save_folder = folder / "ck";
    std::vector<at::Tensor> seen;
    options.callbacks = {std::make_shared<At>([&](Event event, const State& state) {
      if (event == Event::BATCH_START) seen.push_back(state.batch["input"].select(1, 0).clone());
    })};
    Trainer(std::move(options)).fit();
    return at::cat(seen);
  };
  const Folder whole, stopped;
  const at::Tensor expected = order(whole, 1, "2ep");
  const at::Tensor before = order(stopped, 1, "3ba"), after = order(stopped, 9, "2ep");
  CHECK(at::cat({before, after}).equal(expected));
}

TEST_CASE("An evaluation loader keeps its order whatever the trainer's seed is") {
  const auto order = [](std::uint64_t seed) {
    TrainerOptions options = tiny_options();
    options.seed = seed;
    options.eval_dataloader = data::in_memory(tiny_data(32), {.batch_size = 32});
    at::Tensor seen;
    options.callbacks = {std::make_shared<At>([&](Event event, const State& state) {
      if (event == Event::EVAL_BATCH_START) seen = state.batch["input"].clone();
    })};
    Trainer(std::move(options)).fit();
    return seen;
  };
  CHECK(order(1).equal(order(2)));
}

TEST_CASE("The same seed trains the same weights") {
  const auto run = [] {
    TrainerOptions options = tiny_options();
    options.seed = 5;
    options.train_dataloader = data::in_memory(tiny_data(16), {.batch_size = 4, .seed = 3});
    options.max_duration = "3ep";
    Trainer trainer(std::move(options));
    trainer.fit();
    return weights_of(trainer);
  };
  CHECK(run().equal(run()));
}

TEST_CASE("The losses of the last batch keep no graph alive, and a trial of microbatch sizes leaves none of its own") {
  for (const bool automatic : {false, true}) {
    CAPTURE(automatic);
    std::vector<bool> wants_gradients;
    std::vector<std::size_t> at_start;
    TrainerOptions options = tiny_options();
    if (automatic) options.device_train_microbatch_size = "auto";
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::BEFORE_TRAIN_BATCH) at_start.push_back(state.batch_loss.size());
      if (event != Event::BATCH_END) return;
      const at::Tensor& loss = state.batch_loss.at("total");
      wants_gradients.push_back(loss.requires_grad() || loss.grad_fn() != nullptr);
    })};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(wants_gradients == std::vector<bool>(4, false));
    CHECK(at_start.front() == 0);
  }
}

}  // namespace
}  // namespace composer::test::loop_test
