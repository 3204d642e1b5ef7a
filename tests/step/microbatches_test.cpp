#include "composer/callbacks/nan_monitor.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/util/loss.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::microbatches_test {
namespace {

// Weights after two batches of 5 samples, and the last logged loss.
std::pair<at::Tensor, double> train(std::int64_t microbatch_size, bool by_tokens = false) {
  auto memory = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tiny_options();
  DataSpec spec{.dataloader = tiny_loader(10, 5)};
  if (by_tokens)
    spec.get_num_tokens_in_batch = [](const Batch& b) {
      return TokenCount(9 * b.front().size(0), 2 * b.front().size(0));
    };
  options.train_dataloader = spec;
  options.accumulate_train_batch_on_tokens = by_tokens;
  options.device_train_microbatch_size = microbatch_size;
  options.loggers = {memory};
  Trainer trainer(std::move(options));
  trainer.fit();
  return {weights_of(trainer), memory->most_recent("loss/train/total").number()};
}

TEST_CASE("Any split of a batch gives the same weights and the same loss") {
  const auto [whole, loss] = train(0);
  for (std::int64_t size : {1, 2, 3, 4, 5, 9}) {
    CAPTURE(size);
    const auto [weights, logged] = train(size);
    CHECK(at::allclose(weights, whole, 1e-6, 1e-6));
    CHECK(logged == doctest::Approx(loss).epsilon(1e-6));
  }
}

TEST_CASE("Weighing by tokens equals weighing by samples where samples are of one length") {
  const auto [whole, loss] = train(0);
  const auto [weights, logged] = train(2, /*by_tokens=*/true);
  CHECK(at::allclose(weights, whole, 1e-6, 1e-6));
  CHECK(logged == doctest::Approx(loss).epsilon(1e-6));
}

// Cuts a batch at random places.
std::vector<Batch> cut_at_random(const Batch& batch) {
  const std::int64_t samples = batch.front().size(0);
  std::vector<Batch> parts;
  for (std::int64_t from = 0; from < samples;) {
    const std::int64_t to = from + at::randint(1, samples - from + 1, {1}, at::kLong).item<std::int64_t>();
    Batch& part = parts.emplace_back();
    for (const auto& [name, tensor] : batch) part.set(name, tensor.slice(0, from, to));
    from = to;
  }
  return parts;
}

// The gradient of a batch of 13 samples, cut or whole. With tokens, sample i has i % 4 that generate loss, and the
// model's loss is the mean over them.
at::Tensor gradient(at::ScalarType type, bool by_tokens, bool cut) {
  struct Weighted : Model {
    explicit Weighted(bool weighted) : by_tokens(weighted) { register_module("fc", fc); }
    Outputs forward(const Batch& batch) override { return fc->forward(batch["input"]); }
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      const at::Tensor each = at::cross_entropy_loss(outputs.only(), batch["target"], {}, at::Reduction::None);
      if (!by_tokens) return each.mean();
      return (each * batch["tokens"]).sum() / batch["tokens"].sum().clamp_min(1);
    }
    Metrics get_metrics(bool) const override { return {}; }
    bool by_tokens;
    torch::nn::Linear fc{4, 3};
  };
  auto model = std::make_shared<Weighted>(by_tokens);
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : model->parameters()) p.copy_(at::cos(at::arange(p.numel(), at::kFloat)).view(p.sizes()));
  }
  model->to(type);
  Batch data = tiny_data(13);
  data.set("input", data["input"].to(type));
  data.set("tokens", at::arange(13, at::kLong).remainder(4).to(type));
  DataSpec spec{.dataloader = data::in_memory(data, {.batch_size = 13, .shuffle = false})};
  spec.get_num_tokens_in_batch = [](const Batch& b) {
    return TokenCount(5 * b.front().size(0), b["tokens"].sum().item<std::int64_t>());
  };
  if (cut) spec.split_batch = [](const Batch& batch, std::int64_t) { return cut_at_random(batch); };
  TrainerOptions options = tiny_options();
  options.model = model;
  options.train_dataloader = spec;
  options.accumulate_train_batch_on_tokens = by_tokens;
  options.device_train_microbatch_size = cut ? 1 : 0;
  at::Tensor gradient;
  options.callbacks = {std::make_shared<At>([&](Event event, const State& state) {
    if (event == Event::AFTER_TRAIN_BATCH)
      gradient = at::cat({state.model->parameters()[0].grad().flatten(), state.model->parameters()[1].grad()}).clone();
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  return gradient;
}

TEST_CASE("The gradient of a batch does not depend on where it is cut") {
  at::manual_seed(11);
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-6}, std::pair{at::kDouble, 1e-12}}) {
    for (const bool by_tokens : {false, true}) {
      const at::Tensor whole = gradient(type, by_tokens, /*cut=*/false);
      for (int i = 0; i < 25; ++i) {
        CAPTURE(tolerance);
        CAPTURE(by_tokens);
        CHECK((gradient(type, by_tokens, /*cut=*/true) - whole).abs().max().item<double>() < tolerance);
      }
    }
  }
}

TEST_CASE("Gradients are undefined, not zero, when a batch begins to be trained") {
  // so that the first microbatch's backward keeps its own tensors, and a parameter that is not used is not stepped
  TrainerOptions options = tiny_options();
  std::vector<bool> defined;
  options.callbacks = {std::make_shared<At>([&](Event event, const State& state) {
    if (event != Event::BEFORE_FORWARD) return;
    for (const at::Tensor& parameter : state.model->parameters()) defined.push_back(parameter.grad().defined());
  })};
  Trainer(std::move(options)).fit();
  CHECK(defined == std::vector<bool>(8, false));
}

TEST_CASE("Timestamps count all tokens, weights only those that generate loss") {
  // Sample i of the batch of 4 has i loss-generating tokens: a microbatch of one sample weighs i of 6.
  TrainerOptions options = tiny_options();
  std::vector<double> shares;
  DataSpec spec{.dataloader = tiny_loader(4, 4)};
  spec.get_num_tokens_in_batch = [](const Batch& batch) {
    std::int64_t with_loss = 0;
    for (std::int64_t i = 0; i < batch["target"].size(0); ++i) with_loss += batch["target"][i].item<std::int64_t>();
    return TokenCount(10 * batch["target"].size(0), with_loss);
  };
  options.train_dataloader = spec;
  options.accumulate_train_batch_on_tokens = true;
  options.device_train_microbatch_size = 1;
  Trainer trainer(std::move(options));
  const Batch data = tiny_data(4);  // targets 0, 1, 2, 0
  at::Tensor expected;
  {
    auto model = tiny_model();
    const at::Tensor each =
        at::cross_entropy_loss(model->forward(data).only(), data["target"], {}, at::Reduction::None);
    expected = (each[1] * 1 + each[2] * 2) / 3;
  }
  trainer.fit();
  CHECK(trainer.state().batch_loss["total"].item<double>() == doctest::Approx(expected.item<double>()));
  CHECK(trainer.state().timestamp.token == 40);
}

TEST_CASE("Tokens that an algorithm cuts off are not counted") {
  TrainerOptions options = tiny_options();
  DataSpec spec{.dataloader = tiny_loader(16, 4)};
  spec.get_num_tokens_in_batch = [](const Batch& batch) { return TokenCount(batch["input"].numel()); };
  options.train_dataloader = spec;
  options.max_duration = "36tok";
  options.algorithms = {AtAlgorithm({Event::AFTER_DATALOADER}, [](State& state) {
    if (state.timestamp.batch == 1) state.batch.set("input", state.batch["input"].slice(0, 0, 1));
    if (state.timestamp.batch == 1) state.batch.set("target", state.batch["target"].slice(0, 0, 1));
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.state().timestamp.batch == 3);
  CHECK(trainer.state().timestamp.token == 16 + 4 + 16);
  CHECK(trainer.state().timestamp.sample == 12);
}

TEST_CASE("A batch norm that gets one sample says how to leave it out") {
  for (const bool splits : {false, true}) {
    TrainerOptions options = tiny_options();
    options.model = model_with_memory();
    options.train_dataloader = tiny_loader(5, splits ? 5 : 4);
    options.device_train_microbatch_size = splits ? 2 : 0;
    const std::string text = error_of([&] { Trainer(std::move(options)).fit(); });
    CAPTURE(text);
    CHECK(text.find("cannot train on [1, 4], a single sample; set drop_last of the loader") != std::string::npos);
    CHECK(text.find("Expected more than 1 value per channel") != std::string::npos);
  }
}

// The mean over targets that are not -100, as people write it: 0/0 if there are none.
struct MaskedMean : Model {
  MaskedMean() {
    at::manual_seed(1);
    fc = register_module("fc", torch::nn::Linear(4, 3));
  }
  Outputs forward(const Batch& batch) override { return fc->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    const at::Tensor counts = batch["target"].ne(-100);
    const at::Tensor each =
        at::cross_entropy_loss(outputs.only(), batch["target"].clamp_min(0), {}, at::Reduction::None);
    const at::Tensor mean = (each * counts).sum() / counts.sum();
    return {{"masked", mean}, {"twice", mean * 2}};
  }
  Metrics get_metrics(bool) const override {
    return metrics::LossMetric({.loss_function =
                                    [](const at::Tensor& output, const at::Tensor& target) {
                                      return (output.sum(1) * target.ne(-100)).sum() / target.ne(-100).sum();
                                    },
                                .loss_weight = [](const at::Tensor& target) { return target_weight(target); }});
  }
  torch::nn::Linear fc{nullptr};
};

TokenCount masked_tokens(const Batch& batch) {
  return {batch["target"].numel(), batch["target"].ne(-100).sum().item<std::int64_t>()};
}

TEST_CASE("A microbatch without loss-generating tokens changes no weights, first or last, and its events fire") {
  const auto train = [](std::vector<std::int64_t> targets, std::int64_t microbatch_size, EventLog* log) {
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<MaskedMean>();
    Batch data = tiny_data(4);
    data.set("target", at::tensor(targets, at::kLong));
    options.train_dataloader = DataSpec{.dataloader = data::in_memory(data, {.batch_size = 4, .shuffle = false}),
                                        .get_num_tokens_in_batch = masked_tokens};
    options.accumulate_train_batch_on_tokens = true;
    options.device_train_microbatch_size = microbatch_size;
    options.callbacks = {callbacks::NaNMonitor()};
    if (log) options.callbacks.add(std::shared_ptr<EventLog>(log, [](EventLog*) {}));
    Trainer trainer(std::move(options));
    trainer.fit();
    const State& state = trainer.state();
    return std::tuple{weights_of(trainer), state.batch_loss["total"].item<double>(),
                      state.batch_loss["twice"].item<double>(), state.metrics.at("train", "LossMetric")};
  };
  for (const std::vector<std::int64_t>& targets :
       {std::vector<std::int64_t>{-100, -100, 1, 2}, std::vector<std::int64_t>{1, 2, -100, -100}}) {
    const auto [whole, loss, twice, metric] = train(targets, 0, nullptr);
    EventLog log;
    const auto [weights, our_loss, our_twice, our_metric] = train(targets, 2, &log);
    CHECK(at::allclose(weights, whole, 1e-6, 1e-6));
    CHECK(our_loss == doctest::Approx(loss));
    CHECK(our_twice == doctest::Approx(twice));
    CHECK(our_metric == doctest::Approx(metric));
    for (const char* event : {"before_forward", "after_forward", "after_loss", "after_backward"})
      CHECK(log.count(event) == 2);
  }
}

TEST_CASE("A batch that an algorithm has made larger is split, and one that it has made smaller is no reason to warn") {
  struct Row {
    std::vector<std::int64_t> rows;  // that the algorithm makes of 4
    std::vector<std::int64_t> sizes;
  };
  for (const auto& [rows, expected] : {Row{{0, 1, 2, 3, 0, 1, 2, 3, 0}, {3, 3, 3}}, Row{{0, 1}, {2}}}) {
    TrainerOptions options = tiny_options();
    options.device_train_microbatch_size = 3;
    options.max_duration = "2ba";
    options.algorithms = {AtAlgorithm({Event::AFTER_DATALOADER}, [&rows](State& state) {
      for (auto& [name, tensor] : state.batch) tensor = tensor.index_select(0, at::tensor(rows, at::kLong));
    })};
    std::vector<std::int64_t> sizes;
    options.callbacks = {At([&sizes](Event event, const State& state) {
      if (event == Event::BEFORE_FORWARD && state.timestamp.batch == 1) sizes.push_back(state.batch["input"].size(0));
    })};
    const Warnings warnings;
    Trainer(std::move(options)).fit();
    CHECK(sizes == expected);
    CHECK(warnings.texts.empty());
  }
}

TEST_CASE("A microbatch size beyond that of the loader's batches is warned of once") {
  TrainerOptions options = tiny_options();
  options.device_train_microbatch_size = 100;
  const Warnings warnings;
  Trainer(std::move(options)).fit();
  CHECK(warnings.texts ==
        std::vector<std::string>{"device_train_microbatch_size: is 100, and a batch of the train loader "
                                 "has 4 samples, so batches are not split"});
}

TEST_CASE(
    "Tokens are counted once in each batch and microbatch, on the host, and again only if these are transformed") {
  for (const bool transforms : {false, true}) {
    TrainerOptions options = tiny_options();
    int calls = 0;
    DataSpec spec{.dataloader = tiny_loader(4, 4)};
    spec.get_num_tokens_in_batch = [&calls](const Batch& batch) {
      ++calls;
      return TokenCount(batch.front().size(0));
    };
    if (transforms) spec.microbatch_transforms = [](Batch&) {};
    options.train_dataloader = spec;
    options.accumulate_train_batch_on_tokens = true;
    options.device_train_microbatch_size = 1;
    Trainer(std::move(options)).fit();
    CHECK(calls == (transforms ? 9 : 5));
  }
}

TEST_CASE("A batch without anything to weigh it by is an error, not a division by zero") {
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<MaskedMean>();   // which does not tell what its means are over
  options.accumulate_train_batch_on_tokens = true;  // and no tokens are counted
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
}

}  // namespace
}  // namespace composer::test::microbatches_test
