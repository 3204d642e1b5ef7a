// What NaNMonitor says of the cause of a NaN.
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/callbacks/nan_monitor.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/run.h"
#include "composer/data/map_style.h"
#include "composer/formats/safetensors.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"

namespace composer::nan_culprit_test {

using namespace test;
using callbacks::NaNMonitor;
using callbacks::NaNMonitorOptions;

namespace {

// fc1, something of the test's between, fc2.
struct Net final : Model {
  explicit Net(std::function<at::Tensor(const at::Tensor&)> given) : between(std::move(given)) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    const at::NoGradGuard no_grad;
    fc1->weight.copy_(at::eye(4));
    fc1->bias.zero_();
    fc2->weight.fill_(0.25);
    fc2->bias.zero_();
  }
  Outputs forward(const Batch& batch) override { return fc2->forward(between(fc1->forward(batch.at("input")))); }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().mean(); }

  torch::nn::Linear fc1{4, 4}, fc2{4, 3};
  std::function<at::Tensor(const at::Tensor&)> between;
};

TrainerOptions options(std::function<at::Tensor(const at::Tensor&)> between, NaNMonitorOptions monitor) {
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Net>(std::move(between));
  options.callbacks = {NaNMonitor(std::move(monitor))};
  return options;
}

std::string error_of_fit(TrainerOptions options) {
  Trainer trainer(std::move(options));
  return error_of([&] { trainer.fit(); });
}

}  // namespace

TEST_CASE("NaNMonitor names the operator that made a NaN of finite numbers, the layer before it, and its inputs") {
  const std::string error = error_of_fit(options([](const at::Tensor& x) { return x.log(); }, {.folder = ""}));
  CAPTURE(error);
  CHECK(contains(error, "the training loss \"total\" is NaN"));
  CHECK(contains(error, "aten::log after fc1 made it of finite numbers"));
  CHECK(contains(error, "input 1: Float [4, 4], -0."));
  CHECK(contains(error, "NaN"));
}

TEST_CASE("NaNMonitor names the layer whose own operator made it") {
  TrainerOptions with = options([](const at::Tensor& x) { return x; }, {.folder = ""});
  {
    const at::NoGradGuard no_grad;
    dynamic_cast<Net&>(*with.model).fc2->weight.fill_(3e38);
    dynamic_cast<Net&>(*with.model).fc1->bias.fill_(10);
  }
  with.callbacks = {NaNMonitor({.check_infinity = true, .folder = ""})};
  const std::string error = error_of_fit(std::move(with));
  CAPTURE(error);
  CHECK(contains(error, "is not finite"));
  CHECK(contains(error, "aten::addmm in fc2 made it"));
}

TEST_CASE("NaNMonitor blames an overflow, not the NaN that came of it, and says where it became one") {
  const std::string error = error_of_fit(options(
      [](const at::Tensor& x) {
        const at::Tensor large = (x + 200).exp();
        return large - large;
      },
      {.folder = ""}));
  CAPTURE(error);
  CHECK(contains(error, "aten::exp after fc1 made it of finite numbers"));
  CHECK(contains(error, "the infinity became NaN in aten::sub after fc1"));
}

TEST_CASE("NaNMonitor does not blame the infinities of a mask") {
  const std::string error = error_of_fit(options(
      [](const at::Tensor& x) {
        const at::Tensor masked = x.masked_fill(at::arange(4) > 1, -INFINITY).softmax(1);
        return masked + x.masked_fill(at::ones_like(x, at::kBool), -INFINITY).softmax(1);
      },
      {.folder = ""}));
  CAPTURE(error);
  CHECK(contains(error, "aten::_softmax"));
  CHECK_FALSE(contains(error, "masked_fill after"));
}

TEST_CASE("NaNMonitor finds the operator of the backward pass, if it checks gradients") {
  const auto root_of_zero = [](const at::Tensor& x) { return (x * 0).sqrt(); };
  const Folder folder;
  const std::string later = error_of_fit(options(root_of_zero, {.folder = (folder / "nan").string()}));
  CAPTURE(later);
  CHECK(contains(later, "from the gradients of an earlier batch"));
  CHECK(contains(later, "give NaNMonitor check_gradients = true"));
  CHECK_FALSE(contains(later, "samples of the microbatch"));  // they are innocent
  CHECK_FALSE(std::filesystem::exists(folder / "nan"));
  const std::string error = error_of_fit(options(root_of_zero, {.check_gradients = true, .folder = ""}));
  CAPTURE(error);
  CHECK(contains(error, "the norm of the gradients is not finite"));
  CHECK(contains(error, "SqrtBackward0"));
  CHECK(contains(error, "after fc1"));
}

TEST_CASE("NaNMonitor says that the weights were NaN before the first batch") {
  TrainerOptions with = options([](const at::Tensor& x) { return x; }, {.folder = ""});
  {
    const at::NoGradGuard no_grad;
    dynamic_cast<Net&>(*with.model).fc2->weight[1][2] = NAN;
  }
  const std::string error = error_of_fit(std::move(with));
  CAPTURE(error);
  CHECK(contains(error, "the weights had it before the first batch"));
  CHECK(contains(error, "fc2.weight is Float [3, 4]"));
  CHECK(contains(error, "1 NaN"));
}

TEST_CASE("NaNMonitor names the rows and samples of a batch that is NaN already, and keeps its microbatch in a file") {
  const Folder folder;
  Batch data = tiny_data(16);
  data.at("input")[9][1] = NAN;  // of batch 2, microbatch 0, row 1
  TrainerOptions with = options([](const at::Tensor& x) { return x; }, {.folder = (folder / "{run_name}").string()});
  with.train_dataloader = data::in_memory(data, {.batch_size = 4, .shuffle = false});
  with.device_train_microbatch_size = 2;
  const std::string error = error_of_fit(std::move(with));
  CAPTURE(error);
  CHECK(contains(error, "the batch has it already: \"input\" is Float [2, 4]"));
  CHECK(contains(error, "1 NaN in row 1"));
  CHECK(contains(error, "samples of the microbatch: 8, 9\n"));
  const auto path = folder / "tiny/nan-ep0-ba2.safetensors";
  CHECK(contains(error, path.string()));
  const formats::SafetensorsFile file(path);
  CHECK(file.read("input").slice(0, 0, 1).equal(data.at("input").slice(0, 8, 9)));
  CHECK(file.metadata().at("sample_indices") == "8 9");
}

TEST_CASE("NaNMonitor repeats the microbatch with the random numbers that made the NaN") {
  // Only one of a hundred draws is NaN.
  const auto between = [](const at::Tensor& x) { return at::where(at::rand({}) < 0.01, (x - 100).log(), x); };
  TrainerOptions with = options(between, {.folder = ""});
  with.max_duration = "400ep";
  with.seed = 3;
  const std::string error = error_of_fit(std::move(with));
  CAPTURE(error);
  CHECK(contains(error, "aten::log"));
  CHECK_FALSE(contains(error, "all was finite"));
}

TEST_CASE("A microbatch that is repeated leaves no trace") {
  struct Repeats : Callback {
    void before_forward(const State& state, Logger&) override { state.run->keep_random(); }
    void after_loss(const State& state, Logger&) override {
      const double before = state.loss.at("total").item<double>();
      state.run->repeat_microbatch(/*backward=*/true);
      CHECK(state.loss.at("total").item<double>() == before);
      ++times;
    }
    void after_backward(const State& state, Logger&) override { state.run->repeat_microbatch(/*backward=*/true); }
    int times = 0;
  };
  const auto train = [](std::shared_ptr<Repeats> repeats) {
    auto norm = std::make_shared<torch::nn::BatchNorm1dImpl>(4);
    TrainerOptions options = tiny_options();
    const auto net = std::make_shared<Net>(
        [norm](const at::Tensor& x) { return at::dropout(norm->forward(x), 0.5, /*train=*/true); });
    net->register_module("norm", norm);
    options.model = net;
    options.device_train_microbatch_size = 2;
    options.seed = 5;
    if (repeats) options.callbacks = {repeats};
    Trainer trainer(std::move(options));
    trainer.fit();
    return std::pair(weights_of(trainer), norm->running_mean.clone());
  };
  const auto repeats = std::make_shared<Repeats>();
  const auto with = train(repeats), without = train(nullptr);
  CHECK(repeats->times == 8);
  CHECK(with.first.equal(without.first));
  CHECK(with.second.equal(without.second));
}

TEST_CASE("To repeat a microbatch whose random numbers were not kept is an error") {
  struct Forgets : Callback {
    void after_loss(const State& state, Logger&) override { state.run->repeat_microbatch(false); }
  };
  TrainerOptions with = tiny_options();
  with.callbacks = {Forgets()};
  with.nan = OnNaN::WARN;  // with STOP, the trainer keeps them on a CPU
  CHECK(contains(error_of_fit(std::move(with)), "keep_random() was not called"));
}

TEST_CASE("NaNMonitor refuses to check gradients that are scaled") {
  State state;
  state.precision = Precision::AMP_FP16;
  CHECK_THROWS_AS(NaNMonitor({.check_gradients = true}).check_fit({}, state), ConfigError);
  CHECK_NOTHROW(NaNMonitor().check_fit({}, state));
}

TEST_CASE("Loaders tell which samples are in a batch, shuffled or not") {
  const Batch data = {{"input", at::arange(10)}};
  for (const bool shuffle : {true, false}) {
    const auto in_memory = data::in_memory(data, {.batch_size = 4, .shuffle = shuffle, .seed = 1});
    const auto map_style = data::map_style(
        {.size = 10, .get = [](std::int64_t index, RandomStream) -> data::Sample { return at::scalar_tensor(index); }},
        {.batch_size = 4, .shuffle = shuffle, .seed = 1, .num_workers = 2});
    for (const auto& loader : {in_memory, map_style}) {
      for (std::int64_t epoch : {0, 3}) {
        loader->seek(epoch, 0);
        for (std::int64_t batch = 0; batch < 3; ++batch) {
          const at::Tensor input = loader->next()->at("input").to(at::kLong);
          const std::vector<std::int64_t> indices = loader->sample_indices(epoch, batch);
          REQUIRE(static_cast<std::int64_t>(indices.size()) == input.numel());
          for (std::int64_t i = 0; i < input.numel(); ++i)
            CHECK(indices[static_cast<std::size_t>(i)] == input[i].item<std::int64_t>());
        }
      }
    }
  }
}

}  // namespace composer::nan_culprit_test
