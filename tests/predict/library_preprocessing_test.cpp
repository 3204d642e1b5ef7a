// Predictors with the preprocessing classes of the library: tables, images, texts.
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/data/image/image_preprocessing.h"
#include "composer/data/image/write_image.h"
#include "composer/data/split.h"
#include "composer/data/table/table_features.h"
#include "composer/data/text/tokenizer.h"
#include "composer/models/registry.h"
#include "composer/models/regressor.h"
#include "composer/predict/predictor.h"
#include "composer/predict/preprocessings.h"
#include "tests/predict/support.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::library_preprocessing_test {
namespace {

using test::Folder, test::waves;

data::Table houses() {
  std::vector<std::string> cities;
  for (int i = 0; i < 40; ++i) cities.emplace_back(i % 3 ? "Oslo" : "Rome");
  return {{"area", waves({40}) * 20 + 80}, {"city", cities}, {"price", waves({40}) * 1000 + 5000}};
}

std::shared_ptr<Model> regressor(std::int64_t inputs) {
  at::manual_seed(2);
  return std::make_shared<models::Regressor>(
      torch::nn::Sequential(torch::nn::Linear(inputs, 8), torch::nn::Linear(8, 1)));
}

}  // namespace

TEST_CASE("Every preprocessing of the library is made by the name that it has") {
  CHECK(predict::preprocessing_names() == std::vector<std::string>{"image", "table", "tokens"});
  for (const std::string& name : predict::preprocessing_names())
    CHECK(predict::make_preprocessing(name)->name() == name);
}

TEST_CASE("A predictor of a table has the features that were fitted, and predicts a row in the units of the table") {
  const Folder folder;
  const auto [train, valid] = data::split(houses(), {0.75, 0.25}, {.stratify = "city"});
  const auto features =
      std::make_shared<data::TableFeatures>(data::TableFeaturesOptions{.target = {"price"}, .scale_target = true});
  features->fit(train);
  const auto inputs = static_cast<std::int64_t>(features->feature_names().size());
  const auto model = regressor(inputs);
  save_predictor(folder / "house", *model, {.preprocessing = features});
  const auto predictor =
      Predictor::load(folder / "house", [&](const StateDict& /*options*/) { return regressor(inputs); });
  const auto& loaded = predictor.preprocessing<data::TableFeatures>();
  const at::NoGradGuard no_grad;
  const at::Tensor expected = features->inverse_target(model->forward(features->apply(valid)).only());
  CHECK(predictor.predict_prepared(loaded.apply(valid)).only().equal(expected));
  const data::Row row{{"area", 95.5}, {"city", "Oslo"}};
  CHECK(predictor.predict_prepared(loaded.apply(row))
            .only()
            .equal(features->inverse_target(model->forward(features->apply(row)).only())));
  CHECK(expected.mean().item<double>() > 2000);  // not the scaled one
  CHECK_THROWS_WITH_AS(predictor.preprocessing<data::ImagePreprocessing>(),
                       doctest::Contains("this predictor has \"table\""), ConfigError);
  CHECK_THROWS_WITH_AS(Predictor(model).preprocessing<data::TableFeatures>(),
                       doctest::Contains("this predictor has none"), ConfigError);
}

TEST_CASE("A predictor has the names of the classes that its table has learned, unless others are given") {
  const Folder folder;
  const auto features = std::make_shared<data::TableFeatures>(data::TableFeaturesOptions{.target = {"city"}});
  features->fit(houses());
  const auto model = models::make("mlp", {{"features", "2 2"}});
  const std::vector<std::string> cities{"Oslo", "Rome"};
  CHECK(Predictor(model, {.preprocessing = features}).classes() == cities);
  save_predictor(folder / "city", *model, {.preprocessing = features});
  CHECK(predictor_info(folder / "city").classes == cities);
  const Predictor loaded = Predictor::load(folder / "city");
  CHECK(loaded.labels(at::tensor({0.F, 1.F, 2.F, 1.F}).view({2, 2})) == std::vector<std::string>{"Rome", "Oslo"});
  save_predictor(folder / "own", *model, {.preprocessing = features, .classes = {"a", "b"}});
  CHECK(Predictor::load(folder / "own").classes() == std::vector<std::string>{"a", "b"});
}

TEST_CASE("A table is divided by the names of its columns, also of texts") {
  const data::Table all = houses();
  const auto parts = data::split(all, {0.5, 0.5}, {.groups = "city"});
  CHECK(parts[0].rows() + parts[1].rows() == 40);
  for (const data::Table& part : parts)
    for (std::int64_t row = 1; row < part.rows(); ++row) CHECK(part.texts("city")[row] == part.texts("city")[0]);
  const auto [old_rows, new_rows] = data::split(all, {0.5, 0.5}, {.time = "area"});
  CHECK(old_rows["area"].max().item<double>() < new_rows["area"].min().item<double>());
  const data::Table days{{"day", {"2024-01-03", "2023-12-31", "2024-02-01", "2024-01-02"}},
                         {"y", {3.0, 1.0, 4.0, 2.0}}};
  const auto [past, future] = data::split(days, {0.5, 0.5}, {.time = "day"});
  CHECK(past["y"].max().item<double>() == 2);
  CHECK(future["y"].min().item<double>() == 3);
}

TEST_CASE("A predictor of images prepares files as it prepares tensors") {
  const Folder folder;
  const auto prepare = std::make_shared<data::ImagePreprocessing>(
      data::ImagePreprocessingOptions{.resize = 9, .crop = 8, .normalize = data::Normalize{{0.5}, {0.25}}});
  const at::Tensor image = at::arange(3 * 12 * 10).remainder(251).to(at::kByte).view({3, 12, 10});
  data::write_png(image, folder / "a.png");
  const auto model = models::make("resnet_cifar", {{"depth", "8"}, {"num_classes", "4"}});
  model->eval();
  save_predictor(folder / "net", *model, {.preprocessing = prepare, .example = image.unsqueeze(0)});
  const auto predictor = Predictor::load(folder / "net");
  const auto& images = predictor.preprocessing<data::ImagePreprocessing>();
  const std::vector<std::filesystem::path> files = {folder / "a.png", folder / "a.png"};
  const at::Tensor scores = predictor.predict_prepared(images.read(files)).only();
  CHECK(scores.sizes() == at::IntArrayRef{2, 4});
  CHECK(scores[0].allclose(predictor(image.unsqueeze(0)).only()[0], 1e-5, 1e-6));
}

TEST_CASE("A predictor of texts has its tokenizer") {
  const Folder folder;
  const auto model = models::make(
      "bert", {{"vocabulary", "256"}, {"sequence_length", "16"}, {"width", "8"}, {"depth", "1"}, {"heads", "2"}});
  model->eval();
  const auto tokens = std::make_shared<data::Tokens>(std::make_shared<data::ByteTokenizer>(), /*max_length=*/16);
  save_predictor(folder / "net", *model, {.preprocessing = tokens});
  const auto predictor = Predictor::load(folder / "net");
  const Batch texts = data::text_batch({"some words", "and a longer line of them"});
  const at::NoGradGuard no_grad;
  CHECK(predictor(texts).only().equal(model->forward(tokens->apply(texts)).only()));
}

}  // namespace composer::library_preprocessing_test
