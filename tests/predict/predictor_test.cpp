#include "composer/predict/predictor.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/nn/modules/conv.h>

#include "composer/core/error.h"
#include "composer/models/mlp.h"
#include "composer/models/resnet_cifar.h"
#include "composer/predict/random_aside.h"
#include "composer/surgery/layer.h"
#include "tests/predict/support.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::predictor_test {
namespace {

namespace fs = std::filesystem;
using test::Centering, test::error_of, test::Folder, test::OwnNet, test::SmallModel, test::waves;

void check_equal(const Outputs& got, const Outputs& expected) {
  REQUIRE(got.size() == expected.size());
  for (const auto& [name, tensor] : expected) CHECK(got.at(name).equal(tensor));
}

Outputs outputs_of(Model& model, const Batch& batch) {
  const at::NoGradGuard no_grad;
  return model.forward(batch);
}

std::shared_ptr<OwnNet> own_net(std::int64_t width) {
  at::manual_seed(1);
  return std::make_shared<OwnNet>(width);
}

Predictor::ModelFactory make_own() {
  return
      [](const StateDict& options) { return std::make_shared<OwnNet>(std::get<std::int64_t>(*options.find("width"))); };
}

// A model of one function.
struct Of final : Model {
  explicit Of(std::function<Outputs(const Batch&)> given) : function(std::move(given)) {}
  Outputs forward(const Batch& batch) override { return function(batch); }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.begin()->second.sum(); }
  StateDict local_hparams() const override { return options; }
  std::function<Outputs(const Batch&)> function;
  StateDict options;
};

}  // namespace

TEST_CASE("Every ready model that is saved predicts as before, without being made by the program") {
  const Folder folder;
  for (const SmallModel& small : test::small_models()) {
    CAPTURE(small.name);
    const auto model = small.make();
    save_predictor(folder / small.name, *model, {.example = small.batch});
    const Predictor loaded = Predictor::load(folder / small.name);
    check_equal(loaded.predict(small.batch), outputs_of(*model, small.batch));
    CHECK(loaded.model().local_hparams().size() == model->local_hparams().size());
    CHECK(predictor_info(folder / small.name).model == small.name);
  }
}

TEST_CASE("A predictor is in evaluation mode, computes no gradients, and is thread-safe") {
  const auto model = models::make("mnist_cnn");
  model->train();
  const Predictor predictor(model, {.threads = 1});
  CHECK_FALSE(model->is_training());
  const Batch batch = waves({5, 1, 28, 28});
  const at::Tensor expected = predictor(batch).only();
  CHECK_FALSE(expected.requires_grad());
  CHECK_NOTHROW(expected.clone().add_(1));  // an ordinary tensor
  std::vector<std::thread> threads;
  std::vector<char> equal(8, 0);
  for (std::size_t i = 0; i < equal.size(); ++i)
    threads.emplace_back([&, i] {
      equal[i] = 1;
      for (int round = 0; round < 10; ++round) equal[i] &= static_cast<char>(predictor(batch).only().equal(expected));
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(equal == std::vector<char>(8, 1));
}

TEST_CASE("A model that is in training mode again is not predicted with, and none of its numbers change") {
  const auto model = test::model_with_memory();
  const Batch batch = test::tiny_data(5);
  const Predictor predictor(model);
  const Outputs expected = predictor(batch);
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : model->buffers()) buffers.push_back(buffer.clone());
  model->train();
  CHECK_THROWS_WITH_AS(predictor(batch), doctest::Contains("call model->eval()"), ConfigError);
  CHECK(model->is_training());
  model->eval();
  model->modules(/*include_self=*/false).back()->train();  // a part of it
  CHECK_THROWS_AS(predictor(batch), ConfigError);
  for (std::size_t i = 0; i < buffers.size(); ++i) CHECK(model->buffers()[i].equal(buffers[i]));
  model->eval();
  check_equal(predictor(batch), expected);

  TrainerOptions options = test::tiny_options();
  options.model = model;
  options.device = at::Device(at::kCPU);
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK_THROWS_AS(predictor(batch), ConfigError);
  const Predictor after(model);
  CHECK_NOTHROW(after(batch));
}

TEST_CASE("A part of a model that is always in training mode, such as a dropout that is drawn, can be predicted with") {
  struct Drawn final : torch::nn::Module {
    Drawn() { torch::nn::Module::train(true); }
    void train(bool) override { torch::nn::Module::train(true); }
  };
  const auto model = own_net(4);
  model->register_module("drawn", std::make_shared<Drawn>());
  const Predictor predictor(model);
  CHECK_NOTHROW(predictor({{"x", waves({2, 3})}}));
  model->out->train();
  CHECK_THROWS_AS(predictor({{"x", waves({2, 3})}}), ConfigError);
}

TEST_CASE("A fit warns once that a callback has made a predictor of the model that it trains") {
  const auto model = test::model_with_memory();
  TrainerOptions options = test::tiny_options();
  options.model = model;
  options.device = at::Device(at::kCPU);
  options.callbacks.add(test::At([&](Event event, const State& state) {
    if (event != Event::BATCH_END || state.timestamp.batch != 1) return;
    const Predictor predictor(model);
    predictor(test::tiny_data(3));
  }));
  const test::Warnings warnings;
  Trainer(std::move(options)).fit();
  CHECK(warnings.texts ==
        std::vector<std::string>{"model: is in evaluation mode at batch 1, so it trains without dropout and with fixed "
                                 "batch norms; call model->train() before the step"});
}

TEST_CASE("Samples stay as they are, even if the model writes into its inputs") {
  const auto model = std::make_shared<Of>([](const Batch& batch) -> Outputs { return batch.front().relu_(); });
  const Batch samples = waves({5, 3});
  const at::Tensor before = samples.front().clone();
  for (const std::int64_t size : {0, 2}) {
    const Predictor predictor(model, {.batch_size = size});
    CHECK(predictor(samples).only().equal(before.relu()));
    predictor.predict_prepared(samples);
    predictor.predict_one(samples.front()[1]);
    CHECK(samples.front().equal(before));
  }
}

TEST_CASE("Outputs without a row for each sample are not put together of parts") {
  const auto model = std::make_shared<Of>([](const Batch& batch) -> Outputs {
    return {{"rows", batch.front() * 2}, {"mean", batch.front().mean(0)}};
  });
  CHECK(Predictor(model)(waves({5, 3})).at("mean").numel() == 3);
  CHECK_THROWS_WITH_AS(Predictor(model, {.batch_size = 2})(waves({5, 3})),
                       doctest::Contains("batch_size: the output \"mean\" of 2 samples is [3]"), ConfigError);
}

TEST_CASE("Random numbers that are drawn aside do not change those of the program, also after an error") {
  at::manual_seed(4);
  const at::Tensor expected = at::rand({3});
  at::manual_seed(4);
  try {
    const predict::RandomAside aside;
    at::rand({5});
    throw DataError("wrong");
  } catch (const DataError&) {
  }
  CHECK(at::rand({3}).equal(expected));
}

TEST_CASE("Options of a model that predictor.json cannot keep are an error when it is saved") {
  const Folder folder;
  Of model([](const Batch& batch) -> Outputs { return batch.front(); });
  model.register_buffer("scale", at::ones({1}));
  model.options["inner"] = StateDict();
  std::get<StateDict>(model.options["inner"])["rate"] = std::nan("");
  CHECK(error_of([&] {
          save_predictor(folder / "m", model);
        }).starts_with("save_predictor: the model's local_hparams() has \"rate\", which is nan; a predictor can"));
  std::get<StateDict>(model.options["inner"])["rate"] = at::ones({2});
  CHECK(error_of([&] { save_predictor(folder / "m", model); }).find("\"rate\", which is a tensor") !=
        std::string::npos);
  CHECK_FALSE(fs::exists(folder / "m"));
  std::get<StateDict>(model.options["inner"])["rate"] = 0.5;
  CHECK_NOTHROW(save_predictor(folder / "m", model));
}

TEST_CASE("The folder of a predictor is not replaced if something else is in it") {
  const Folder folder;
  const auto model = models::mlp({.features = {2, 3}});
  save_predictor(folder / "m", *model);
  std::ofstream(folder / "m/notes.txt") << "mine";
  CHECK_THROWS_WITH_AS(save_predictor(folder / "m", *model),
                       doctest::Contains("is a predictor with \"notes.txt\" in it"), ConfigError);
  CHECK(fs::exists(folder / "m/notes.txt"));
  CHECK_NOTHROW(Predictor::load(folder / "m"));
  fs::remove(folder / "m/notes.txt");
  CHECK_NOTHROW(save_predictor(folder / "m", *model));
}

TEST_CASE("The threads of a predictor are those of its calls alone") {
  struct Counts final : Model {
    Outputs forward(const Batch& batch) override { return batch.front() * 0 + at::get_num_threads(); }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
  };
  const int before = at::get_num_threads();
  CHECK(Predictor(std::make_shared<Counts>(), {.threads = 3})(at::ones({1})).only().item<float>() == 3);
  CHECK(Predictor(std::make_shared<Counts>())(at::ones({1})).only().item<float>() == static_cast<float>(before));
  CHECK(at::get_num_threads() == before);
}

TEST_CASE("One sample, and parts of a batch, have the outputs of the whole batch") {
  const auto model = own_net(4);
  const Batch batch = {{"x", waves({7, 3})}};
  const Outputs whole = Predictor(model).predict(batch);
  for (const std::int64_t size : {1, 3, 7, 9}) {
    const Outputs parts = Predictor(model, {.batch_size = size}).predict(batch);
    for (const char* name : {"logits", "features"}) CHECK(at::allclose(parts.at(name), whole.at(name)));
  }
  const Outputs one = Predictor(model).predict_one({{"x", batch.at("x")[2]}});
  CHECK(one.at("logits").sizes() == at::IntArrayRef({2}));
  CHECK(at::allclose(one.at("logits"), whole.at("logits")[2]));
}

TEST_CASE("A model and a preprocessing of the program's own classes come back with their options and state") {
  const Folder folder;
  const auto model = own_net(6);
  const at::Tensor training = waves({10, 3});
  const Batch raw = {{"raw", waves({2, 3})}};
  const auto fitted = std::make_shared<Centering>(training);
  save_predictor(folder / "own", *model, {.preprocessing = fitted, .metadata = {{"data", "waves"}}, .example = raw});
  const Predictor loaded =
      Predictor::load(folder / "own", make_own(), {.preprocessing = std::make_shared<Centering>()});
  const Outputs got = loaded(raw);
  const Outputs expected = outputs_of(*model, {{"x", raw.at("raw") - training.mean(0)}});
  CHECK(got.at("logits").equal(expected.at("logits") + 100));
  CHECK(got.at("features").equal(expected.at("features")));

  const PredictorInfo info = predictor_info(folder / "own");
  CHECK(info.model.empty());
  CHECK(std::get<std::int64_t>(*info.options.find("width")) == 6);
  CHECK(info.preprocessing == "centering");
  CHECK(info.metadata.at("data") == "waves");
  REQUIRE(info.inputs.size() == 1);
  CHECK(info.inputs[0].name == "raw");
  CHECK(info.inputs[0].dtype == "Float");
  CHECK(info.inputs[0].shape == std::vector<std::int64_t>{3});
}

TEST_CASE("Labels are the names of the greatest outputs") {
  const Folder folder;
  const auto model = models::mlp({.features = {2, 3}});
  save_predictor(folder / "m", *model, {.classes = {"cat", "dog", "owl"}});
  const Predictor predictor = Predictor::load(folder / "m");
  CHECK(predictor.labels(at::tensor({0.F, 2.F, 1.F, 3.F, 2.F, 1.F}).view({2, 3})) ==
        std::vector<std::string>{"dog", "cat"});
  CHECK(predictor.labels(at::tensor({0.F, 1.F, 2.F})) == std::vector<std::string>{"owl"});
  CHECK_THROWS_WITH_AS(predictor.labels(at::zeros({1, 2})), doctest::Contains("3 names"), DataError);
  CHECK_THROWS_WITH_AS(Predictor(model).labels(at::zeros({1, 3})), doctest::Contains("no names"), ConfigError);
  CHECK(Predictor::load(folder / "m", {.classes = {"a", "b", "c"}}).classes().front() == "a");
}

TEST_CASE("A ready model of which an algorithm has replaced a part is not saved as what it no longer is") {
  const Folder folder;
  const auto model = models::resnet_cifar({.depth = 8});
  const auto place = std::dynamic_pointer_cast<LayerImpl>(model->children().front()->named_children()["conv1"]);
  place->hold(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 5).padding(2).bias(false)).ptr());
  const std::string error = error_of([&] { save_predictor(folder / "m", *model); });
  CHECK(error.find("module.conv1.weight is Float [16, 3, 5, 5], and in a new one module.conv1.weight is") !=
        std::string::npos);
  CHECK(error.find(".by_name = false") != std::string::npos);
  CHECK_FALSE(fs::exists(folder / "m"));
  save_predictor(folder / "m", *model, {.by_name = false});
  CHECK(predictor_info(folder / "m").model.empty());
}

TEST_CASE("Saving leaves the modes of the model, and replaces a predictor but nothing else") {
  const Folder folder;
  const auto model = models::mlp({.features = {2, 3}});
  model->train();
  const Batch example = waves({4, 2});
  save_predictor(folder / "m", *model, {.classes = {"a", "b", "c"}, .example = example});
  CHECK(model->is_training());
  at::manual_seed(2);
  const at::Tensor expected = at::rand({3});
  const auto other = models::mlp({.features = {2, 5}});
  at::manual_seed(2);
  save_predictor(folder / "m", *other);
  Predictor::load(folder / "m");
  CHECK(at::rand({3}).equal(expected));  // the program's random numbers are its own
  CHECK(Predictor::load(folder / "m")(example).only().size(1) == 5);
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) files += entry.path().filename() == "m" ? 1 : 100;
  CHECK(files == 1);

  fs::create_directories(folder / "other/things");
  CHECK_THROWS_WITH_AS(save_predictor(folder / "other", *model), doctest::Contains("exists and is no predictor"),
                       ConfigError);
  CHECK(fs::exists(folder / "other/things"));
  fs::create_directories(folder / "empty");
  save_predictor(folder / "empty/", *model);
  CHECK(fs::exists(folder / "empty/predictor.json"));
  // What cannot be predicted is known before anything is written.
  CHECK_THROWS(save_predictor(folder / "new", *model, {.example = waves({4, 7})}));
  CHECK_FALSE(fs::exists(folder / "new"));
  CHECK(model->is_training());
}

TEST_CASE("A predictor of a checkpoint has the weights of the run") {
  const Folder folder;
  TrainerOptions options = test::tiny_options();
  options.save_folder = folder.path().string();
  Trainer trainer(std::move(options));
  trainer.fit();
  const Predictor predictor = Predictor::from_checkpoint(folder / "latest", test::tiny_model());
  const Batch batch = test::tiny_data(5);
  trainer.state().model->eval();
  CHECK(predictor(batch).only().equal(outputs_of(*trainer.state().model, batch).only()));
  CHECK_THROWS_WITH_AS(Predictor::load(folder / "latest"), doctest::Contains("from_checkpoint()"), CheckpointError);
  CHECK_THROWS_AS(Predictor::from_checkpoint(folder / "latest", own_net(4)), CheckpointError);
  CHECK_THROWS_AS(Predictor::from_checkpoint(folder / "none", test::tiny_model()), CheckpointError);
}

TEST_CASE("What a predictor cannot do is told with the tensor and the option") {
  const Predictor predictor(own_net(4));
  CHECK_THROWS_WITH_AS(predictor(Batch()), doctest::Contains("no tensors"), DataError);
  CHECK_THROWS_WITH_AS(predictor({{"x", at::scalar_tensor(1.0)}}), doctest::Contains("predict_one()"), DataError);
  CHECK_THROWS_WITH_AS(predictor({{"x", at::ones({2, 3})}, {"y", at::ones({3})}}),
                       doctest::Contains("\"y\" has 3 rows"), DataError);
  CHECK_THROWS_WITH_AS(Predictor(nullptr), doctest::Contains("null"), ConfigError);
  CHECK_THROWS_WITH_AS(Predictor(own_net(4), {.threads = -1}), doctest::Contains("threads must be >= 0, got -1"),
                       ConfigError);
}

}  // namespace composer::predictor_test
