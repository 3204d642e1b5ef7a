// Autocast and loss scaling on a GPU.
#include <memory>
#include <string_view>
#include <tuple>
#include <variant>

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "composer/core/run.h"
#include "composer/core/state_dict.h"
#include "composer/optim/grad_scaler.h"
#include "tests/gpu/gpu.h"
#include "tests/support/tiny.h"

namespace composer::test::gpu_precision_test {
namespace {

// The first tensor of this name, at whatever depth.
at::Tensor tensor_of(const StateDict& dict, std::string_view name) {
  for (const auto& [key, value] : dict.entries()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value); tensor && key == name) return *tensor;
    if (const auto* inner = std::get_if<StateDict>(&value))
      if (at::Tensor found = tensor_of(*inner, name); found.defined()) return found;
  }
  return {};
}

double scale_of(const State& state) {
  const StateDict all = state.run->snapshot(/*weights_only=*/false);
  for (const auto& [key, value] : all.entries())
    if (const auto* inner = std::get_if<StateDict>(&value))
      if (const StateValue* scaler = inner->find("scaler"))
        return tensor_of(std::get<StateDict>(*scaler), "scale").item<double>();
  const StateValue* scaler = all.find("scaler");
  return scaler ? tensor_of(std::get<StateDict>(*scaler), "scale").item<double>() : 0;
}

bool all_are_float(const Model& model) {
  for (const at::Tensor& parameter : model.parameters())
    if (parameter.scalar_type() != at::kFloat) return false;
  return true;
}

struct OutputType final : Callback {
  void after_forward(const State& state, Logger&) override { type = state.outputs.only().scalar_type(); }
  at::ScalarType type = at::kFloat;
};

TEST_CASE("amp_bf16 and amp_fp16 train on a GPU near to where fp32 does, with weights in float32" * on_gpu()) {
  for (const Net& net : nets()) {
    Trainer untrained(options_of(net, kGpu));
    const std::vector<at::Tensor> expected = trained(options_of(net, kGpu));
    const double moved = distance(weights_on_cpu(untrained), expected);
    for (const Precision precision : {Precision::AMP_BF16, Precision::AMP_FP16}) {
      TrainerOptions options = options_of(net, kGpu);
      options.precision = precision;
      const auto output = std::make_shared<OutputType>();
      options.callbacks = {output};
      Trainer trainer(std::move(options));
      trainer.fit();
      CHECK(all_are_float(*trainer.state().model));
      CHECK((output->type == (precision == Precision::AMP_BF16 ? at::kBFloat16 : at::kHalf)));
      check_close(std::string(net.name) + " in " + std::string(to_string(precision)), weights_on_cpu(trainer), expected,
                  moved / 2);
    }
  }
}

// Whose operator draws random numbers on a GPU without taking a generator.
struct Recurrent final : Model {
  Recurrent() {
    register_module("lstm", lstm);
    register_module("head", head);
  }
  Outputs forward(const Batch& batch) override {
    return head->forward(std::get<0>(lstm->forward(batch["input"])).select(1, -1));
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  Metrics get_metrics(bool) const override { return {}; }

  torch::nn::LSTM lstm{torch::nn::LSTMOptions(8, 16).num_layers(2).batch_first(true).dropout(0.2)};
  torch::nn::Linear head{16, 3};
};

TEST_CASE("A recurrent net with dropout trains on a GPU in every precision, and with equal numbers" * on_gpu()) {
  for (const Precision precision : {Precision::FP32, Precision::AMP_BF16, Precision::AMP_FP16}) {
    const auto weights = [&](std::uint64_t seed) {
      TrainerOptions options = options_of(nets().front(), kGpu);
      at::manual_seed(3);
      options.model = std::make_shared<Recurrent>();
      options.train_dataloader =
          data::in_memory({{"input", noise(kSamples * 6 * 8).to(at::kFloat).view({kSamples, 6, 8})},
                           {"target", at::arange(kSamples).remainder(3)}},
                          {.batch_size = kBatchSize});
      options.eval_dataloader = {};
      options.precision = precision;
      options.seed = seed;
      return trained(std::move(options));
    };
    const std::vector<at::Tensor> first = weights(7);
    check_close(join("LSTM in ", to_string(precision)), weights(7), first, 1e-6);
    CHECK(distance(weights(8), first) > 1e-5);
  }
}

TEST_CASE("TF32 is used if allow_tf32 says so, and the process has its own setting back afterwards" * on_gpu()) {
  const auto setting = [] {
    return at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  };
  const auto before = setting();
  for (const bool allowed : {true, false}) {
    TrainerOptions options = options_of(nets().front(), kGpu);
    options.allow_tf32 = allowed;
    bool is_tf32 = !allowed;
    options.callbacks.add(At([&](Event event, const State&) {
      if (event == Event::BEFORE_FORWARD) is_tf32 = setting() == at::Float32Precision::TF32;
    }));
    trained(std::move(options));
    CHECK(is_tf32 == allowed);
    CHECK(setting() == before);
  }
}

TEST_CASE("amp_fp16 skips a step whose gradients overflow, halves the scale, and trains on" * on_gpu()) {
  constexpr double kScale = 1 << 30;
  TrainerOptions options = options_of(nets().front(), kGpu);
  options.precision = Precision::AMP_FP16;
  options.grad_scaler = optim::GradScalerOptions{.init_scale = kScale};
  options.eval_dataloader = {};
  options.max_duration = "60ba";
  std::vector<double> scales;
  std::vector<at::Tensor> after;  // each batch
  const auto weights = [](const State& state) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& parameter : state.model->parameters()) flat.push_back(parameter.detach().flatten().clone());
    return at::cat(flat);
  };
  at::Tensor before;
  options.callbacks.add(At([&](Event event, const State& state) {
    if (event == Event::FIT_START) before = weights(state);
    if (event != Event::BATCH_END) return;
    scales.push_back(scale_of(state));
    after.push_back(weights(state));
  }));
  Trainer trainer(std::move(options));
  trainer.fit();
  REQUIRE(scales.size() == 60);
  CHECK(scales[0] == kScale / 2);
  CHECK(after[0].equal(before));
  double scale = kScale;
  std::size_t skipped = 0;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const bool skips = scales[i] < scale;
    CAPTURE(i);
    CHECK(scales[i] == (skips ? scale / 2 : scale));
    CHECK(after[i].equal(i == 0 ? before : after[i - 1]) == skips);
    CHECK(after[i].isfinite().all().item<bool>());
    skipped += skips ? 1 : 0;
    scale = scales[i];
  }
  std::cout << skipped << " of 60 steps skipped, scale " << kScale << " to " << scale << std::endl;
  CHECK(skipped < 40);
}

TEST_CASE("Microbatches on a GPU give the gradients of the whole batch" * on_gpu()) {
  for (const Net& net : nets()) {
    if (std::string_view(net.name) == "ResNet-8") continue;  // batch norms see microbatches
    TrainerOptions options = options_of(net, kGpu);
    options.device_train_microbatch_size = 3;  // not a divisor
    check_close(net.name, trained(std::move(options)), trained(options_of(net, kGpu)), net.tolerance);
  }
}

}  // namespace
}  // namespace composer::test::gpu_precision_test
