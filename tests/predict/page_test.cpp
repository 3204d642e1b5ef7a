// The code of docs/reference/predict.md.
#include <filesystem>

#include "composer/models/mlp.h"
#include "composer/predict/predictor.h"
#include "tests/predict/support.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::predict_page_test {
namespace {

using Net = test::OwnNet;

// The current folder is a temporary one.
class InFolder {
 public:
  InFolder() { std::filesystem::current_path(folder_.path()); }
  ~InFolder() { std::filesystem::current_path(before_); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  test::Folder folder_;
};

class Standardize final : public composer::data::Preprocessing {
 public:
  Standardize() = default;
  explicit Standardize(const at::Tensor& training) : mean_(training.mean(0)), scale_(training.std(0)) {}
  std::string name() const override { return "standardize"; }
  composer::Batch apply(const composer::Batch& raw) const override { return (raw.at("input") - mean_) / scale_; }
  void visit_state(composer::StateVisitor& visit) override {
    visit("mean", mean_);
    visit("scale", scale_);
  }

 private:
  at::Tensor mean_, scale_;
};

}  // namespace

TEST_CASE("The page's model of one's own is loaded with its options") {
  const InFolder here;
  Net net(7);
  composer::save_predictor("mine", net);
  const auto predictor = composer::Predictor::load("mine", [](const composer::StateDict& options) {
    return std::make_shared<Net>(std::get<std::int64_t>(*options.find("width")));
  });
  CHECK(predictor({{"x", test::waves({2, 3})}}).at("features").size(1) == 7);
}

TEST_CASE("The page's preprocessing comes back with what it was fitted to") {
  const InFolder here;
  const auto model = models::mlp({.features = {4, 3}});
  const at::Tensor training = test::waves({20, 4});
  composer::save_predictor("mine", *model, {.preprocessing = std::make_shared<Standardize>(training)});
  const auto predictor = composer::Predictor::load("mine", {.preprocessing = std::make_shared<Standardize>()});
  const at::Tensor raw = test::waves({2, 4});
  CHECK(predictor(raw).only().equal(
      Predictor(model, {.preprocessing = std::make_shared<Standardize>(training)})(raw).only()));
}

}  // namespace composer::predict_page_test
