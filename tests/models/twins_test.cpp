#include <fstream>
#include <map>

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/models/bert.h"
#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "composer/models/mnist_cnn.h"
#include "composer/models/resnet.h"
#include "composer/models/resnet9.h"
#include "composer/models/resnet_cifar.h"
#include "composer/models/vit.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace composer::twins_test {
namespace {

// As in twins.py.
at::Tensor numbers(std::int64_t count, std::int64_t k) {
  const at::Tensor whole = at::arange(count, at::kLong) * 2654435761 + (k + 1) * 1013904223;
  return whole.remainder(std::int64_t{1} << 32).to(at::kDouble) / 4294967296.0 - 0.5;
}

std::string below_module(const std::string& name) {
  REQUIRE(name.starts_with("module."));
  return name.substr(7);
}

std::map<std::string, at::Tensor> parameters_of(const Model& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& parameter : model.named_parameters()) parameters[below_module(parameter.key())] = parameter.value();
  return parameters;
}

void fill(const Model& model) {
  std::int64_t k = 0;
  for (auto& [name, parameter] : parameters_of(model)) {
    at::Tensor values = numbers(parameter.numel(), k++).view(parameter.sizes());
    if (parameter.dim() > 1)
      values *= 4 * std::sqrt(static_cast<double>(parameter.size(0)) / static_cast<double>(parameter.numel()));
    else if (name.ends_with("weight"))
      values = 1 + 0.2 * values;
    parameter.set_data(values);
  }
}

Batch images(std::int64_t channels, std::int64_t size) {
  return {{"input", 4 * numbers(2 * channels * size * size, 500).view({2, channels, size, size})}};
}

at::Tensor tokens(std::int64_t n, std::int64_t t) {
  return (at::arange(n * t, at::kLong) * 7919 + 13).view({n, t}).remainder(36) + 1;
}

Batch texts() {
  const at::Tensor ids = tokens(3, 11);
  at::Tensor kept = at::ones_like(ids);
  kept[0].slice(0, 8).zero_();
  return {{"input_ids", ids}, {"attention_mask", kept}, {"token_type_ids", (ids > 18).to(at::kLong)}};
}

void check_close(double ours, double theirs) { CHECK(ours == doctest::Approx(theirs).epsilon(1e-8).scale(1)); }

void check_twin(const std::string& name, models::Classifier& model, Batch batch) {
  static const auto twins = nlohmann::json::parse(std::ifstream(test::repository() / "tests/models/twins.json"));
  const nlohmann::json& twin = twins.at(name);
  CAPTURE(name);
  model.to(at::kDouble);
  model.train();
  fill(model);
  const at::Tensor logits = model.forward(batch).only();
  const std::int64_t classes = logits.size(-1);
  at::Tensor target = (at::arange(logits.numel() / classes, at::kLong) * 3).remainder(classes);
  if (logits.dim() == 3) target = target.view({logits.size(0), logits.size(1)});
  batch.set("target", target);
  const at::Tensor loss = model.loss(logits, batch)["total"];
  check_close(loss.item<double>(), twin.at("loss"));
  loss.backward();
  const std::map<std::string, at::Tensor> parameters = parameters_of(model);
  CHECK(parameters.size() == twin.at("gradients").size());
  for (const auto& [key, gradients] : twin.at("gradients").items()) {
    CAPTURE(key);
    const auto found = parameters.find(key);
    REQUIRE(found != parameters.end());
    const at::Tensor gradient = found->second.grad().flatten();
    const double norm = gradients.at(0);
    check_close(gradient.norm().item<double>() / (1 + norm), norm / (1 + norm));
    const double dot = gradients.at(1);
    check_close(gradient.dot(numbers(gradient.numel(), 999)).item<double>() / (1 + norm), dot / (1 + norm));
  }
  std::size_t buffers = 0;
  for (const auto& buffer : model.named_buffers()) {
    if (buffer.key().ends_with("num_batches_tracked")) continue;
    CAPTURE(buffer.key());
    check_close(buffer.value().sum().item<double>(), twin.at("buffers").at(below_module(buffer.key())));
    ++buffers;
  }
  CHECK(buffers == twin.at("buffers").size());
}

}  // namespace

TEST_CASE("Losses, gradients and statistics of residual nets are those of the Python twins") {
  for (const std::int64_t depth : {18, 34, 50})
    check_twin("resnet" + std::to_string(depth), *models::resnet({.depth = depth, .num_classes = 7}), images(3, 33));
  for (const std::int64_t depth : {20, 56})
    check_twin("resnet_cifar" + std::to_string(depth), *models::resnet_cifar({.depth = depth}), images(3, 16));
  check_twin("resnet9", *models::resnet9({.width = 6}), images(3, 16));
}

TEST_CASE("Losses and gradients of the MLP and the MNIST net are those of the Python twins") {
  check_twin("mlp", *models::mlp({.features = {48, 20, 12, 10}}), images(3, 4));
  check_twin("mnist_cnn", *models::mnist_cnn({.dropout1 = 0, .dropout2 = 0}), images(1, 28));
}

TEST_CASE("Losses and gradients of transformers are those of the Python twins") {
  check_twin("vit", *models::vit({.image_size = 16, .patch_size = 4, .width = 24, .depth = 2, .mlp_width = 40}),
             images(3, 16));
  for (const bool tied : {false, true})
    check_twin(
        tied ? "gpt_tied" : "gpt",
        *models::gpt({.vocabulary = 37, .sequence_length = 12, .width = 24, .depth = 2, .heads = 3, .tied = tied}),
        {{"input_ids", tokens(2, 11)}});
  check_twin("bert",
             *models::bert({.num_classes = 4,
                            .vocabulary = 37,
                            .sequence_length = 12,
                            .width = 24,
                            .depth = 2,
                            .heads = 3,
                            .mlp_width = 40,
                            .dropout = 0,
                            .attention_dropout = 0}),
             texts());
}

}  // namespace composer::twins_test
