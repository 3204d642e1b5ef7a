#include "composer/predict/export.h"

#include <algorithm>
#include <filesystem>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "composer/core/error.h"
#include "composer/models/classifier.h"
#include "composer/models/regressor.h"
#include "composer/predict/predictor.h"
#include "tests/predict/support.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::export_test {
namespace {

using test::Folder, test::SmallModel, test::waves;
namespace nn = torch::nn;

at::Tensor run(torch::jit::Module& program, const Batch& batch) {
  const at::NoGradGuard no_grad;
  std::vector<c10::IValue> inputs;
  for (const auto& [name, tensor] : batch) inputs.emplace_back(tensor);
  return program.forward(std::move(inputs)).toTensor();
}

Batch rows(const Batch& batch, std::int64_t count) {
  Batch part;
  for (const auto& [name, tensor] : batch) part.set(name, tensor.narrow(0, 0, count));
  return part;
}

// Uses the number of samples as a number.
struct FixedNet final : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.reshape({x.size(0) * 2, 2}).sum(1).view({x.size(0), 2}); }
};

std::shared_ptr<Model> regressor_of(const std::shared_ptr<FixedNet>& net) {
  return std::make_shared<models::Regressor>(net);
}

}  // namespace

TEST_CASE("Every ready model as a TorchScript program has its outputs, for other sizes as well, and its names") {
  const Folder folder;
  for (const SmallModel& small : test::small_models()) {
    CAPTURE(small.name);
    const auto model = small.make();
    const Exported made =
        export_torchscript(*model, small.batch, folder / (small.name + ".pt"), {.dynamic = small.dynamic});
    CHECK(made.any_batch_size);
    CHECK(made.outputs == std::vector<std::string>{"output"});
    torch::jit::Module program = torch::jit::load((folder / (small.name + ".pt")).string());
    for (const std::int64_t count : {1, 2, 3}) {
      Batch batch = rows(small.batch, count);
      for (const auto& [name, dimensions] : small.dynamic) batch.set(name, batch.at(name).narrow(1, 0, 3 + count));
      const at::NoGradGuard no_grad;
      CHECK(at::allclose(run(program, batch), model->forward(batch).only(), 1e-5, 1e-6));
    }
    std::vector<std::string> names, expected;
    for (const auto& parameter : program.named_parameters()) names.push_back(parameter.name);
    for (const auto& parameter : model->named_parameters()) expected.push_back(parameter.key());
    std::ranges::sort(names);
    std::ranges::sort(expected);
    CHECK(names == expected);
  }
}

TEST_CASE("An example of one sample makes a program of any number, and unused tensors are no inputs") {
  const Folder folder;
  const auto model = models::make("mlp", {{"features", "4 8 3"}});
  model->train();
  const Batch example = {{"target", at::zeros({1}, at::kLong)}, {"input", waves({1, 4})}};
  const Exported made = export_torchscript(*model, example, folder / "m.pt");
  CHECK(made.inputs == std::vector<std::string>{"input"});
  CHECK(made.any_batch_size);
  CHECK(model->is_training());
  torch::jit::Module program = torch::jit::load((folder / "m.pt").string());
  CHECK(run(program, {{"input", waves({9, 4})}}).size(0) == 9);
  CHECK(export_onnx(*model, example, folder / "m.onnx").inputs == std::vector<std::string>{"input"});
}

TEST_CASE("A model that uses the number of samples is exported with a warning, and not with dynamic sizes") {
  const Folder folder;
  const auto model = regressor_of(std::make_shared<FixedNet>());
  const test::Warnings warnings;
  CHECK_FALSE(export_torchscript(*model, waves({3, 4}), folder / "m.pt").any_batch_size);
  CHECK(warnings.say("export_torchscript: the program works for 3 samples at once only"));
  CHECK_THROWS_WITH_AS(export_onnx(*model, waves({3, 4}), folder / "m.onnx", {.dynamic = {{"input", {1}}}}),
                       doctest::Contains("does not work for other sizes"), ConfigError);
}

TEST_CASE("A predictor is exported with the model's inputs, after its preprocessing") {
  const Folder folder;
  at::manual_seed(1);
  const Predictor predictor(std::make_shared<test::OwnNet>(),
                            {.preprocessing = std::make_shared<test::Centering>(waves({5, 3}))});
  const Batch raw = {{"raw", waves({2, 3})}};
  const Exported made = export_torchscript(predictor, raw, folder / "m.pt");
  CHECK(made.inputs == std::vector<std::string>{"x"});
  CHECK(made.outputs == std::vector<std::string>{"logits", "features"});
  torch::jit::Module program = torch::jit::load((folder / "m.pt").string());
  const auto outputs = program.forward({predictor.prepare(raw).at("x")}).toTuple()->elements();
  CHECK(at::allclose(outputs[0].toTensor() + 100, predictor(raw).at("logits")));
}

TEST_CASE("A program that would have other outputs than the model is not written") {
  struct Made final : nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x * at::tensor({1.F, 2.F, 3.F, 4.F}); }
  };
  const Folder folder;
  const auto model = std::make_shared<models::Regressor>(std::make_shared<Made>());
  CHECK_THROWS_WITH_AS(export_torchscript(*model, waves({2, 4}), folder / "m.pt"),
                       doctest::Contains("makes a tensor from numbers"), Error);
  CHECK_FALSE(std::filesystem::exists(folder / "m.pt"));
}

TEST_CASE("A module with the name of a word of Python can be exported") {
  const Folder folder;
  test::OwnNet model;  // its layers are called "in" and "out"
  export_torchscript(model, {{"x", waves({2, 3})}}, folder / "m.pt");
  CHECK_NOTHROW(torch::jit::load((folder / "m.pt").string()));
}

TEST_CASE("An operator that ONNX lacks is named with its layer") {
  struct Odd final : nn::Module {
    Odd() { register_module("first", in); }
    at::Tensor forward(const at::Tensor& x) { return at::frac(in(x)); }
    nn::Linear in{4, 4};
  };
  const Folder folder;
  const auto model = std::make_shared<models::Regressor>(std::make_shared<Odd>());
  const std::string error = test::error_of([&] { export_onnx(*model, waves({2, 4}), folder / "m.onnx"); });
  CHECK(error ==
        "export_onnx: aten::frac in or after module.first: there is no translation of it; use "
        "export_torchscript(), or replace the operator");
  CHECK_FALSE(std::filesystem::exists(folder / "m.onnx"));
}

TEST_CASE("Options of an export that do not fit the example are refused") {
  const Folder folder;
  const auto model = models::make("mlp", {{"features", "4 3"}});
  const auto refuses = [&](const Batch& example, const ExportOptions& options, const std::string& why) {
    const std::string error = test::error_of([&] { export_torchscript(*model, example, folder / "m.pt", options); });
    CHECK_MESSAGE(error.find(why) != std::string::npos, error);
  };
  refuses({}, {}, "the example has no tensors");
  refuses(waves({2, 4}), {.inputs = {"x"}}, "inputs: the example has no \"x\"; there are: input");
  refuses(waves({2, 4}), {.dynamic = {{"x", {1}}}}, "dynamic: the example has no \"x\"");
  refuses(waves({2, 4}), {.dynamic = {{"input", {0}}}}, "the dimensions 1 to 1 besides the samples, got 0");
  refuses(waves({2, 4}), {.dynamic = {{"input", {2}}}}, "got 2");
}

}  // namespace composer::export_test
