#include <ATen/ATen.h>

#include "composer/data/in_memory.h"
#include "composer/data/split.h"
#include "composer/data/table/csv.h"
#include "composer/data/table/table_features.h"
#include "tests/support/doctest.h"
#include "tests/support/idx_files.h"

namespace composer::page_test {

using namespace test;

namespace {

struct Net {
  at::Tensor forward(const at::Tensor& input) const { return input.sum(1, true).mul(0); }
};

}  // namespace

TEST_CASE("The example of docs/reference/data/tables.md reads a file, fits the features and predicts a row") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "houses.csv";
  std::string text = "area,city,rooms,price\n";
  for (int i = 0; i < 50; ++i)
    text += std::to_string(50 + i) + (i % 3 ? ",Oslo," : ",Rome,") + (i % 7 ? "3," : ",") + "100\n";
  write(file, text);

  const data::Table houses = data::read_csv(file);
  const auto [train, valid] = data::split(houses, {0.8, 0.2}, {.seed = 1});

  data::TableFeatures features({.target = {"price"}, .scale_target = true});
  features.fit(train);  // means, categories and other values of the training rows alone
  const auto train_loader = data::in_memory(features.apply(train), {.batch_size = 32});
  const auto eval_loader = data::in_memory(features.apply(valid), {.batch_size = 256, .shuffle = false});
  const auto inputs = static_cast<std::int64_t>(features.feature_names().size());

  const auto net = std::make_shared<Net>();
  const Batch one = features.apply(data::Row{{"area", 120.0}, {"city", "Oslo"}, {"rooms", nullptr}});
  const at::Tensor price = features.inverse_target(net->forward(one["input"]));

  CHECK(train_loader->next()->at("input").sizes() == at::IntArrayRef({32, inputs}));
  CHECK(eval_loader->next()->at("target").sizes() == at::IntArrayRef({10, 1}));
  CHECK(inputs == 4);
  CHECK(price.item<float>() == 100);
}

}  // namespace composer::page_test
