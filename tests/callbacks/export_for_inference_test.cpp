#include "composer/callbacks/export_for_inference.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>

#include "composer/core/error.h"
#include "composer/formats/weights.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/locale.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::export_for_inference_test {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;
using callbacks::ExportFormat, callbacks::ExportForInferenceCallback, callbacks::ExportForInferenceOptions;

// A part that behaves otherwise in evaluation, a buffer, a tied weight, and a constant.
struct Net final : Model {
  explicit Net(bool fixed = false) : fixed_(fixed) {
    register_module("body", body);
    register_module("head", head);
    scale = register_buffer("scale", at::full({}, 3.0F));
  }
  Outputs forward(const Batch& batch) override {
    at::Tensor x = body->forward(batch.at("input"));
    x = fixed_ ? x.view({x.size(0), -1}) : x.flatten(1);
    return {{"logits", head(x) * scale + offset}, {"features", x}};
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return (outputs.at("logits") - batch.at("target")).square().mean();
  }
  nn::Sequential body{nn::Conv2d(1, 2, 3), nn::BatchNorm2d(2), nn::Dropout(0.5)};
  nn::Linear head{8, 3};
  at::Tensor scale, offset = at::arange(3, at::kFloat);

 private:
  bool fixed_;
};

Batch images(std::int64_t count) {
  return {{"input", at::sin(at::arange(count * 16, at::kFloat)).view({count, 1, 4, 4})},
          {"target", at::ones({count, 3})}};
}

// The model after a fit.
std::shared_ptr<Net> fit(const ExportForInferenceOptions& options, bool fixed = false,
                         const std::function<void(TrainerOptions&)>& change = {}) {
  auto model = std::make_shared<Net>(fixed);
  TrainerOptions with = tiny_options();
  with.model = model;
  with.train_dataloader = data::in_memory(images(8), {.batch_size = 4, .shuffle = false});
  with.callbacks.add(ExportForInferenceCallback(options));
  if (change) change(with);
  Trainer(std::move(with)).fit();
  CHECK(model->is_training());
  model->eval();
  return model;
}

std::vector<at::Tensor> run(torch::jit::Module& program, const at::Tensor& input) {
  std::vector<at::Tensor> outputs;
  const auto tuple = program.forward({input}).toTuple();
  for (const c10::IValue& output : tuple->elements()) outputs.push_back(output.toTensor());
  return outputs;
}

TEST_CASE("A TorchScript program computes what the trained model does, for any number of samples") {
  const at::NoGradGuard no_grad;
  const Folder folder;
  const std::string path = (folder / "{run_name}/net-{batch}.pt").string();
  const Warnings warnings;
  const auto model = fit({.save_path = path, .input_names = {"input"}});
  CHECK(warnings.texts.empty());
  torch::jit::Module program = torch::jit::load((folder / "tiny/net-2.pt").string());
  for (const std::int64_t count : {1, 4, 7}) {
    CAPTURE(count);
    const at::Tensor input = images(count).at("input");
    const Outputs expected = model->forward(Batch(input));
    const std::vector<at::Tensor> got = run(program, input);
    REQUIRE(got.size() == 2);
    CHECK(got[0].equal(expected.at("logits")));
    CHECK(got[1].equal(expected.at("features")));
  }
}

TEST_CASE("A program has the parameters and buffers of the model under their names") {
  const Folder folder;
  const auto model = fit({.save_path = (folder / "net.pt").string(), .input_names = {"input"}});
  const torch::jit::Module program = torch::jit::load((folder / "net.pt").string());
  std::set<std::string> expected, got;
  for (const auto& item : model->named_parameters()) expected.insert(item.key());
  for (const auto& item : model->named_buffers()) expected.insert(item.key());
  for (const auto& item : program.named_parameters()) got.insert(item.name);
  for (const auto& item : program.named_buffers()) got.insert(item.name);
  CHECK(got == expected);
  CHECK(program.attr("head").toModule().attr("weight").toTensor().equal(model->head->weight));
}

TEST_CASE("A single output is a tensor, and without input_names the program takes the whole batch") {
  const at::NoGradGuard no_grad;
  const Folder folder;
  TrainerOptions options = tiny_options();
  options.callbacks.add(ExportForInferenceCallback({.save_path = (folder / "net.pt").string()}));
  Trainer trainer(std::move(options));
  trainer.fit();
  torch::jit::Module program = torch::jit::load((folder / "net.pt").string());
  const Batch batch = tiny_data(6);
  const c10::IValue got = program.forward({batch.at("input"), batch.at("target")});
  REQUIRE(got.isTensor());
  CHECK(got.toTensor().equal(trainer.state().model->forward(batch).only()));
  std::vector<std::string> names;
  for (const auto& argument : program.get_method("forward").function().getSchema().arguments())
    names.push_back(argument.name());
  CHECK(names == std::vector<std::string>{"self", "input", "target"});
}

TEST_CASE("A warning says that a program works for one number of samples only") {
  const Folder folder;
  const Warnings warnings;
  fit({.save_path = (folder / "net.pt").string(), .input_names = {"input"}}, /*fixed=*/true);
  CHECK(warnings.say("works for 4 samples at once only"));
}

TEST_CASE("A sample of one's own is used instead of the first batch") {
  const Folder folder;
  const ExportForInferenceOptions options{
      .save_path = (folder / "net.pt").string(), .sample_input = images(2), .input_names = {"input"}};
  const Warnings warnings;
  fit(options, /*fixed=*/true);
  CHECK(warnings.say("works for 2 samples at once only"));
  ExportForInferenceOptions wrong = options;
  wrong.input_names = {"image"};
  CHECK_THROWS_WITH_AS(ExportForInferenceCallback{wrong}, doctest::Contains("the sample has no \"image\""),
                       ConfigError);
}

TEST_CASE("Weights alone are written as safetensors") {
  const Folder folder;
  const auto model =
      fit({.save_format = ExportFormat::SAFETENSORS, .save_path = (folder / "net.safetensors").string()});
  const auto weights = read_weights(folder / "net.safetensors");
  const auto expected = state_dict(*model);
  REQUIRE(weights.size() == expected.size());
  const std::map<std::string, at::Tensor> by_name(weights.begin(), weights.end());
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    CHECK(by_name.at(name).equal(tensor));
  }
  CHECK_THROWS_AS(ExportForInferenceCallback({.save_format = ExportFormat::SAFETENSORS, .save_path = "net.pt"}),
                  ConfigError);
}

TEST_CASE("Training is as without the export, and goes on after it") {
  const Folder folder;
  const auto trained = [&](bool exports) {
    torch::manual_seed(3);
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<Net>();
    options.seed = 4;
    options.train_dataloader = data::in_memory(images(8), {.batch_size = 4, .shuffle = false});
    if (exports) options.callbacks.add(ExportForInferenceCallback({.save_path = (folder / "net.pt").string()}));
    Trainer trainer(std::move(options));
    trainer.fit("1ep");
    trainer.fit("1ep");
    return weights_of(trainer);
  };
  CHECK(trained(true).equal(trained(false)));
}

TEST_CASE("What would fail at the end of training fails before the first batch is trained") {
  const Folder folder;
  const auto failure_of = [&](const ExportForInferenceOptions& wrong) {
    std::int64_t trained = 0;
    std::string text;
    try {
      fit(wrong, false, [&](TrainerOptions& options) {
        options.callbacks.add(
            At([&](Event event, const State&) { trained += event == Event::BEFORE_FORWARD ? 1 : 0; }));
      });
    } catch (const std::exception& error) {
      text = describe(error);
    }
    CHECK(trained == 0);
    return text;
  };
  CHECK(failure_of({.save_path = (folder / "net.pt").string(), .input_names = {"inputs"}})
            .find("the batch has no \"inputs\"; there are: input, target") != std::string::npos);
  std::ofstream(folder / "file") << "x";
  for (const ExportFormat format : {ExportFormat::TORCHSCRIPT, ExportFormat::SAFETENSORS})
    CHECK(failure_of({.save_format = format, .save_path = (folder / "file" / "net.safetensors").string()})
              .find("net.safetensors") != std::string::npos);
  {
    const OtherLocale other;  // in which libtorch would write 1.234,5
    CHECK(failure_of({.save_path = (folder / "net.pt").string(), .input_names = {"input"}})
              .find("Call std::locale::global(std::locale::classic()) before the fit") != std::string::npos);
  }
  CHECK(!fs::exists(folder / "net.pt"));
}

TEST_CASE(
    "A model that cannot be recorded is an error before the first batch is trained, not a wrong program after all") {
  struct Made final : Model {
    explicit Made(bool reads) : reads_(reads) { register_module("head", head); }
    Outputs forward(const Batch& batch) override {
      const at::Tensor x = head(batch.at("input").flatten(1));
      return reads_ ? x / x.abs().max().item<float>() : x * at::tensor({1.F, 2.F, 3.F}, x.options());
    }
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      return (outputs.only() - batch.at("target")).square().mean();
    }
    nn::Linear head{16, 3};

   private:
    bool reads_;
  };
  const Folder folder;
  for (const bool reads : {false, true})
    for (const bool own_sample : {false, true}) {
      std::int64_t trained = 0;
      TrainerOptions options = tiny_options();
      options.model = std::make_shared<Made>(reads);
      options.train_dataloader = data::in_memory(images(8), {.batch_size = 4, .shuffle = false});
      options.callbacks.add(ExportForInferenceCallback({.save_path = (folder / "net.pt").string(),
                                                        .sample_input = own_sample ? images(2) : Batch(),
                                                        .input_names = {"input"}}));
      options.callbacks.add(At([&](Event event, const State&) { trained += event == Event::BEFORE_FORWARD ? 1 : 0; }));
      std::string text;
      try {
        Trainer(std::move(options)).fit();
      } catch (const std::exception& error) {
        text = describe(error);
      }
      CHECK(text.find(reads ? "other ones for other values" : "makes a tensor from numbers") != std::string::npos);
      CHECK(trained == 0);
      CHECK(!fs::exists(folder / "net.pt"));
    }
}

TEST_CASE("A complete run that is started again exports again, with the sample that its checkpoint kept") {
  const Folder folder;
  fit({.save_path = (folder / "first.pt").string(), .input_names = {"input"}}, false,
      [&](TrainerOptions& options) { options.save_folder = (folder / "ck").string(); });
  CHECK(fs::exists(folder / "first.pt"));
  fit({.save_path = (folder / "again.pt").string(), .input_names = {"input"}}, false,
      [&](TrainerOptions& options) { options.save_folder = (folder / "ck").string(); });
  CHECK(fs::exists(folder / "again.pt"));
}

TEST_CASE("The file is sent to loggers by a name that differs for each run") {
  struct Files final : LoggerDestination {
    void upload_file(const LogFile& file, const State&) override { names.push_back(file.name); }
    std::vector<std::string> names;
  };
  const Folder folder;
  const auto files = std::make_shared<Files>();
  fit({.save_path = (folder / "net.pt").string()}, false, [&](TrainerOptions& options) { options.loggers.add(files); });
  CHECK(files->names == std::vector<std::string>{"tiny/net.pt"});
}

}  // namespace
}  // namespace composer::test::export_for_inference_test
