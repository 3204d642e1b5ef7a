#include "composer/step/step_graph.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/gyro_dropout.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/stochastic_depth.h"
#include "composer/callbacks/activation_monitor.h"
#include "composer/core/algorithm.h"
#include "composer/core/error.h"
#include "composer/loggers/in_memory_logger.h"
#include "tests/step/host_graph.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/doctest.h"
#include "tests/support/skippable_sgd.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::step_graph_test {
namespace {

// Batch norm writes to buffers and dropout draws random numbers.
std::shared_ptr<Model> model_with_memory() {
  at::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Dropout(0.5),
                            torch::nn::Linear(8, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

// 3 epochs of 4 full batches and one of 2, evaluated after every third batch.
TrainerOptions options_with_memory() {
  TrainerOptions options = tiny_options();
  options.model = model_with_memory();
  options.train_dataloader = data::in_memory(tiny_data(18), {.batch_size = 4});
  options.eval_dataloader = tiny_loader(10, 5);
  options.eval_interval = "3ba";
  options.max_duration = "3ep";
  return options;
}
// For batches that the test gives.
TrainerOptions without_loader() {
  TrainerOptions options = options_with_memory();
  options.train_dataloader = {};
  options.max_duration = std::nullopt;
  return options;
}
constexpr int kFull = 12, kWarmUps = 3;

// What a run shows: at each event the tensors of the moment, as they are at the end, or copies of those that a graph
// may overwrite; then what is left.
struct Shown {
  std::vector<std::string> events;
  std::vector<at::Tensor> tensors;
};

bool operator==(const Shown& a, const Shown& b) {
  if (a.events != b.events || a.tensors.size() != b.tensors.size()) return false;
  for (std::size_t i = 0; i < a.tensors.size(); ++i)
    if (!a.tensors[i].equal(b.tensors[i])) return false;
  return true;
}

std::shared_ptr<Callback> show(Shown& shown) {
  return std::make_shared<At>([&shown](Event event, const State& state) {
    shown.events.emplace_back(to_string(event));
    const auto add = [&](const Tensors& tensors, bool copy) {
      for (const auto& [name, tensor] : tensors) shown.tensors.push_back(copy ? tensor.detach().clone() : tensor);
    };
    if (event == Event::AFTER_FORWARD) add(state.outputs, /*copy=*/true);
    if (event == Event::AFTER_FORWARD) add(state.batch, /*copy=*/false);
    if (event == Event::AFTER_LOSS) add(state.loss, /*copy=*/false);
    if (event == Event::BEFORE_LOSS) add(state.loss, /*copy=*/true);  // of the batch before
    if (event == Event::BEFORE_BACKWARD || event == Event::AFTER_TRAIN_BATCH)
      for (const at::Tensor& parameter : state.model->parameters())
        shown.tensors.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::empty({0}));
    if (event == Event::BATCH_END) add(state.batch_loss, /*copy=*/false);
  });
}

void add_what_is_left(Shown& shown, Trainer& trainer) {
  shown.tensors.push_back(weights_of(trainer));
  for (const at::Tensor& buffer : trainer.state().model->buffers()) shown.tensors.push_back(buffer);
  for (const auto& [label, values] : trainer.state().metrics.all())
    for (const auto& [name, reported] : values) shown.tensors.push_back(reported.value);
  shown.tensors.push_back(at::rand({3}));
}

using MakeOptions = std::function<TrainerOptions()>;
using Drive = std::function<void(Trainer&)>;

Shown run(const MakeOptions& make, bool graph, const Drive& drive) {
  Shown shown;
  TrainerOptions options = make();
  options.cuda_graph = graph;
  options.seed = 3;
  options.callbacks = {show(shown)};
  Trainer trainer(std::move(options));
  drive(trainer);
  add_what_is_left(shown, trainer);
  return shown;
}

struct Compared {
  bool equal = false;
  GraphCounts counts;
  std::vector<std::string> warnings;
};

// Whether a run with graphs shows and leaves the same as one without, to the bit.
Compared compare(
    const MakeOptions& make, const Drive& drive = [](Trainer& trainer) { trainer.fit(); }) {
  Warnings warnings;
  const GraphsOnHost graphs;
  at::manual_seed(4);
  const Shown plain = run(make, false, drive);
  REQUIRE(graphs.counts().captures == 0);
  warnings.texts.clear();
  at::manual_seed(4);
  const Shown ours = run(make, true, drive);
  return {plain == ours, graphs.counts(), warnings.texts};
}

optim::AnyOptimizer torchs_adam() {
  return optim::AnyOptimizer::Factory([](optim::NamedParameters parameters) -> std::shared_ptr<optim::Optimizer> {
    std::vector<at::Tensor> list;
    for (const auto& [name, parameter] : parameters) list.push_back(parameter);
    return std::make_shared<torch::optim::Adam>(list, torch::optim::AdamOptions(0.01));
  });
}

TEST_CASE("A run whose steps are replayed is equal to the bit to one whose steps are not") {
  using Change = void (*)(TrainerOptions&);
  const std::vector<std::pair<const char*, Change>> rows{
      {"SGD", [](TrainerOptions&) {}},
      {"momentum", [](TrainerOptions& o) { o.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9}); }},
      {"AdamW", [](TrainerOptions& o) { o.optimizer = optim::adamw({.lr = 0.01}); }},
      {"libtorch's Adam", [](TrainerOptions& o) { o.optimizer = torchs_adam(); }},
      {"clipping",
       [](TrainerOptions& o) {
         o.optimizer = optim::adamw({.lr = 0.01});
         o.algorithms = {algorithms::GradientClipping({.clipping_threshold = 0.05})};
       }},
      {"bf16", [](TrainerOptions& o) { o.precision = Precision::AMP_BF16; }},
      {"a scaler that grows",
       [](TrainerOptions& o) {
         o.optimizer = skippable_sgd(0.1);
         o.grad_scaler = optim::GradScalerOptions{.init_scale = 16, .growth_interval = 2};
       }},
      {"a schedule",
       [](TrainerOptions& o) {
         o.schedulers = {
             [](const optim::ScheduleContext& now) { return static_cast<double>(now.timestamp.batch % 3); }};
       }},
  };
  for (const auto& [name, change] : rows) {
    CAPTURE(name);
    const Compared compared = compare([change = change] {
      TrainerOptions options = options_with_memory();
      change(options);
      return options;
    });
    CHECK(compared.equal);
    CHECK(compared.counts.captures == 1);
    CHECK(compared.counts.replays == kFull - kWarmUps);
    CHECK(compared.warnings.empty());
  }
}

// Two losses of a sample each, without a total.
class TwoLosses final : public Model {
 public:
  TwoLosses() : linear_(register_module("linear", torch::nn::Linear(4, 3))) {}
  Outputs forward(const Batch& batch) override {
    at::Tensor y = linear_->forward(batch["input"]);
    return {{"y", y}, {"half", y * 0.5}};
  }
  Losses loss(const Outputs& outputs, const Batch&) override {
    return {{"square", outputs["y"].square().sum(1)}, {"far", (outputs["half"] - 1).abs()}};
  }

 private:
  torch::nn::Linear linear_;
};

TEST_CASE("Several losses that are not scalars are what they are without a graph, and stay so when they are kept") {
  const Compared compared = compare([] {
    at::manual_seed(4);
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<TwoLosses>();
    options.max_duration = "3ep";
    return options;
  });
  CHECK(compared.equal);
  CHECK(compared.counts.replays == 9);
}

TEST_CASE("Batches of other shapes are trained, and the shape that comes most often first is recorded") {
  const Compared compared = compare(&without_loader, [](Trainer& trainer) {
    trainer.begin();
    for (const int samples : {4, 6, 4, 6, 6, 6, 6, 4, 4, 6, 5, 6}) trainer.step(tiny_data(samples));
    trainer.end();
  });
  CHECK(compared.equal);
  CHECK(compared.counts.captures == 1);
  CHECK(compared.counts.replays == 4);  // of 6
  CHECK(compared.warnings.empty());
}

TEST_CASE("Each fit records anew, in its own precision") {
  const Compared compared = compare(&options_with_memory, [](Trainer& trainer) {
    trainer.fit("2ep");
    trainer.fit({.duration = "2ep", .precision = Precision::AMP_BF16});
  });
  CHECK(compared.equal);
  CHECK(compared.counts.captures == 2);
  CHECK(compared.counts.replays == 2 * (8 - kWarmUps));
}

TEST_CASE("What changes the model between batches is followed by another recording") {
  const std::vector<std::pair<const char*, void (*)(Model&)>> rows{
      {"a layer that is frozen", [](Model& model) { model.parameters()[0].set_requires_grad(false); }},
      {"a module in another mode", [](Model& model) { model.modules(false)[3]->eval(); }},
      {"weights in other memory",
       [](Model& model) {
         at::Tensor weight = model.parameters()[0];
         weight.set_data(weight.detach() * 2);
       }},
      {"another module", [](Model& model) { model.children()[0]->replace_module("0", torch::nn::Linear(4, 8)); }},
      {"another parameter", [](Model& model) { model.children()[0]->register_parameter("more", at::ones({2})); }},
  };
  for (const auto& [name, change] : rows) {
    CAPTURE(name);
    const auto drive = [change = change](Trainer& trainer) {
      trainer.begin();
      for (int i = 0; i < 12; ++i) {
        if (i == 6) change(*trainer.state().model);
        trainer.step(tiny_data(4));
      }
      trainer.end();
    };
    const auto make = [] {
      TrainerOptions options = without_loader();
      options.eval_dataloader = {};  // evaluation sets the modes of all modules
      return options;
    };
    const Compared compared = compare(make, drive);
    CHECK(compared.equal);
    CHECK(compared.counts.captures == 2);
    CHECK(compared.counts.replays == 6);
  }
}

enum class Where { FORWARD, LOSS, BACKWARD };

// Reads a value on the host; in backward when a part of the gradients is there.
class Reader final : public models::Classifier {
 public:
  explicit Reader(Where where)
      : Classifier(torch::nn::Linear(4, 3), models::ClassifierOptions{.num_classes = 3}),
        first_(register_module("first", torch::nn::Linear(4, 4))),
        where_(where) {}
  Outputs forward(const Batch& batch) override {
    at::Tensor random = at::rand({1});
    if (where_ == Where::FORWARD) random = random * random.item<float>();
    const at::Tensor hidden = first_->forward(batch["input"] * random);
    if (where_ == Where::BACKWARD && hidden.requires_grad())
      hidden.register_hook([](const at::Tensor& gradient) { return gradient * gradient.norm().item<float>(); });
    return Classifier::forward({{"input", hidden}, {"target", batch["target"]}});
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    Losses losses = Classifier::loss(outputs, batch);
    return where_ == Where::LOSS ? Losses(losses.front() * losses.front().item<float>()) : losses;
  }

 private:
  torch::nn::Linear first_;
  Where where_;
};

TEST_CASE("A step that reads a value on the host is trained as without a graph, after one warning") {
  for (const Where where : {Where::FORWARD, Where::LOSS, Where::BACKWARD}) {
    CAPTURE(static_cast<int>(where));
    const Compared compared = compare([where] {
      at::manual_seed(4);
      TrainerOptions options = options_with_memory();
      options.model = std::make_shared<Reader>(where);
      return options;
    });
    CHECK(compared.equal);
    CHECK(compared.counts.captures == 1);
    CHECK(compared.counts.failures == 1);
    CHECK(compared.counts.replays == 0);
    REQUIRE(compared.warnings.size() == 1);
    CHECK(compared.warnings[0] ==
          "cuda_graph: steps run as without it: a step could not be recorded: operation not permitted when stream is "
          "capturing");
  }
}

TEST_CASE("A step that drops blocks by a random number of the host is trained as without a graph, after one warning") {
  struct Block final : ResidualBlock {
    Block() { register_module("linear", linear); }
    at::Tensor branch(const at::Tensor& x) override { return linear->forward(x); }
    torch::nn::Linear linear{4, 4};
  };
  const Compared compared = compare([] {
    at::manual_seed(4);
    TrainerOptions options = options_with_memory();
    torch::nn::Sequential net(torch::nn::Dropout(0.1), Layer(std::make_shared<Block>()), torch::nn::Linear(4, 3));
    options.model = std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
    REQUIRE(algorithms::stochastic_depth(*options.model, {.drop_rate = 0.5}) == 1);
    return options;
  });
  CHECK(compared.equal);
  CHECK(compared.counts.captures == 1);
  CHECK(compared.counts.replays == 0);
  REQUIRE(compared.warnings.size() == 1);
  CHECK(compared.warnings[0] ==
        "cuda_graph: steps run as without it: a step could not be recorded: a block is dropped or kept by a random "
        "number of the host, which a recording would repeat in every batch");
}

// Listens to an event, and does nothing.
class Idle final : public Algorithm {
 public:
  explicit Idle(Event event) : event_(event) {}
  EventSet events() const override { return {event_}; }
  void apply(Event, State&, Logger&) override {}

 private:
  Event event_;
};

TEST_CASE("What cannot be recorded is said once, also over two fits, and trained") {
  struct Row {
    const char* reason;
    void (*change)(TrainerOptions&);
  };
  const std::vector<Row> rows{
      {"device_train_microbatch_size is not 0, and only whole batches are recorded",
       [](TrainerOptions& o) { o.device_train_microbatch_size = 2; }},
      {"device_train_microbatch_size is not 0, and only whole batches are recorded",
       [](TrainerOptions& o) { o.device_train_microbatch_size = "auto"; }},
      {"MixUp may change what is recorded, at BEFORE_LOSS",
       [](TrainerOptions& o) { o.algorithms = {algorithms::MixUp({.alpha = 0.3})}; }},
      {"GyroDropout may change what is recorded, at AFTER_FORWARD",
       [](TrainerOptions& o) {
         o.model = model_with_memory();
         o.algorithms = {algorithms::GyroDropout({.sigma = 4, .tau = 2})};
       }},
      {"Idle may change what is recorded, at AFTER_FORWARD",
       [](TrainerOptions& o) { o.algorithms = {Idle(Event::AFTER_FORWARD)}; }},
      {"Idle may change what is recorded, at BEFORE_BACKWARD",
       [](TrainerOptions& o) { o.algorithms = {Idle(Event::BEFORE_BACKWARD)}; }},
      {"the optimizer has step_in_backward",
       [](TrainerOptions& o) { o.optimizer = optim::sgd({.lr = 0.1, .step_in_backward = true}); }},
      {"\"input\" of a batch is to have a gradient",
       [](TrainerOptions& o) {
         o.train_dataloader = DataSpec{.dataloader = tiny_loader(16, 4), .microbatch_transforms = [](Batch& batch) {
                                         batch.set("input", batch["input"].clone().requires_grad_(true));
                                       }};
       }},
      {"a parameter has a gradient before the step, maybe because the optimizer does not have it",
       [](TrainerOptions& o) {
         const at::Tensor first = o.model->parameters().front(), last = o.model->parameters().back();
         last.set_requires_grad(false).mutable_grad() = at::zeros_like(last);
         o.optimizer = optim::AnyOptimizer::Factory([first](optim::NamedParameters) {
           return optim::sgd({.lr = 0.1}).make({{"first", first}});
         });
       }},
      {"batches have more than 16 shapes",
       [](TrainerOptions& o) {
         o.train_dataloader =
             DataSpec{.dataloader = tiny_loader(80, 2), .batch_transforms = [n = 0](Batch& batch) mutable {
                        batch.set("more", at::ones({2, 1 + n++ % 20}));
                      }};
       }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.reason);
    const auto make = [&row] {
      TrainerOptions options = tiny_options();
      row.change(options);
      return options;
    };
    const Compared compared = compare(make, [](Trainer& trainer) {
      trainer.fit();
      trainer.fit("1ep");
    });
    CHECK(compared.equal);
    CHECK(compared.counts.captures == 0);
    REQUIRE(compared.warnings.size() == 1);
    CHECK(compared.warnings[0] == join("cuda_graph: steps run as without it: ", row.reason));
  }
}

TEST_CASE("An algorithm may change each batch before forward and each gradient after backward of a graph") {
  const Compared compared = compare([] {
    TrainerOptions options = options_with_memory();
    options.algorithms = {AtAlgorithm({Event::BEFORE_FORWARD},
                                      [](State& state) {
                                        const at::Tensor& input = state.batch["input"];
                                        state.batch.set("input", input + 0.1 * at::randn_like(input));
                                      }),
                          AtAlgorithm({Event::AFTER_BACKWARD}, [](State& state) {
                            for (at::Tensor& parameter : state.model->parameters()) parameter.mutable_grad().mul_(0.5);
                            at::Tensor bias = state.model->parameters().back();
                            bias.mutable_grad() = at::ones_like(bias);
                          })};
    return options;
  });
  CHECK(compared.equal);
  CHECK(compared.counts.captures == 1);
  CHECK(compared.counts.replays == kFull - kWarmUps);
  CHECK(compared.warnings.empty());
}

TEST_CASE("Algorithms that run outside of forward to backward go with a graph") {
  const Compared compared = compare([] {
    TrainerOptions options = tiny_options();
    options.max_duration = "2ep";
    options.algorithms = {Idle(Event::BEFORE_TRAIN_BATCH), Idle(Event::AFTER_TRAIN_BATCH),
                          Idle(Event::EVAL_AFTER_FORWARD)};
    return options;
  });
  CHECK(compared.equal);
  CHECK(compared.counts.replays == 5);
}

TEST_CASE("ActivationMonitor logs no batch whose layers are replayed, and says so once") {
  const Warnings warnings;
  const GraphsOnHost graphs;
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = tiny_options();
  options.max_duration = "12ba";
  options.cuda_graph = true;
  options.callbacks = {callbacks::ActivationMonitor({.interval = "3ba"})};
  options.loggers = {log};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(graphs.counts().captures == 1);
  const auto series = log->get_timeseries("activations/average/module_output.0");
  REQUIRE(series.size() == 1);
  CHECK(series.front().timestamp.batch == 0);
  REQUIRE(warnings.texts.size() == 2);  // the first is of an interval that is short
  CHECK(warnings.texts[1] ==
        "ActivationMonitor: batch 3 is due, but no layer has run in it: with cuda_graph the host runs the layers of "
        "the first batches alone, and later ones are not logged");
}

TEST_CASE("A device without graphs is said once") {
  Warnings warnings;
  TrainerOptions options = tiny_options();
  options.cuda_graph = true;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(warnings.texts ==
        std::vector<std::string>{"cuda_graph: steps run as without it: it is for CUDA devices, and the device is cpu"});
}

TEST_CASE("An error while recording costs the graph; if it comes again it leaves fit as any other") {
  struct Failing : models::Classifier {
    explicit Failing(bool always)
        : models::Classifier(torch::nn::Linear(4, 3), models::ClassifierOptions{.num_classes = 3}), always_(always) {}
    Outputs forward(const Batch& batch) override {
      if (++count == 4 || (always_ && count > 4)) throw DataError("no forward today");
      return models::Classifier::forward(batch);
    }
    int count = 0;
    bool always_;
  };
  for (const bool always : {false, true}) {
    Warnings warnings;
    const GraphsOnHost graphs;
    TrainerOptions options = tiny_options();
    const auto model = std::make_shared<Failing>(always);
    options.model = model;
    options.max_duration = "2ep";
    options.cuda_graph = true;
    Trainer trainer(std::move(options));
    if (always)
      CHECK_THROWS_AS(trainer.fit(), RunError);
    else
      trainer.fit();
    CHECK(trainer.state().timestamp.batch == (always ? 3 : 8));
    CHECK(model->count == (always ? 5 : 9));
    REQUIRE(warnings.texts.size() == 1);
    CHECK(warnings.texts[0].ends_with("no forward today"));
  }
}

TEST_CASE("On a GPU, a run whose steps are replayed is as one whose steps are not" * doctest::skip(!at::hasCUDA())) {
  const Warnings warnings;
  for (const Precision precision : {Precision::FP32, Precision::AMP_BF16, Precision::AMP_FP16}) {
    CAPTURE(to_string(precision));
    const auto make = [precision] {
      TrainerOptions options = options_with_memory();
      options.device = at::Device(at::kCUDA);
      options.precision = precision;
      options.optimizer = optim::adamw({.lr = 0.01});
      options.copy_ahead = true;
      return options;
    };
    const auto fit = [](Trainer& trainer) { trainer.fit(); };
    const Shown plain = run(make, false, fit), ours = run(make, true, fit);
    CHECK(plain.events == ours.events);
    REQUIRE(plain.tensors.size() == ours.tensors.size());
    for (std::size_t i = 0; i < plain.tensors.size(); ++i)
      CHECK(at::allclose(plain.tensors[i].to(at::kFloat), ours.tensors[i].to(at::kFloat), 1e-3, 1e-4));
  }
  CHECK(warnings.texts.empty());
}

}  // namespace
}  // namespace composer::test::step_graph_test
