#include <algorithm>
#include <cmath>

#include <torch/nn/modules/linear.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/callbacks/checkpoint_saver.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::errors_test {
namespace {

TEST_CASE("Bad options are refused by the constructor, before any event") {
  struct Row {
    const char* expected;
    void (*spoil)(TrainerOptions&);
  };
  for (const auto& [expected, spoil] : {
           Row{"model: is required", [](TrainerOptions& o) { o.model = nullptr; }},
           Row{"max_duration: must be in", [](TrainerOptions& o) { o.max_duration = "0.5dur"; }},
           Row{"got 0.5dur", [](TrainerOptions& o) { o.max_duration = "0.5dur"; }},
           Row{"device_train_microbatch_size", [](TrainerOptions& o) { o.device_train_microbatch_size = -1; }},
           Row{"amp_fp16", [](TrainerOptions& o) { o.precision = Precision::AMP_FP16; }},
           Row{"scale_schedule_ratio: 0.5 has no effect", [](TrainerOptions& o) { o.scale_schedule_ratio = 0.5; }},
           Row{"CUDA", [](TrainerOptions& o) { o.device = at::Device(at::kCUDA, 63); }},
           Row{"must be >= 1, or -1 for all, got 0", [](TrainerOptions& o) { o.train_subset_num_batches = 0; }},
           Row{"empty label", [](TrainerOptions& o) { o.train_dataloader_label = ""; }},
           Row{"dataloader is required", [](TrainerOptions& o) { o.eval_dataloader = Evaluator{.label = "e"}; }},
       }) {
    CAPTURE(expected);
    auto log = std::make_shared<EventLog>();
    TrainerOptions options = tiny_options();
    options.callbacks = {log};
    spoil(options);
    const std::string text = error_of([&] { Trainer trainer(std::move(options)); });
    CHECK(text.find(expected) != std::string::npos);
    CHECK(log->count("init") == 0);
    CAPTURE(text);
  }
}

TEST_CASE("Training without what it needs says what to give, and where") {
  CHECK(error_of([] {
          TrainerOptions options = tiny_options();
          options.max_duration = std::nullopt;
          Trainer(std::move(options)).fit();
        }).find("max_duration: is required to fit") == 0);
  CHECK(error_of([] {
          TrainerOptions options = tiny_options();
          options.train_dataloader = {};
          Trainer(std::move(options)).fit();
        }).find("train_dataloader: is required to fit") == 0);
  CHECK(error_of([] {
          TrainerOptions options = tiny_options();
          options.optimizer = {};
          Trainer(std::move(options)).fit();
        }).find("optimizer: is required to fit") == 0);
  CHECK(error_of([] { Trainer(tiny_options()).eval(); }).find("eval_dataloader: is required") == 0);
}

struct Failing : Model {
  explicit Failing(bool in_loss) : fails_in_loss(in_loss) { register_module("fc", fc); }
  Outputs forward(const Batch& batch) override {
    if (!fails_in_loss) throw std::out_of_range("forward is broken");
    return fc->forward(batch["input"]);
  }
  Losses loss(const Outputs&, const Batch& batch) override { return batch["no such tensor"]; }
  torch::nn::Linear fc{4, 3};
  bool fails_in_loss;
};

TEST_CASE("An error in the user's code says after which event, in which epoch and batch") {
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Failing>(false);
  CHECK(error_of([&] { Trainer(std::move(options)).fit(); }) ==
        "Model::forward failed after before_forward, epoch 0, batch 0\n  because: forward is broken");
  options = tiny_options();
  options.model = std::make_shared<Failing>(true);
  CHECK(error_of([&] { Trainer(std::move(options)).fit(); }) ==
        "Model::loss failed after before_loss, epoch 0, batch 0\n  because: there is no tensor called \"no such "
        "tensor\"; "
        "there are: input, target");
}

TEST_CASE("An error of a logger names the logger and what was logged, whoever has logged it") {
  struct Broken final : LoggerDestination {
    explicit Broken(std::string key) : key(std::move(key)) {}
    void log_metrics(std::span<const LogEntry> metrics, std::int64_t, const State&) override {
      for (const LogEntry& entry : metrics)
        if (entry.key == key) throw std::runtime_error("my database is gone");
    }
    std::string key;
  };
  struct Innocent final : Callback {
    void batch_end(const State&, Logger& logger) override { logger.log_metrics({{"mine", 1}}); }
  };
  for (const std::string key : {"mine", "loss/train/total", "time/batch", "metrics/eval/MulticlassAccuracy"}) {
    CAPTURE(key);
    TrainerOptions options = tiny_options();
    options.eval_dataloader = tiny_loader(8, 4);
    options.callbacks = {Innocent()};
    options.loggers = {Broken(key)};
    const std::string error = error_of([&] { Trainer(std::move(options)).fit(); });
    CHECK(error.find("Broken failed to log ") != std::string::npos);
    CHECK(error.ends_with("because: my database is gone"));
  }
}

TEST_CASE("An interval below zero is refused, as is one of an evaluator, a fit and CheckpointSaver") {
  const auto refused = [](const std::function<void(TrainerOptions&)>& change, const FitOptions& fit = {}) {
    const std::string error = error_of([&] {
      TrainerOptions options = tiny_options();
      options.eval_dataloader = tiny_loader(8, 4);
      change(options);
      Trainer(std::move(options)).fit(fit);
    });
    return error.find("_interval") != std::string::npos &&
           error.find("must be >= 0, where 0 is never") != std::string::npos;
  };
  CHECK(refused([](TrainerOptions& options) { options.save_interval = "-1ep"; }));
  CHECK(refused([](TrainerOptions& options) { options.eval_interval = "-2ba"; }));
  CHECK(refused([](TrainerOptions& options) {
    options.eval_dataloader = Evaluator{.dataloader = tiny_loader(8, 4), .eval_interval = "-1ep"};
  }));
  CHECK(refused([](TrainerOptions&) {}, {.eval_dataloader = tiny_loader(8, 4), .eval_interval = "-1ep"}));
  CHECK(refused([](TrainerOptions& options) {
    options.callbacks = {callbacks::CheckpointSaver({.folder = "nowhere", .save_interval = "-1ba"})};
  }));
}

TEST_CASE("what() of what leaves fit() says why, without libtorch's stack frames") {
  struct Unlike : Failing {
    Unlike() : Failing(true) {}
    Losses loss(const Outputs& outputs, const Batch&) override { return at::mm(outputs.only(), outputs.only()); }
  };
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Unlike>();
  Trainer trainer(std::move(options));
  try {
    trainer.fit();
    FAIL("it threw nothing");
  } catch (const std::exception& error) {
    const std::string text = error.what();
    CAPTURE(text);
    CHECK(text.starts_with("Model::loss failed after before_loss, epoch 0, batch 0\n  because: "));
    CHECK(text.find("mat1 and mat2") != std::string::npos);
    CHECK(text.find("Exception raised from") == std::string::npos);
    CHECK(describe(error) == text);
  }
}

TEST_CASE("Inputs of another type than the parameters are named, with what to do, in training and prediction") {
  for (const at::ScalarType type : {at::kDouble, at::kLong}) {
    CAPTURE(type);
    TrainerOptions options = tiny_options();
    Batch data = tiny_data(16);
    data.set("input", data["input"].to(type));
    options.train_dataloader = data::in_memory(data, {.batch_size = 4});
    Trainer trainer(std::move(options));
    for (const std::string& text : {error_of([&] { trainer.fit(); }),
                                    error_of([&] { trainer.predict(data::in_memory(data, {.batch_size = 4})); })}) {
      CAPTURE(text);
      CHECK(text.find(join("\"input\" is ", type)) != std::string::npos);
      CHECK(text.find("the parameters of the model are Float") != std::string::npos);
      CHECK(text.find(".to(at::kFloat)") != std::string::npos);
      CHECK(text.find("because: ") != std::string::npos);  // libtorch's own words
    }
  }
}

TEST_CASE("Another error of libtorch in forward is left as it is") {
  TrainerOptions options = tiny_options();
  Batch data = tiny_data(16);
  data.set("input", at::ones({16, 5}));
  options.train_dataloader = data::in_memory(data, {.batch_size = 4});
  Trainer trainer(std::move(options));
  CHECK(error_of([&] { trainer.fit(); }).find("the parameters of the model are") == std::string::npos);
}

TEST_CASE("A loss that is NaN is warned of once, and not in the trial of find_lr") {
  TrainerOptions options = tiny_options();
  Batch data = tiny_data(16);
  data.set("input", data["input"] * NAN);
  options.train_dataloader = data::in_memory(data, {.batch_size = 4});
  options.nan = OnNaN::WARN;
  Trainer trainer(std::move(options));
  const Warnings warnings;
  CHECK_THROWS_AS(trainer.find_lr(), ConfigError);
  CHECK(warnings.texts.empty());
  trainer.fit();
  REQUIRE(warnings.texts.size() == 2);
  CHECK(warnings.texts[0] == "the training loss of batch 0 is NaN; the callback NaNMonitor ends a run then");
  CHECK(warnings.texts[1].starts_with(
      "the training loss has been NaN since batch 0, up to the end of this fit at batch 4: nothing was learnt"));
}

TEST_CASE("A loss that was NaN for a few batches, and is a number at the end of the fit, is warned of once") {
  struct Sometimes : models::Classifier {
    Sometimes() : Classifier(torch::nn::Linear(4, 3), {.num_classes = 3, .train_metrics = Metrics()}) {}
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      const Losses losses = Classifier::loss(outputs, batch);
      const int now = step++;
      return now == 1 || now == 2 ? Losses(losses.only().detach() * NAN + parameters()[0].sum() * 0) : losses;
    }
    int step = 0;
  };
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Sometimes>();
  options.nan = OnNaN::WARN;
  Trainer trainer(std::move(options));
  const Warnings warnings;
  trainer.fit();
  CHECK(warnings.texts ==
        std::vector<std::string>{"the training loss of batch 1 is NaN; the callback NaNMonitor ends a run then"});
}

// Says how many batches an epoch has, and gives some.
struct Told : Loader {
  Told(std::vector<std::int64_t> says, std::vector<std::int64_t> gives)
      : said(std::move(says)), given(std::move(gives)) {}
  void seek(std::int64_t epoch, std::int64_t batch) override {
    at = static_cast<std::size_t>(epoch), next_batch = batch;
  }
  std::optional<std::int64_t> num_batches() const override { return said.at(at); }
  std::optional<Batch> next() override {
    if (next_batch++ == given.at(at)) return std::nullopt;
    return tiny_data(4);
  }
  std::vector<std::int64_t> said, given;
  std::size_t at = 0;
  std::int64_t next_batch = 0;
};

TEST_CASE("Epochs may differ in length, and a loader that gives fewer batches than it says is warned of once") {
  struct Row {
    std::vector<std::int64_t> said, given, lengths;
    std::size_t warnings;
  };
  for (const auto& [said, given, lengths, count] :
       {Row{{2, 3, 1}, {2, 3, 1}, {2, 3, 1}, 0}, Row{{5, 5, 5}, {2, 3, 5}, {5, 5, 5}, 1}}) {
    TrainerOptions options = tiny_options();
    options.train_dataloader = std::make_shared<Told>(said, given);
    options.max_duration = "3ep";
    std::vector<std::int64_t> lengths_seen, trained;
    options.callbacks = {At([&](Event event, const State& state) {
      if (event == Event::EPOCH_END) lengths_seen.push_back(state.dataloader_len.value_or(-1));
      if (event == Event::EPOCH_END) trained.push_back(state.timestamp.batch);
    })};
    const Warnings warnings;
    Trainer(std::move(options)).fit();
    CHECK(lengths_seen == lengths);
    CHECK(trained == std::vector<std::int64_t>{given[0], given[0] + given[1], given[0] + given[1] + given[2]});
    REQUIRE(warnings.texts.size() == count);
    if (count == 1) CHECK(warnings.say("train loader: an epoch ended after 2 batches; num_batches() is 5"));
  }
}

struct Broken : Loader {
  void seek(std::int64_t, std::int64_t) override {}
  std::optional<Batch> next() override { throw std::runtime_error("the disk is gone"); }
};

TEST_CASE("An error of the loader is located, and the trainer can go on with another one") {
  TrainerOptions options = tiny_options();
  options.train_dataloader = std::make_shared<Broken>();
  options.max_duration = "2ba";
  Trainer trainer(std::move(options));
  CHECK(error_of([&] { trainer.fit(); }) ==
        "the train loader failed after before_dataloader, epoch 0, batch 0\n  because: the disk is gone");
  trainer.fit({.train_dataloader = tiny_loader(16, 4)});
  CHECK(trainer.state().timestamp.batch == 2);
}

struct Empty : Loader {
  void seek(std::int64_t, std::int64_t) override {}
  std::optional<Batch> next() override { return std::nullopt; }
};

TEST_CASE("A loader without batches is an error, not an endless loop") {
  TrainerOptions options = tiny_options();
  options.train_dataloader = std::make_shared<Empty>();
  options.max_duration = "5ba";
  Trainer trainer(std::move(options));
  CHECK(error_of([&] { trainer.fit(); }).find("has no batch") != std::string::npos);
}

TEST_CASE("Loggers write what they have when training fails") {
  struct Flushed : LoggerDestination {
    void flush() override { ++count; }
    int count = 0;
  };
  auto logger = std::make_shared<Flushed>();
  TrainerOptions options = tiny_options();
  options.loggers = {logger};
  options.callbacks = {At([](Event event, const State&) {
    if (event == Event::BATCH_END) throw std::runtime_error("boom");
  })};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  CHECK(logger->count == 1);
}

TEST_CASE("After close() every call that fires events is refused") {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(4, 4);
  Trainer trainer(std::move(options));
  trainer.close();
  trainer.close();
  CHECK_THROWS_AS(trainer.fit(), Error);
  CHECK_THROWS_AS(trainer.eval(), Error);
  CHECK_THROWS_AS(trainer.predict(tiny_loader(4, 4)), Error);
}

TEST_CASE("step() and end() without begin() are refused") {
  Trainer trainer(tiny_options());
  CHECK_THROWS_AS(trainer.step(), ConfigError);
  CHECK_THROWS_AS(trainer.end(), ConfigError);
  trainer.begin();
  CHECK_THROWS_AS(trainer.begin(), ConfigError);
  CHECK_THROWS_AS(trainer.step(Batch()), DataError);
  trainer.end();
}

TEST_CASE("an evaluation that fails between begin() and end() does not end the fit") {
  TrainerOptions options = tiny_options();
  bool fails = true;
  options.callbacks = {At([&](Event event, const State&) {
    if (event == Event::EVAL_BATCH_START && std::exchange(fails, false)) throw DataError("not now");
  })};
  Trainer trainer(std::move(options));
  trainer.begin();
  trainer.step();
  const EvalOptions eval{.eval_dataloader = Evaluator{.dataloader = tiny_loader(4, 4)}};
  CHECK_THROWS_AS(trainer.eval(eval), RunError);
  CHECK(trainer.step());
  trainer.eval(eval);
  while (trainer.step()) {
  }
  trainer.end();
  CHECK(trainer.state().timestamp.batch == 4);
}

TEST_CASE("an optimizer that steps in backward is refused where somebody needs all gradients") {
  const auto options_of = [] {
    TrainerOptions options = tiny_options();
    options.optimizer = optim::sgd({.lr = 0.1, .step_in_backward = true});
    return options;
  };
  TrainerOptions clipped = options_of();
  clipped.algorithms = {algorithms::GradientClipping({.clipping_threshold = 1})};
  Trainer with_clipping(std::move(clipped));
  CHECK_THROWS_AS(with_clipping.fit(), ConfigError);

  Trainer plain(options_of());
  plain.fit();
  Trainer ordinary(tiny_options());
  ordinary.fit();
  CHECK(plain.state().model->parameters()[0].equal(ordinary.state().model->parameters()[0]));
}

TEST_CASE("An output of forward that is undefined is named where the loss cannot use it") {
  struct Nothing final : Model {
    at::Tensor weight = register_parameter("weight", at::ones({1}));
    Outputs forward(const Batch&) override { return at::Tensor(); }
    Losses loss(const Outputs& outputs, const Batch&) override { return (outputs.only() * weight).sum(); }
  };
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Nothing>();
  Trainer trainer(std::move(options));
  const std::string said = error_of([&] { trainer.fit(); });
  CHECK_MESSAGE(said.find("Model::forward returned an undefined tensor as \"output\"") != said.npos, said);
}

TEST_CASE("Classes that are floating-point zeros are an error of their type, without a warning before it") {
  const Warnings warnings;
  TrainerOptions options = tiny_options();
  Batch data = tiny_data(4);
  data.set("target", at::zeros({4}));
  options.train_dataloader = data::in_memory(data, {.batch_size = 4});
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  CHECK_FALSE(warnings.say("has no target that counts"));
}

TEST_CASE("A batch without targets that an error has ended is not told as one that trains nothing") {
  const Warnings warnings;
  TrainerOptions options = tiny_options();
  options.train_dataloader = {};
  options.max_duration = {};
  bool fails = true;
  options.callbacks = {At([&](Event event, const State&) {
    if (fails && event == Event::AFTER_FORWARD) throw ConfigError("a bad batch");
  })};
  Trainer trainer(std::move(options));
  Batch nothing = tiny_data(4);
  nothing.at("target").fill_(-100);
  trainer.begin();
  CHECK_THROWS_AS(trainer.step(nothing), RunError);
  fails = false;
  trainer.begin();
  trainer.step(tiny_data(4));
  CHECK_FALSE(warnings.say("has no target that counts"));
  trainer.step(nothing);
  CHECK(warnings.say("batch 1 has no target that counts"));
}

TEST_CASE("A save_folder that gets no checkpoint is told, once") {
  const Folder folder;
  const Warnings warnings;
  TrainerOptions options = tiny_options();
  options.save_folder = (folder / "ck").string();
  options.save_num_checkpoints_to_keep = 0;
  options.callbacks = {callbacks::CheckpointSaver({.folder = folder / "own", .num_checkpoints_to_keep = 0})};
  Trainer trainer(std::move(options));
  trainer.fit();
  trainer.fit("1ep");
  const auto told = [&](const std::string& text) {
    return std::ranges::count_if(warnings.texts, [&](const auto& one) { return one.find(text) != one.npos; });
  };
  CHECK(told("save_num_checkpoints_to_keep: is 0, so save_folder, ") == 1);
  CHECK(told("CheckpointSaver: num_checkpoints_to_keep is 0, so ") == 1);
}

}  // namespace
}  // namespace composer::test::errors_test
