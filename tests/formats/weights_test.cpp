#include "composer/formats/weights.h"

#include <cmath>
#include <fstream>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>

#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"
#include "composer/models/mlp.h"
#include "tests/formats/tensors.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/warnings.h"

namespace composer::test::weights_test {
namespace {

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3),
                               torch::nn::Linear(torch::nn::LinearOptions(3, 2).bias(false)));
}

formats::NamedTensors copy_of(formats::NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) tensor = tensor.detach().clone();
  return tensors;
}

std::vector<std::string> names(const formats::NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

TEST_CASE("A state_dict has Python's names in Python's order") {
  CHECK(names(state_dict(*small_net())) == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias",
                                                                    "1.running_mean", "1.running_var",
                                                                    "1.num_batches_tracked", "2.weight"});
}

TEST_CASE("Weights that were saved and loaded are equal to the bit") {
  const Folder folder;
  for (const char* file : {"w.safetensors", "w.pt", "folder/w.pth"}) {
    CAPTURE(file);
    auto from = small_net();
    from->forward(at::rand({5, 4}));  // so that the buffers are not what they were
    save_weights(*from, folder / file);
    auto to = small_net();
    const WeightsReport report = load_weights(*to, folder / file);
    CHECK(report.loaded.size() == 8);
    CHECK(report.text().empty());
    CHECK(same(state_dict(*to), state_dict(*from)));
    for (const auto& parameter : to->parameters()) CHECK(parameter.requires_grad());
  }
  CHECK_THROWS_AS(save_weights(*small_net(), folder / "w.bin"), ConfigError);
  CHECK_THROWS_AS(load_weights(*small_net(), folder / "nobody.pt"), CheckpointError);
}

TEST_CASE("Tensors that do not fit are all reported, and nothing has changed") {
  const Folder folder;
  formats::NamedTensors tensors = copy_of(state_dict(*small_net()));
  for (auto& [name, tensor] : tensors) {
    if (name == "0.bias") tensor = at::ones({4});
    if (name == "1.bias") tensor = tensor.to(at::kDouble);
    if (name == "2.weight") name = "3.weight";
    if (name == "0.weight") tensor.fill_(7);
  }
  formats::save_safetensors(folder / "w.safetensors", tensors);

  auto model = small_net();
  const formats::NamedTensors before = copy_of(state_dict(*model));
  try {
    load_weights(*model, folder / "w.safetensors");
    FAIL("they were loaded");
  } catch (const WeightsError& error) {
    CHECK(error.report.missing == std::vector<std::string>{"2.weight"});
    CHECK(error.report.unexpected == std::vector<std::string>{"3.weight"});
    REQUIRE(error.report.mismatched.size() == 2);
    CHECK(error.report.mismatched[0] == "0.bias: Float [3] in the model, Float [4] in the file");
    CHECK(error.report.mismatched[1] == "1.bias: Float [3] in the model, Double [3] in the file");
    CHECK(std::string(error.what()).find("missing 2.weight") != std::string::npos);
  }
  CHECK(same(state_dict(*model), before));

  // Another shape is an error however loosely one looks.
  CHECK_THROWS_AS(load_weights(*model, folder / "w.safetensors", {.strict = false, .convert = true}), WeightsError);
  std::erase_if(tensors, [](const auto& tensor) { return tensor.first == "0.bias"; });
  formats::save_pt(folder / "w.pt", tensors);
  CHECK_THROWS_AS(load_weights(*model, folder / "w.pt", {.strict = false}), WeightsError);
  const WeightsReport report = load_weights(*model, folder / "w.pt", {.strict = false, .convert = true});
  CHECK(report.missing == std::vector<std::string>{"0.bias", "2.weight"});
  CHECK(report.unexpected == std::vector<std::string>{"3.weight"});
  CHECK(model->ptr<torch::nn::LinearImpl>(0)->weight.eq(7).all().item<bool>());
}

TEST_CASE("Names are rewritten by prefix and by regular expression, when loaded and when saved") {
  const Folder folder;
  const auto from = models::mlp({.features = {4, 3, 2}}), to = models::mlp({.features = {4, 3, 2}});
  save_weights(*from, folder / "python.safetensors", {.rename = {{"module.", ""}}, .metadata = {{"key", "value"}}});
  const formats::SafetensorsFile file(folder / "python.safetensors");
  CHECK(file.has("fc1.weight"));
  CHECK(file.metadata() == formats::Metadata{{"format", "pt"}, {"key", "value"}});

  load_weights(*to, folder / "python.safetensors", {.rename = {{"", "module."}}});
  CHECK(same(state_dict(*to), state_dict(*from)));

  save_weights(*from, folder / "other.pt", {.rename = {{"module\\.fc(\\d)\\.", "layers.$1.linear.", true}}});
  CHECK(formats::PtFile(folder / "other.pt").names().front() == "layers.1.linear.weight");
  load_weights(*to, folder / "other.pt", {.rename = {{"^layers\\.(\\d)\\.linear", "fc$1", true}, {"", "module."}}});
  CHECK(same(state_dict(*to), state_dict(*from)));

  CHECK_THROWS_AS(load_weights(*to, folder / "other.pt", {.rename = {{"(", "", true}}}), ConfigError);
  CHECK_THROWS_AS(load_weights(*to, folder / "other.pt", {.rename = {{".*", "same", true}}}), ConfigError);
}

TEST_CASE("A prefix that the file or the model alone has, or that differs, is guessed in the error") {
  const Folder folder;
  const auto model = models::mlp({.features = {4, 2}});
  const auto said = [&](const std::vector<Rename>& rename) -> std::string {
    save_weights(*model, folder / "w.pt", {.rename = rename});
    try {
      load_weights(*model, folder / "w.pt");
    } catch (const WeightsError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(said({{"module.", ""}}).find(R"(Did you mean .rename = {{"", "module."}}?)") != std::string::npos);
  CHECK(said({{"", "net."}}).find(R"(Did you mean .rename = {{"net.", ""}}?)") != std::string::npos);
  CHECK(said({{"module.", "model.net."}}).find(R"(Did you mean .rename = {{"model.net.", "module."}}?)") !=
        std::string::npos);
  CHECK(said({{"module.0.", "head."}}).find("Did you mean") == std::string::npos);  // "weight" is the end of every name
  CHECK(said({}).empty());
}

TEST_CASE("A rule for names that fits none is told, also when the file does not fit the model") {
  const Folder folder;
  const Warnings warnings;
  const auto model = models::mlp({.features = {4, 2}});
  save_weights(*model, folder / "w.pt", {.rename = {{"", "net."}}});
  CHECK_THROWS_AS(load_weights(*model, folder / "w.pt", {.rename = {{"network.", ""}}}), WeightsError);
  CHECK(warnings.say("load_weights: rename: network. begins no name"));
}

TEST_CASE("A checkpoint of a whole run gives the model's part") {
  const Folder folder;
  auto from = small_net(), to = small_net();
  for (const std::string prefix : {"state.model.", "state_dict.", "model_state_dict."}) {
    CAPTURE(prefix);
    formats::NamedTensors tensors = copy_of(state_dict(*from));
    for (auto& [name, tensor] : tensors) name = prefix + name;
    tensors.emplace_back("state.optimizers.0.exp_avg", at::ones({3}));
    formats::save_pt(folder / "run.pt", tensors);
    to->ptr<torch::nn::LinearImpl>(0)->reset_parameters();
    load_weights(*to, folder / "run.pt");
    CHECK(same(state_dict(*to), state_dict(*from)));
  }
}

TEST_CASE("What torch::save writes in C++ is read: a module's parameters and buffers by their names, and tensors") {
  const Folder folder;
  auto from = small_net(), to = small_net();
  from->forward(at::rand({5, 4}));
  torch::save(from, (folder / "module.pt").string());
  load_weights(*to, folder / "module.pt");
  CHECK(same(state_dict(*to), state_dict(*from)));
  const std::vector<at::Tensor> tensors = {at::ones({2}), at::zeros({3})};
  torch::save(tensors, (folder / "tensors.pt").string());
  const formats::NamedTensors read = read_weights(folder / "tensors.pt");
  REQUIRE(read.size() == 2);
  CHECK(same(read[1].second, tensors[1]));
  torch::optim::Adam adam(from->parameters(), 0.1);
  for (auto& parameter : from->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
  adam.step();
  torch::save(adam, (folder / "adam.pt").string());
  CHECK(read_weights(folder / "adam.pt").size() >= 2 * from->parameters().size());
}

TEST_CASE("Tensors of every dtype that torch::save writes in C++ are read") {
  const Folder folder;
  std::vector<at::Tensor> tensors;
  for (const at::ScalarType type : {at::kDouble,
                                    at::kFloat,
                                    at::kHalf,
                                    at::kBFloat16,
                                    at::kLong,
                                    at::kInt,
                                    at::kShort,
                                    at::kChar,
                                    at::kByte,
                                    at::kBool,
                                    at::kComplexFloat,
                                    at::kComplexDouble,
                                    at::kUInt16,
                                    at::kUInt32,
                                    at::kUInt64,
                                    at::kFloat8_e4m3fn,
                                    at::kFloat8_e5m2,
                                    at::kFloat8_e4m3fnuz,
                                    at::kFloat8_e5m2fnuz,
                                    at::kFloat8_e8m0fnu})
    tensors.push_back(at::tensor({1., 2., 0.5}).to(type));
  torch::save(tensors, (folder / "tensors.pt").string());
  const formats::NamedTensors read = read_weights(folder / "tensors.pt");
  REQUIRE(read.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CAPTURE(c10::toString(tensors[i].scalar_type()));
    CHECK((read[i].second.scalar_type() == tensors[i].scalar_type()));
    CHECK(at::equal(read[i].second.view(at::kByte), tensors[i].view(at::kByte)));
  }
}

// The text of the error that these options end with.
std::string refusal(torch::nn::Module& model, const formats::NamedTensors& tensors, const LoadWeightsOptions& options) {
  return error_of([&] { load_weights(model, tensors, "w.pt", options); });
}

TEST_CASE("A dict of a model and an optimizer gives the model's part; of another, the error says how") {
  const Folder folder;
  auto from = small_net(), to = small_net();
  formats::NamedTensors tensors = copy_of(state_dict(*from));
  for (auto& [name, tensor] : tensors) name = "model." + name;
  tensors.emplace_back("optimizer.state.0.exp_avg", at::ones({3}));
  tensors.emplace_back("model_ema.module.0.weight", at::ones({3}));
  formats::save_pt(folder / "run.pt", tensors);
  load_weights(*to, folder / "run.pt");
  CHECK(same(state_dict(*to), state_dict(*from)));

  // The state of an SGD without momentum holds no tensor.
  c10::Dict<c10::IValue, c10::IValue> run(c10::AnyType::get(), c10::AnyType::get());
  c10::Dict<c10::IValue, c10::IValue> weights(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [name, tensor] : state_dict(*from)) weights.insert(name, tensor.detach());
  run.insert("model", weights);
  run.insert("optimizer", c10::Dict<c10::IValue, c10::IValue>(c10::AnyType::get(), c10::AnyType::get()));
  const std::vector<char> pickled = torch::pickle_save(run);
  std::ofstream(folder / "sgd.pt", std::ios::binary)
      .write(pickled.data(), static_cast<std::streamsize>(pickled.size()));
  auto other = small_net();
  load_weights(*other, folder / "sgd.pt");
  CHECK(same(state_dict(*other), state_dict(*from)));

  for (auto& [name, tensor] : tensors)
    if (name.starts_with("model.")) name.replace(0, 5, "net");
  const LoadWeightsOptions as_said = {.rename = {{"net.", ""}}, .ignore = {"model_ema.*", "optimizer.*"}};
  const std::string said = refusal(*to, tensors, {});
  CHECK_MESSAGE(
      said.find(R"(.rename = {{"net.", ""}}, .ignore = {"model_ema.*", "optimizer.*"}?)") != std::string::npos, said);
  CHECK_NOTHROW(load_weights(*to, tensors, "w.pt", as_said));
}

TEST_CASE("A file of which nothing fits is an error, however loosely one looks") {
  auto model = small_net();
  const std::string said = refusal(*model, {{"other", at::ones({1})}}, {.strict = false});
  CHECK_MESSAGE(said.find("none of its 1 tensors has a name of the model's") != std::string::npos, said);
  CHECK_NOTHROW(load_weights(*model, formats::NamedTensors{}, "w.pt", {.ignore = {"*"}}));
  const std::string empty = refusal(*model, {}, {.strict = false});
  CHECK_MESSAGE(empty.starts_with("w.pt does not fit the model: it has no tensors"), empty);
}

TEST_CASE("A new head keeps its values: the error says which option does that") {
  auto model = small_net();
  formats::NamedTensors tensors = copy_of(state_dict(*small_net()));
  for (auto& [name, tensor] : tensors)
    if (name == "2.weight") tensor = at::ones({7, 3});
  const std::string said = refusal(*model, tensors, {.strict = false});
  CHECK_MESSAGE(said.find(R"(; .ignore = {"2.*"} keeps what the model has there)") != std::string::npos, said);
  const at::Tensor head = model->ptr<torch::nn::LinearImpl>(2)->weight.detach().clone();
  const WeightsReport report = load_weights(*model, tensors, "w.pt", {.ignore = {"2.*"}});
  CHECK(report.ignored == std::vector<std::string>{"2.weight"});
  CHECK(report.loaded.size() == 7);
  CHECK(model->ptr<torch::nn::LinearImpl>(2)->weight.equal(head));
  CHECK(model->ptr<torch::nn::LinearImpl>(0)->weight.equal(tensors[0].second));
  // after renaming
  for (auto& [name, tensor] : tensors) name = "net." + name;
  CHECK(load_weights(*model, tensors, "w.pt", {.rename = {{"net.", ""}}, .ignore = {"2.*"}}).loaded.size() == 7);
  const Warnings warnings;
  load_weights(*model, copy_of(state_dict(*model)), "w.pt", {.ignore = {"head.*"}});
  CHECK(warnings.say("head.* fits no tensor"));
}

TEST_CASE("A parameter with two names is saved under both, and loaded if the file has one") {
  struct Tied : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", at::rand({2, 2}));
    at::Tensor tied = register_parameter("tied", weight);
  };
  const Folder folder;
  const auto from = std::make_shared<Tied>(), to = std::make_shared<Tied>();
  save_weights(*from, folder / "both.pt");
  const auto both = formats::PtFile(folder / "both.pt").read_all();
  REQUIRE(both.size() == 2);
  CHECK(both[0].second.is_alias_of(both[1].second));
  formats::save_safetensors(folder / "one.safetensors", {{"tied", from->weight}});
  const WeightsReport report = load_weights(*to, folder / "one.safetensors");
  CHECK(report.missing.empty());
  CHECK(to->weight.equal(from->weight));
}

TEST_CASE("A file with two values for one parameter is an error that says how to choose, and a warning if not strict") {
  struct Tied : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", at::rand({2, 2}));
    at::Tensor tied = register_parameter("tied", weight);
  };
  Tied to;
  const at::Tensor before = to.weight.detach().clone(), ones = at::ones({2, 2}), nan = at::full({2, 2}, NAN);
  const formats::NamedTensors torn{{"weight", ones}, {"tied", at::zeros({2, 2})}};
  const std::string said = refusal(to, torn, {});
  CHECK_MESSAGE(said.find("weight and tied are one parameter") != std::string::npos, said);
  CHECK(to.weight.equal(before));
  CHECK_NOTHROW(load_weights(to, torn, "w.pt", {.ignore = {"tied"}}));
  CHECK(to.weight.equal(ones));
  CHECK_NOTHROW(load_weights(to, {{"weight", ones}, {"tied", ones.clone()}}, "w.pt"));
  CHECK_NOTHROW(load_weights(to, {{"weight", nan}, {"tied", nan.clone()}}, "w.pt"));
  const Warnings warnings;
  load_weights(to, torn, "w.pt", {.strict = false});
  CHECK(warnings.say("weight and tied are one parameter"));
}

TEST_CASE("An error of other dtypes names the option that converts them, and one of shapes alone does not") {
  auto model = small_net();
  formats::NamedTensors half = copy_of(state_dict(*model));
  for (auto& [name, tensor] : half)
    if (tensor.is_floating_point()) tensor = tensor.to(at::kHalf);
  const std::string said = refusal(*model, half, {});
  CHECK_MESSAGE(said.find("; .convert = true converts what is of another dtype") != std::string::npos, said);
  CHECK_NOTHROW(load_weights(*model, half, "w.pt", {.convert = true}));
  half[0].second = at::ones({7, 4});
  CHECK(refusal(*model, half, {.convert = true}).find("convert") == std::string::npos);
}

TEST_CASE("A rule for names that fits none is told by a warning, when weights are loaded and when they are saved") {
  const Folder folder;
  auto model = small_net();
  const auto tensors = copy_of(state_dict(*model));
  const Warnings warnings;
  load_weights(*model, tensors, "w.pt", {.rename = {{"0.", "0."}, {"^\\d", "$&", true}}});
  save_weights(*model, folder / "w.pt", {.rename = {{"", "net."}, {"net.0.", "net.first."}}});
  CHECK(warnings.texts.empty());
  load_weights(*model, tensors, "w.pt", {.rename = {{"module.", ""}, {"x$", "y", true}}});
  CHECK(warnings.say("load_weights: rename: module. begins no name"));
  CHECK(warnings.say("load_weights: rename: x$ fits no name"));
  save_weights(*model, folder / "w.pt", {.rename = {{"net.", ""}}});
  CHECK(warnings.say("save_weights: rename: net. begins no name"));
}

}  // namespace
}  // namespace composer::test::weights_test
