// Autocast and loss scaling on a GPU.
#include <string_view>
#include <variant>

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

TEST_CASE("amp_bf16 and amp_fp16 train on a GPU near to where fp32 does, with weights in float32" * on_gpu()) {
  for (const Net& net : nets()) {
    const std::vector<at::Tensor> expected = trained(options_of(net, kGpu));
    for (const Precision precision : {Precision::AMP_BF16, Precision::AMP_FP16}) {
      TrainerOptions options = options_of(net, kGpu);
      options.precision = precision;
      Trainer trainer(std::move(options));
      trainer.fit();
      CHECK(all_are_float(*trainer.state().model));
      check_close(std::string(net.name) + " in " + std::string(to_string(precision)), weights_on_cpu(trainer), expected,
                  0.1);
    }
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
