#include <algorithm>
#include <functional>

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>

#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/step/auto_microbatch.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/live_bytes.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::auto_microbatches_test {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr std::int64_t kTrial = 2;  // microbatches of a size that is tried

// Batch norm and dropout, so that a trace of a trial would be seen; each sample takes 256 KiB on its way.
struct Wide : Model {
  Wide() {
    register_module("fc", fc);
    register_module("norm", norm);
    register_module("out", out);
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) p.copy_(at::sin(at::arange(p.numel(), at::kFloat)).view(p.sizes()));
  }
  Outputs forward(const Batch& batch) override {
    const std::int64_t samples = batch["input"].size(0);
    if (samples > most_samples && forwards++ >= first_forwards)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, says the test");
    const at::Tensor wide = norm->forward(fc->forward(batch["input"])).unsqueeze(1).expand({-1, 1024, -1});
    return out->forward(at::dropout(wide.relu(), 0.5, is_training()).mean(1));
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  Metrics get_metrics(bool) const override { return {}; }

  torch::nn::Linear fc{4, 64}, out{64, 3};
  torch::nn::BatchNorm1d norm{64};
  std::int64_t most_samples = 1 << 20;  // more are out of memory,
  std::int64_t first_forwards = 0;      // but not before so many of them
  std::int64_t forwards = 0;
};

struct Result {
  at::Tensor weights, buffers, random;
  std::vector<double> losses, sizes;
  std::vector<std::string> events;
};

struct Setting {
  MicrobatchSize size;
  std::int64_t memory = 0;
  std::int64_t most_samples = 1 << 20, first_forwards = 0;
  Algorithms algorithms = {};
};

// Three batches of 24.
Result train(const Setting& setting) {
  auto model = std::make_shared<Wide>();
  model->most_samples = setting.most_samples;
  model->first_forwards = setting.first_forwards;
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  auto events = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.model = model;
  options.train_dataloader = tiny_loader(72, 24);
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  options.algorithms = setting.algorithms;
  options.callbacks = {events};
  options.loggers = {memory};
  options.device_train_microbatch_size = setting.size;
  options.microbatch_memory = setting.memory;
  options.seed = 3;
  Trainer trainer(std::move(options));
  trainer.fit();
  const StateDict saved = trainer.state().run->snapshot(/*weights_only=*/false);
  const auto& random = std::get<at::Tensor>(*std::get<StateDict>(*saved.find("rng")).find("cpu"));
  Result result{weights_of(trainer), at::cat({model->norm->running_mean, model->norm->running_var}), random};
  for (const auto& point : memory->get_timeseries("loss/train/total")) result.losses.push_back(point.number());
  for (const auto& point : memory->get_timeseries("trainer/device_train_microbatch_size"))
    result.sizes.push_back(point.number());
  result.events = events->names;
  return result;
}

void check_same_training(const Result& a, const Result& b) {
  CHECK(at::equal(a.weights, b.weights));
  CHECK(at::equal(a.buffers, b.buffers));
  CHECK(at::equal(a.random, b.random));
  CHECK(a.losses == b.losses);
}

TEST_CASE("With enough memory \"auto\" is the whole batch") {
  const Result automatic = train({.size = "auto"});
  CHECK(automatic.sizes == std::vector<double>{24, 24, 24});
  const Result whole = train({.size = 24});
  check_same_training(automatic, whole);
  CHECK(automatic.events == whole.events);
}

TEST_CASE("Within less memory \"auto\" trains as with the size that it has chosen") {
  double last = 25;
  for (const std::int64_t memory : {24 * kMiB, 12 * kMiB, 6 * kMiB, 3 * kMiB}) {
    CAPTURE(memory);
    const Result automatic = train({.size = "auto", .memory = memory});
    const double size = automatic.sizes.front();
    MESSAGE("samples at once: ", size);
    CHECK(size < last);
    CHECK(size >= 1);
    last = size;
    CHECK(automatic.sizes == std::vector<double>(3, size));  // the prediction was right
    const Result given = train({.size = static_cast<std::int64_t>(size)});
    check_same_training(automatic, given);
    CHECK(automatic.events == given.events);
  }
}

TEST_CASE("The memory that a batch was given is kept") {
  for (const std::int64_t memory : {12 * kMiB, 3 * kMiB}) {
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<Wide>();
    options.train_dataloader = tiny_loader(72, 24);
    options.device_train_microbatch_size = "auto";
    options.microbatch_memory = memory;
    Trainer trainer(std::move(options));
    trainer.begin();
    REQUIRE(trainer.step());
    const std::int64_t size = trainer.state().device_train_microbatch_size;
    trainer.end();

    // measured by another instrument, in a run with that size
    options = tiny_options();
    options.model = std::make_shared<Wide>();
    options.train_dataloader = tiny_loader(72, 24);
    options.device_train_microbatch_size = size;
    Trainer measured(std::move(options));
    const LiveBytes live;
    measured.fit();
    const std::int64_t most = live.peak();
    CAPTURE(size);
    CHECK(most < memory);
    CHECK(most > memory / 4);
  }
}

// Takes 3 KiB for each pair of samples.
struct Pairs final : Wide {
  Outputs forward(const Batch& batch) override {
    const at::Tensor out = fc->forward(batch["input"]).slice(1, 0, 3);
    const at::Tensor pairs = (out.unsqueeze(1) * out.unsqueeze(0)).unsqueeze(0).expand({256, -1, -1, -1});
    return out + pairs.relu().mean(std::vector<std::int64_t>{0, 1});
  }
};

TEST_CASE("Of a batch whose memory grows faster than its size, parts that fit are found before it is trained") {
  const auto size_within = [](std::int64_t memory) {
    const Warnings warnings;
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<Pairs>();
    options.train_dataloader = tiny_loader(64, 64);
    options.device_train_microbatch_size = "auto";
    options.microbatch_memory = memory;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK_FALSE(warnings.say("out of memory"));
    return trainer.state().device_train_microbatch_size;
  };
  CHECK(size_within(256 * kMiB) == 64);
  const std::int64_t size = size_within(16 * kMiB);
  CHECK(size < 64);
  CHECK(size >= 16);
}

TEST_CASE("A batch that runs out of memory is trained again in halves, as if those had been asked for") {
  const Result halves = train({.size = 6});
  // kTrial forwards try the size that was predicted
  const Result at_once = train({.size = "auto", .most_samples = 7, .first_forwards = kTrial});
  CHECK(at_once.sizes == std::vector<double>{6, 6, 6});
  check_same_training(at_once, halves);
  // in the second of two microbatches, after the first has left its gradients and its share in the statistics
  const Result later = train({.size = "auto", .memory = 24 * kMiB, .most_samples = 7, .first_forwards = kTrial + 1});
  CHECK(later.sizes == std::vector<double>{6, 6, 6});
  check_same_training(later, halves);
}

TEST_CASE("Batches that were trained before memory was short stay as they were") {
  const Result second = train({.size = "auto", .most_samples = 7, .first_forwards = kTrial + 1});
  CHECK(second.sizes == std::vector<double>{24, 6, 6});
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Wide>();
  options.train_dataloader = tiny_loader(72, 24);
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  options.seed = 3;
  Trainer by_hand(std::move(options));
  by_hand.fit("1ba");
  by_hand.fit({.duration = "2ba", .device_train_microbatch_size = 6});
  CHECK(at::equal(second.weights, weights_of(by_hand)));
}

TEST_CASE("Algorithms that draw random numbers draw the same when a batch is trained again") {
  const auto algorithms = [] { return Algorithms{algorithms::LabelSmoothing(), algorithms::MixUp({.alpha = 0.5})}; };
  const Result automatic =
      train({.size = "auto", .most_samples = 7, .first_forwards = kTrial, .algorithms = algorithms()});
  CHECK(automatic.sizes == std::vector<double>{6, 6, 6});
  check_same_training(automatic, train({.size = 6, .algorithms = algorithms()}));
}

TEST_CASE("A batch that is trained again fires its events from BEFORE_TRAIN_BATCH on") {
  const Result automatic = train({.size = "auto", .most_samples = 7, .first_forwards = kTrial});
  std::vector<std::string> first;
  for (const std::string& name : automatic.events) {
    if (name == "after_forward") break;
    if (name == "before_train_batch" || name == "before_forward" || name == "batch_start") first.push_back(name);
  }
  CHECK(first == std::vector<std::string>{"batch_start", "before_train_batch", "before_forward",  // 24
                                          "before_train_batch", "before_forward",                 // 12
                                          "before_train_batch", "before_forward"});               // 6
}

TEST_CASE("One sample that does not fit is an error that says so, and so is a memory that is too small") {
  for (const Setting& setting : {Setting{.size = "auto", .most_samples = 0}, Setting{.size = "auto", .memory = 100}}) {
    try {
      train(setting);
      FAIL("no error");
    } catch (const RunError& error) {
      const std::string text = describe(error);
      CAPTURE(text);
      CHECK(text.find("microbatches of 1 sample") != std::string::npos);
      CHECK(text.find("out of memory") != std::string::npos);
    }
  }
}

TEST_CASE("Running out of memory is an error if the size is a number, and any other error is one with auto, too") {
  CHECK_THROWS_AS(train({.size = 24, .most_samples = 7}), RunError);
  struct Broken : Wide {
    Losses loss(const Outputs&, const Batch&) override { throw DataError("broken"); }
  };
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Broken>();
  options.device_train_microbatch_size = "auto";
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
}

// Changes the weights, and then needs more memory than there is.
struct Greedy final : torch::optim::SGD {
  explicit Greedy(std::vector<at::Tensor> parameters) : SGD(std::move(parameters), {0.1}) {}
  at::Tensor step(LossClosure closure) override {
    at::Tensor loss = SGD::step(std::move(closure));
    ++steps;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, says the optimizer");
    return loss;
  }
  int steps = 0;
};

TEST_CASE("Running out of memory in the optimizer's step is an error with auto, too: the weights have changed") {
  TrainerOptions options = tiny_options();
  const auto greedy = std::make_shared<Greedy>(options.model->parameters());
  options.optimizer = greedy;
  options.device_train_microbatch_size = "auto";
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("says the optimizer"), RunError);
  CHECK(greedy->steps == 1);
}

struct Evaluated {
  std::vector<double> accuracy;
  std::int64_t forwards = 0;
  at::Tensor weights;
};

// Two epochs of 24 samples, after each an evaluation of batches of 20 and 4.
Evaluated evaluate(std::optional<MicrobatchSize> size, std::int64_t memory, std::int64_t most_samples = 1 << 20) {
  auto model = std::make_shared<Wide>();
  auto memory_logger = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tiny_options();
  options.model = model;
  options.train_dataloader = tiny_loader(24, 2);
  options.seed = 3;
  options.eval_dataloader = Evaluator{.dataloader = tiny_loader(24, 20),
                                      .metrics = Metrics(metrics::MulticlassAccuracy(), metrics::CrossEntropy()),
                                      .device_eval_microbatch_size = size};
  options.max_duration = "2ep";
  options.loggers = {memory_logger};
  options.microbatch_memory = memory;
  model->most_samples = most_samples;
  Trainer trainer(std::move(options));
  trainer.fit();
  Evaluated result{.forwards = model->forwards, .weights = weights_of(trainer)};
  for (const char* name : {"metrics/eval/MulticlassAccuracy", "metrics/eval/CrossEntropy"})
    for (const auto& point : memory_logger->get_timeseries(name)) result.accuracy.push_back(point.number());
  return result;
}

TEST_CASE("An evaluation that is short of memory takes smaller parts and measures what whole batches do") {
  const Evaluated whole = evaluate({}, 0);
  REQUIRE(whole.accuracy.size() == 4);
  const auto check_alike = [&](const Evaluated& other) {
    REQUIRE(other.accuracy.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(other.accuracy[i] == doctest::Approx(whole.accuracy[i]).epsilon(1e-6));
    CHECK(at::equal(other.weights, whole.weights));
  };
  {
    const Warnings warnings;
    check_alike(evaluate("auto", 0));
    CHECK(warnings.texts.empty());
  }
  {
    const Warnings warnings;  // the limit of the CPU
    check_alike(evaluate("auto", 4 * kMiB));
    CHECK(warnings.say("Evaluator eval: out of memory with microbatches of 20 samples: from now on they have 10"));
  }
  {
    const Warnings warnings;  // the error of a device
    check_alike(evaluate("auto", 0, 4));
    const auto said = [](const std::string& text) { return contains(text, "Evaluator eval: out of memory"); };
    CHECK(std::ranges::count_if(warnings.texts, said) == 3);  // 20, 10, 5
  }
  CHECK_THROWS_WITH_AS(evaluate("auto", kMiB / 8), doctest::Contains("out of memory with microbatches of 1 sample"),
                       Error);
  CHECK_THROWS_WITH(evaluate(4, 0, 3), doctest::Contains("out of memory, says the test"));
}

// Adds what it has seen before it runs out of memory.
struct Hungry : Metric {
  std::string name() const override { return "Hungry"; }
  Better better() const override { return Better::HIGHER; }
  void update(const Outputs& outputs, const Batch&) override {
    const std::int64_t samples = outputs.only().size(0);
    seen = seen.defined() ? seen + samples : at::full({}, samples, at::kDouble);
    if (samples > 5) TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, says the test");
  }
  at::Tensor compute() const override { return seen; }
  void reset() override { seen.reset(); }
  std::shared_ptr<Metric> fresh() const override { return std::make_shared<Hungry>(keeps_sums); }
  void visit_sums(const VisitSum& visit) override {
    if (keeps_sums) visit("seen", seen);
  }
  explicit Hungry(bool sums) : keeps_sums(sums) {}
  bool keeps_sums;
  at::Tensor seen;
};

TEST_CASE("What a metric had added when it ran out of memory is taken back") {
  const auto seen = [](bool keeps_sums) {
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<Wide>();
    options.eval_dataloader = Evaluator{.dataloader = tiny_loader(24, 20),
                                        .metrics = Metrics(Hungry(keeps_sums)),
                                        .device_eval_microbatch_size = "auto"};
    Trainer trainer(std::move(options));
    trainer.eval();
    return trainer.state().metrics.find("eval", "Hungry")->item<double>();
  };
  CHECK(seen(true) == 24);
  CHECK_THROWS_WITH_AS(seen(false), doctest::Contains("metric Hungry: has no sums"), ConfigError);
}

TEST_CASE("A microbatch size is a number, or auto") {
  CHECK(MicrobatchSize("auto").is_auto());
  CHECK(MicrobatchSize(5).samples() == 5);
  CHECK_FALSE(MicrobatchSize().is_auto());
  CHECK_THROWS_WITH_AS(MicrobatchSize("four"), doctest::Contains("got \"four\""), ConfigError);
  TrainerOptions options = tiny_options();
  options.device_train_microbatch_size = "auto";
  options.microbatch_memory = -1;
  CHECK_THROWS_AS(Trainer(std::move(options)), ConfigError);
}

TEST_CASE("A fit may begin to choose the size, or stop to") {
  Trainer trainer(tiny_options());
  trainer.fit({.duration = "1ba", .device_train_microbatch_size = "auto"});
  CHECK(trainer.state().device_train_microbatch_size == 4);
  trainer.fit({.duration = "1ba", .device_train_microbatch_size = 2});
  CHECK(trainer.state().device_train_microbatch_size == 2);
}

// A step whose gradients want more memory than there is for more than `most` samples at once.
struct Fitted {
  explicit Fitted(std::int64_t most_samples) : most(most_samples) {
    state.model = tiny_model();
    state.optimizer = Handle<torch::optim::Optimizer>(
        std::make_shared<torch::optim::SGD>(state.model->parameters(), torch::optim::SGDOptions(0.1)));
    state.device_train_microbatch_size = 8;
    fitting.begin_batch(8);
  }
  at::Tensor gradients() {
    sizes.push_back(state.device_train_microbatch_size);
    if (sizes.back() > most) TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory, says the test");
    return at::ones({});
  }
  void fit(bool may_split = true) {
    fitting.fit(
        [this](const AutoMicrobatch::Gradients& make) {
          make();
          if (fails_after) TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory in the optimizer");
        },
        [this] { return gradients(); }, may_split ? [this] { ++splits; } : std::function<void()>());
  }

  std::int64_t most;
  bool fails_after = false;
  State state;
  int put_back = 0, splits = 0;
  std::vector<std::int64_t> sizes;  // that were tried
  AutoMicrobatch fitting{state, kMiB, [this] { ++put_back; }};
};

TEST_CASE("A step is tried with half the size until its gradients fit, each time from the beginning") {
  const Warnings warnings;
  Fitted step(2);
  step.fit();
  CHECK(step.sizes == std::vector<std::int64_t>{8, 4, 2});
  CHECK(step.put_back == 2);
  CHECK(step.splits == 2);
  CHECK(warnings.texts.size() == 2);
  step.fit();
  CHECK(step.sizes.size() == 4);
}

TEST_CASE("A step is not tried again once it has gradients, nor where others wait for them, nor with one sample") {
  const Warnings warnings;
  Fitted stepped(8);
  stepped.fails_after = true;
  CHECK_THROWS_AS(stepped.fit(), c10::OutOfMemoryError);
  CHECK(stepped.sizes.size() == 1);

  Fitted waited_for(2);
  CHECK_THROWS_AS(waited_for.fit(/*may_split=*/false), c10::OutOfMemoryError);
  CHECK(waited_for.state.device_train_microbatch_size == 8);

  Fitted none(0);
  CHECK_THROWS_AS(none.fit(), Error);
  CHECK(none.sizes == std::vector<std::int64_t>{8, 4, 2, 1});
}

TEST_CASE("A run that goes on trains with the size that it has chosen, and memory is measured for it") {
  const Folder folder;
  const auto fit = [&](const Time& until) {
    TrainerOptions options = tiny_options();
    options.device_train_microbatch_size = "auto";
    options.save_folder = folder / "ck";
    options.max_duration = until;
    Trainer trainer(std::move(options));
    trainer.fit();
    return std::pair(trainer.state().timestamp.epoch, trainer.state().device_train_microbatch_size);
  };
  const Warnings warnings;
  const auto [epoch, size] = fit("1ep");
  CHECK(epoch == 1);
  const auto [later, size_later] = fit("2ep");
  CHECK(later == 2);
  CHECK(size_later == size);
  for (const std::string& text : warnings.texts) CHECK(text.find("out of memory") == std::string::npos);
}

TEST_CASE("A rank without a sample in the first batch trains as the others with \"auto\"") {
  const auto weights = [](int size, MicrobatchSize microbatches) {
    return dist::test::results_in_ranks(size, [&](const auto& world) {
      TrainerOptions options = tiny_options();
      options.train_dataloader = tiny_loader(4, 1);
      options.device_train_microbatch_size = microbatches;
      options.world = world;
      Trainer trainer(std::move(options));
      trainer.fit();
      return weights_of(trainer);
    });
  };
  const auto automatic = weights(2, "auto"), whole = weights(2, {});
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(at::equal(automatic[rank], whole[rank]));
}

}  // namespace
}  // namespace composer::test::auto_microbatches_test
