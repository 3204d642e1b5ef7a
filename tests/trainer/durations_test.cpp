#include <functional>

#include "composer/core/error.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"

namespace composer::test::durations_test {
namespace {

// Batches of 4 samples with 8 tokens each, 4 an epoch.
TrainerOptions with_tokens() {
  TrainerOptions options = tiny_options();
  DataSpec spec{.dataloader = tiny_loader(16, 4)};
  spec.get_num_tokens_in_batch = [](const Batch& batch) { return TokenCount(8 * batch.front().size(0)); };
  options.train_dataloader = spec;
  return options;
}

// Does not say how long it is.
class Unsized final : public Loader {
 public:
  void seek(std::int64_t epoch, std::int64_t batch) override { loader_->seek(epoch, batch); }
  std::optional<Batch> next() override { return loader_->next(); }

 private:
  std::shared_ptr<Loader> loader_ = tiny_loader(16, 4);
};

TEST_CASE("A limit in any unit ends the run at the first batch that reaches it") {
  struct Row {
    const char *duration, *why;
    std::int64_t batches;
  };
  for (const auto& [duration, why, batches] : {
           Row{"1ba", "one batch", 1},
           Row{"3sp", "the first count of samples that is >= 3", 1},
           Row{"9sp", "likewise", 3},
           Row{"1tok", "a token is in a batch", 1},
           Row{"32tok", "exactly a batch", 1},
           Row{"60tok", "rounded up", 2},
           Row{"65tok", "rounded up", 3},
           Row{"2ep", "two epochs", 8},
       }) {
    CAPTURE(why);
    TrainerOptions options = with_tokens();
    options.max_duration = Time::parse(duration);
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == batches);
  }
}

TEST_CASE("Calls of fit() add up, in whatever units") {
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.max_duration = "2ba";
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  const auto epochs = [&] { return std::pair(log->count("epoch_start"), log->count("epoch_end")); };
  trainer.fit();
  CHECK(epochs() == std::pair<std::size_t, std::size_t>(1, 0));
  trainer.fit("1ba");
  CHECK(epochs() == std::pair<std::size_t, std::size_t>(1, 0));
  CHECK(*trainer.state().max_duration == Time(3, TimeUnit::BATCH));
  trainer.fit("1ba");
  CHECK(epochs() == std::pair<std::size_t, std::size_t>(1, 1));
  trainer.fit("1ep");
  CHECK(*trainer.state().max_duration == Time(2, TimeUnit::EPOCH));
  CHECK(epochs() == std::pair<std::size_t, std::size_t>(2, 2));
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("already reached 2ep"), ConfigError);
  CHECK(log->count("fit_start") == 4);
}

TEST_CASE("reset_time counts from zero again, to the same limit or a new one") {
  TrainerOptions options = tiny_options();
  Trainer trainer(std::move(options));
  trainer.fit();
  trainer.fit({.reset_time = true});
  CHECK(trainer.state().timestamp.batch == 4);
  trainer.fit({.duration = "3sp", .reset_time = true});
  CHECK(trainer.state().timestamp.sample == 4);
  trainer.fit({.duration = "2ep", .reset_time = true});
  CHECK(trainer.state().timestamp.epoch == 2);
}

TEST_CASE("A refused fit() changes nothing") {
  TrainerOptions options = tiny_options();
  Trainer trainer(std::move(options));
  trainer.fit();
  const Timestamp before = trainer.state().timestamp;
  CHECK_THROWS_AS(trainer.fit({.duration = "0.5dur", .reset_time = true}), ConfigError);
  CHECK_THROWS_AS(trainer.fit({.duration = "1ep", .reset_time = true, .scale_schedule_ratio = 0.5}), ConfigError);
  CHECK_THROWS_AS(trainer.fit({.reset_time = true, .device_train_microbatch_size = -1}), ConfigError);
  CHECK_THROWS_AS(trainer.fit({.reset_time = true, .precision = Precision::AMP_FP16}), ConfigError);
  const optim::Scheduler bad = [](const optim::ScheduleContext&) -> double { throw ConfigError("bad t_max"); };
  CHECK_THROWS_AS(trainer.fit({.duration = "7ep",
                               .reset_time = true,
                               .schedulers = {bad},
                               .eval_dataloader = tiny_loader(4, 4),
                               .precision = Precision::AMP_BF16}),
                  ConfigError);
  CHECK(trainer.state().timestamp == before);
  CHECK(*trainer.state().max_duration == Time(1, TimeUnit::EPOCH));
  CHECK(trainer.state().precision == Precision::FP32);
  CHECK_THROWS_AS(trainer.eval(), ConfigError);  // there is still nothing to evaluate on
}

TEST_CASE("An epoch in pieces trains the same weights as in one") {
  TrainerOptions whole = tiny_options(), pieces = tiny_options(), by_batch = tiny_options();
  whole.max_duration = "2ep";
  Trainer a(std::move(whole)), b(std::move(pieces)), c(std::move(by_batch));
  a.fit();
  for (int i = 0; i < 8; ++i) b.fit("4sp");
  for (int i = 0; i < 8; ++i) c.fit("1ba");
  CHECK(weights_of(a).equal(weights_of(b)));
  CHECK(weights_of(a).equal(weights_of(c)));
  CHECK(b.state().timestamp.epoch == 2);
}

TEST_CASE("A run whose limit is a time ends after the batch that reaches it, and counts what it trained before") {
  TrainerOptions options = tiny_options();
  options.max_duration = "2h";
  options.eval_dataloader = tiny_loader(4, 4);
  options.eval_interval = "0.5dur";
  const auto log = std::make_shared<EventLog>();
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.begin();
  for (int i = 0; i < 5; ++i) CHECK(trainer.step());
  trainer.state().timestamp.total_wct = Seconds(3599.9999999);  // the next batch crosses half of the time
  while (log->count("eval_end") == 0) REQUIRE(trainer.step());
  trainer.state().timestamp.total_wct = Seconds(7199.9999999);
  const std::int64_t before = trainer.state().timestamp.batch;
  while (trainer.step()) CHECK(trainer.state().timestamp.batch < before + 1000);
  CHECK(trainer.done());
  trainer.end();
  CHECK(trainer.state().timestamp.batch > before);
  CHECK(trainer.state().elapsed_duration() >= 1);
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("already reached 7200sec"), ConfigError);
  trainer.fit("1ba");
  const std::int64_t after = trainer.state().timestamp.batch;
  trainer.state().timestamp.total_wct = Seconds(7200.9999999);
  trainer.fit(FitOptions{.duration = "1s"});  // from 7200 whole seconds on
  CHECK(trainer.state().timestamp.batch > after);
}

TEST_CASE("What happens every so many epochs happens after the batches that cross them") {
  struct Row {
    Interval interval;
    std::vector<std::int64_t> batches;  // of 3 epochs of 5 batches
  };
  for (const auto& [interval, batches] : {
           Row{"0.2ep", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
           Row{"0.4ep", {2, 4, 6, 8, 10, 12, 14, 15}},
           Row{"0.5ep", {3, 5, 8, 10, 13, 15}},
           Row{"0.01ep", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
           Row{"1.5ep", {8, 15}},
           Row{"2.5ep", {13, 15}},
       }) {
    CAPTURE(to_string(interval));
    std::vector<std::int64_t> evaluated, saved;
    const Folder folder;
    TrainerOptions options = tiny_options();
    options.train_dataloader = tiny_loader(20, 4);
    options.max_duration = "3ep";
    options.eval_dataloader = tiny_loader(4, 4);
    options.eval_interval = interval;
    options.save_folder = folder / "ck";
    options.save_interval = interval;
    options.save_filename = "{batch}";
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::EVAL_START) evaluated.push_back(state.timestamp.batch);
    })};
    Trainer trainer(std::move(options));
    trainer.fit();
    for (const std::string& path : trainer.saved_checkpoints())
      saved.push_back(Time::parse(path.substr(path.rfind('/') + 1) + "ba").count());
    CHECK(evaluated == batches);
    CHECK(saved == batches);
  }
}

TEST_CASE("Epochs and as many batches train the same weights") {
  TrainerOptions epochs = tiny_options(), batches = tiny_options();
  epochs.max_duration = "2ep";
  batches.max_duration = "8ba";
  Trainer a(std::move(epochs)), b(std::move(batches));
  a.fit();
  b.fit();
  CHECK(weights_of(a).equal(weights_of(b)));
  CHECK(b.state().timestamp.epoch == 2);
}

TEST_CASE("A loader of unknown length trains for any duration, unless something needs its length") {
  const auto options_of = [](const char* duration, std::int64_t subset = -1) {
    TrainerOptions options = tiny_options();
    options.train_dataloader = std::make_shared<Unsized>();
    options.train_subset_num_batches = subset;
    options.max_duration = Time::parse(duration);
    return options;
  };
  Trainer epochs(options_of("2ep")), batches(options_of("6ba")), samples(options_of("20sp")),
      subset(options_of("2ep", 3));
  epochs.fit();
  CHECK(epochs.state().timestamp.batch == 8);
  CHECK(epochs.state().timestamp.epoch == 2);
  CHECK(epochs.state().timestamp.batch_in_epoch == 0);
  batches.fit();
  CHECK(batches.state().timestamp.epoch == 1);
  CHECK(batches.state().timestamp.batch_in_epoch == 2);
  samples.fit();
  CHECK(samples.state().timestamp.batch == 5);
  subset.fit();
  CHECK(subset.state().timestamp.batch == 6);

  const Folder folder;
  struct Row {
    const char* why;
    std::function<void(TrainerOptions&)> need_length;
  };
  for (const auto& [why, need_length] : {
           Row{"schedule: 1.0dur", [](TrainerOptions& o) { o.schedulers = {optim::linear()}; }},
           Row{"schedule: 1ep", [](TrainerOptions& o) { o.schedulers = {optim::step({.step_size = "1ep"})}; }},
           Row{"eval_interval: 0.5dur",
               [](TrainerOptions& o) {
                 o.eval_dataloader = tiny_loader(4, 4);
                 o.eval_interval = "0.5dur";
               }},
           Row{"eval_interval: 0.5ep",
               [](TrainerOptions& o) {
                 o.eval_dataloader = tiny_loader(4, 4);
                 o.eval_interval = "0.5ep";
               }},
           Row{"save_interval: 0.5dur",
               [&](TrainerOptions& o) {
                 o.save_folder = folder / "ck";
                 o.save_interval = "0.5dur";
               }},
       }) {
    CAPTURE(why);
    TrainerOptions options = options_of("2ep");
    need_length(options);
    CHECK_THROWS_WITH_AS(Trainer(std::move(options)).fit(), doctest::Contains(why), ConfigError);
  }
}

TEST_CASE("Asked to stop, the run ends after the batch, evaluates, and the next fit() goes on") {
  struct Row {
    Event event;
    std::int64_t at_batch, last_batch;
    bool epoch_ends;
  };
  for (const auto& [event, at_batch, last_batch, epoch_ends] :
       {Row{Event::BATCH_START, 1, 2, false}, Row{Event::BATCH_END, 2, 2, false}, Row{Event::BATCH_END, 4, 4, true},
        Row{Event::EPOCH_END, 4, 4, true}, Row{Event::EVAL_END, 2, 2, false}}) {
    CAPTURE(to_string(event));
    auto log = std::make_shared<EventLog>();
    TrainerOptions options = tiny_options();
    options.max_duration = "3ep";
    options.eval_dataloader = tiny_loader(4, 4);
    options.eval_interval = "2ba";
    options.callbacks = {log, At([&, event = event, at_batch = at_batch](Event now, const State& state) {
                           if (now == event && state.timestamp.batch == at_batch) state.stop.ask("enough");
                         })};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == last_batch);
    CHECK(trainer.state().stop.why() == "enough");
    CHECK(*trainer.state().max_duration == Time(3, TimeUnit::EPOCH));
    CHECK((log->count("epoch_end") == 1) == epoch_ends);
    CHECK(log->count("eval_start") == static_cast<std::size_t>(last_batch / 2));
    trainer.fit();
    CHECK(trainer.state().timestamp.epoch == 3);
    CHECK_FALSE(trainer.state().stop.asked());
  }
}

TEST_CASE("An iteration is so many epochs or tokens, and one that would never let an epoch end is refused") {
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = with_tokens();
  options.max_duration = "5ep";
  options.iteration_length = "2ep";
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(log->count("iteration_start") == 3);
  CHECK(log->count("iteration_end") == 2);
  CHECK(trainer.state().timestamp.iteration == 2);

  TrainerOptions tokens = with_tokens();
  tokens.max_duration = "5ba";
  tokens.iteration_length = "64tok";
  Trainer by_tokens(std::move(tokens));
  by_tokens.fit();
  CHECK(by_tokens.state().timestamp.iteration == 2);
  CHECK_THROWS_AS(by_tokens.fit("1ep"), RunError);

  for (const char* bad : {"2ba", "0ep", "-1tok"}) {
    TrainerOptions refused = with_tokens();
    refused.iteration_length = Time::parse(bad);
    CHECK_THROWS_AS(Trainer(std::move(refused)), ConfigError);
  }
}

}  // namespace
}  // namespace composer::test::durations_test
