#include "composer/predict/export.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "composer/core/error.h"
#include "composer/formats/torch_trace.h"
#include "composer/models/classifier.h"
#include "composer/models/regressor.h"
#include "composer/predict/onnx_conversion.h"
#include "composer/predict/predictor.h"
#include "composer/predict/recording.h"
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

// A model of one function of a batch.
struct Of final : Model {
  explicit Of(std::function<Outputs(const Batch&)> given) : function(std::move(given)) {}
  Outputs forward(const Batch& batch) override { return function(batch); }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.begin()->second.sum(); }
  std::function<Outputs(const Batch&)> function;
};

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

onnx::OnnxModel as_onnx(Model& model, const Batch& example) {
  const predict::Recording recording = predict::record("test", model, example, {}, formats::InPlace::REPLACED);
  const auto program = formats::trace(model, recording.function, formats::InPlace::REPLACED);
  return onnx::Conversion(program, recording.exported.inputs, recording.exported.outputs).run();
}

}  // namespace

TEST_CASE("No size of the example is in the ONNX model of a ready model") {
  const Folder folder;
  const test::Warnings warnings;
  for (const SmallModel& small : test::small_models()) {
    CAPTURE(small.name);
    const auto model = small.make();
    CHECK(export_onnx(*model, small.batch, folder / "a.onnx", {.dynamic = small.dynamic}).any_batch_size);
    Batch other = rows(small.batch, 2);
    for (const auto& [name, dimensions] : small.dynamic) other.set(name, other.at(name).narrow(1, 0, 5));
    CHECK(export_onnx(*model, other, folder / "b.onnx", {.dynamic = small.dynamic}).any_batch_size);
    CHECK(bytes_of(folder / "a.onnx") == bytes_of(folder / "b.onnx"));
  }
  CHECK(warnings.texts.empty());
}

TEST_CASE("Shapes that are changed before a dimension of any size have no size of the example in ONNX") {
  const Folder folder;
  Of model([](const Batch& batch) -> Outputs { return batch.front().unflatten(1, {2, -1}).mean(2).flatten(0, 1); });
  const ExportOptions options{.dynamic = {{"input", {2}}}};
  export_onnx(model, waves({2, 4, 5, 2}), folder / "a.onnx", options);
  export_onnx(model, waves({3, 4, 10, 2}), folder / "b.onnx", options);
  CHECK(bytes_of(folder / "a.onnx") == bytes_of(folder / "b.onnx"));
}

TEST_CASE("An ONNX model that would keep a size of the example is refused or told, although TorchScript would not") {
  const Folder folder;
  Of model([](const Batch& batch) -> Outputs {
    const std::vector<at::Tensor> halves = batch.front().chunk(2, batch.front().dim() == 2 ? 1 : 0);
    return at::cat({halves[1], halves[0]}, batch.front().dim() == 2 ? 1 : 0);
  });
  const test::Warnings warnings;
  const ExportOptions options{.dynamic = {{"input", {1}}}};
  CHECK(export_torchscript(model, waves({3, 6}), folder / "m.pt", options).any_batch_size);
  CHECK_THROWS_WITH_AS(export_onnx(model, waves({3, 6}), folder / "m.onnx", options),
                       doctest::Contains("operators of ONNX that it needs have sizes of it"), ConfigError);
  CHECK(export_onnx(model, waves({3, 6}), folder / "fixed.onnx").any_batch_size);
  CHECK(warnings.texts.empty());
  CHECK_FALSE(export_onnx(model, waves({4, 6, 2}), folder / "m.onnx").any_batch_size);
  CHECK(warnings.say("export_onnx: the program works for 4 samples at once only"));
}

TEST_CASE("What forward() writes into a part of a tensor is kept in TorchScript, and an error in ONNX") {
  const Folder folder;
  const auto fc = std::make_shared<nn::LinearImpl>(3, 4);
  Of model([&](const Batch& batch) -> Outputs {
    at::Tensor y = fc->forward(batch.front());
    y.narrow(1, 0, 2).sigmoid_();
    return y;
  });
  model.register_module("fc", fc);
  export_torchscript(model, waves({2, 3}), folder / "m.pt");
  torch::jit::Module program = torch::jit::load((folder / "m.pt").string());
  CHECK(run(program, waves({5, 3})).equal(model.forward(waves({5, 3})).only()));
  CHECK_THROWS_WITH_AS(export_onnx(model, waves({2, 3}), folder / "m.onnx"),
                       doctest::Contains("writes into a part of a tensor"), Error);
  CHECK_FALSE(std::filesystem::exists(folder / "m.onnx"));
}

TEST_CASE("A program that has numbers or decisions of the example's values in it is not written") {
  const Folder folder;
  Of scaled([](const Batch& batch) -> Outputs { return batch.front() / batch.front().abs().max().item<float>(); });
  Of decided([](const Batch& batch) -> Outputs {
    return batch.front().sum().item<float>() > 0 ? batch.front() * 2 : batch.front();
  });
  Of indexed([](const Batch& batch) -> Outputs {
    const auto last = batch.front().select(1, 0).max().item<std::int64_t>();
    return batch.front().narrow(1, 0, 1) + last;
  });
  at::manual_seed(1);
  for (Of* model : {&scaled, &decided}) {
    CHECK_THROWS_WITH_AS(export_torchscript(*model, at::rand({1, 4}), folder / "m.pt"),
                         doctest::Contains("other ones for other values, because forward() reads numbers"), Error);
    CHECK_THROWS_AS(export_onnx(*model, at::rand({1, 4}), folder / "m.onnx"), Error);
  }
  CHECK_THROWS_WITH_AS(export_torchscript(indexed, at::tensor({1, 2, 3, 4}).view({2, 2}), folder / "m.pt"),
                       doctest::Contains("for other values"), Error);
  CHECK_FALSE(std::filesystem::exists(folder / "m.pt"));
}

TEST_CASE("Whole numbers of a program are those of the model, not only close to them") {
  const Folder folder;
  std::int64_t calls = 0;
  Of model([&](const Batch& batch) -> Outputs { return batch.front().to(at::kLong) + 100000 + calls++; });
  CHECK_THROWS_WITH_AS(export_torchscript(model, waves({2, 4}), folder / "m.pt"), doctest::Contains("other outputs"),
                       Error);
}

TEST_CASE("A model that writes into its input is exported, and the example stays as it is") {
  const Folder folder;
  Of model([](const Batch& batch) -> Outputs { return batch.at("x").mul_(batch.at("scale")).relu(); });
  for (const auto& scale : {at::full({2, 3}, 1.5), at::full({3}, 1.5)}) {
    const Batch example = {{"x", waves({2, 3})}, {"scale", scale}};
    const test::Warnings warnings;
    export_torchscript(model, example, folder / "m.pt");
    export_onnx(model, example, folder / "m.onnx");
    CHECK(example.at("x").equal(waves({2, 3})));
    torch::jit::Module program = torch::jit::load((folder / "m.pt").string());
    CHECK(run(program, {{"x", waves({2, 3})}, {"scale", scale}}).equal((waves({2, 3}) * 1.5).relu()));
  }
}

TEST_CASE("A model of a fixed number of samples is exported for those of the example, also for many") {
  const Folder folder;
  const auto model = regressor_of(std::make_shared<FixedNet>());
  const test::Warnings warnings;
  CHECK_FALSE(export_torchscript(*model, waves({9, 4}), folder / "m.pt").any_batch_size);
  CHECK(warnings.say("export_torchscript: the program works for 9 samples at once only"));
  torch::jit::Module program = torch::jit::load((folder / "m.pt").string());
  CHECK(run(program, waves({9, 4})).size(0) == 9);
}

TEST_CASE("A weight with the name of an input is not mistaken for it, and an output cannot have that name in ONNX") {
  const Folder folder;
  at::Tensor weight = at::tensor({1.F, 2.F, 3.F});
  Of model([&](const Batch& batch) -> Outputs { return {{"y", batch.at("x") * weight + weight}}; });
  model.register_buffer("x", weight);
  const onnx::OnnxModel made = as_onnx(model, {{"x", waves({2, 3})}});
  REQUIRE(made.weights.size() == 1);
  CHECK(made.weights[0].first != "x");
  CHECK(made.weights[0].second.equal(weight));
  CHECK(made.operations[0].inputs == std::vector<std::string>{"x", made.weights[0].first});
  Of same([](const Batch& batch) -> Outputs { return {{"x", batch.at("x") * 2}}; });
  CHECK_THROWS_WITH_AS(export_onnx(same, {{"x", waves({2, 3})}}, folder / "m.onnx"),
                       doctest::Contains("\"x\" is the name of an input and of an output"), ConfigError);
  CHECK_NOTHROW(export_torchscript(same, {{"x", waves({2, 3})}}, folder / "m.pt"));
}

TEST_CASE("Numbers of different types are compared in ONNX as libtorch compares them") {
  const at::Tensor whole = at::arange(6, at::kLong).view({2, 3});
  const auto first_of = [&](const std::function<at::Tensor(const at::Tensor&)>& compare) {
    Of model([&](const Batch& batch) -> Outputs { return compare(batch.front()); });
    return as_onnx(model, whole).operations.front();
  };
  for (const auto& compare : std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           [](const at::Tensor& x) { return x.lt(0.5); },
           [bounds = at::tensor({0.5F, 1.5F, 2.5F})](const at::Tensor& x) { return x.ne(bounds); }}) {
    const onnx::Operation first = first_of(compare);
    CHECK(first.name == "Cast");
    CHECK(std::get<std::int64_t>(first.attributes.at(0).value) == onnx::onnx_type(at::kFloat));
  }
  CHECK(first_of([](const at::Tensor& x) { return x.ge(2); }).name == "GreaterOrEqual");
}

TEST_CASE("A type that ONNX lacks is named") {
  const Folder folder;
  Of model([](const Batch& batch) -> Outputs { return at::real(batch.front().to(at::kComplexFloat)); });
  CHECK_THROWS_WITH_AS(export_onnx(model, waves({2, 3}), folder / "m.onnx"),
                       doctest::Contains("ONNX has no type for ComplexFloat"), ConfigError);
}

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
