#include "composer/models/language_model.h"

#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::language_model_test {
namespace {

namespace nn = torch::nn;
using models::LanguageModel;

nn::Sequential bigrams() { return nn::Sequential(nn::Embedding(7, 4), nn::Linear(4, 7)); }

Batch tokens() {
  return {{"input_ids", at::tensor({0, 1, 2, 3, 4, 5}, at::kLong).view({2, 3})},
          {"target", at::tensor({1, 2, 3, 4, 5, -100}, at::kLong).view({2, 3})}};
}

TEST_CASE("The loss of a language model is the mean over the tokens whose target is not -100") {
  for (const double smoothing : {0.0, 0.1}) {
    CAPTURE(smoothing);
    LanguageModel model(bigrams(), {.label_smoothing = smoothing});
    const Outputs outputs = model.forward(tokens());
    CHECK(outputs.only().sizes() == at::IntArrayRef({2, 3, 7}));
    const at::Tensor flat = outputs.only().flatten(0, 1).slice(0, 0, 5);
    const at::Tensor expected =
        at::cross_entropy_loss(flat, at::arange(1, 6), {}, at::Reduction::Mean, -100, smoothing);
    CHECK(model.loss(outputs, tokens())["total"].item<float>() == doctest::Approx(expected.item<float>()));
  }
}

TEST_CASE("A language model reports its cross entropy, and its perplexity in evaluation") {
  const LanguageModel model(bigrams());
  const auto names = [&](bool is_train) {
    std::string text;
    for (const auto& metric : model.get_metrics(is_train)) text += metric->name() + ' ';
    return text;
  };
  CHECK(names(true) == "LanguageCrossEntropy ");
  CHECK(names(false) == "LanguageCrossEntropy LanguagePerplexity ");
}

TEST_CASE("A language model refuses a label_smoothing beyond 0 to 1, and no module") {
  CHECK_THROWS_WITH_AS(LanguageModel(bigrams(), {.label_smoothing = 1.5}),
                       "LanguageModel: label_smoothing must be from 0 to 1, got 1.5", ConfigError);
  CHECK_THROWS_AS(LanguageModel(std::shared_ptr<nn::LinearImpl>()), ConfigError);
}

}  // namespace
}  // namespace composer::language_model_test
