#pragma once
// Models and a preprocessing for the tests of predictors and exports.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/model.h"
#include "composer/core/state_dict.h"
#include "composer/data/preprocessing.h"
#include "composer/models/classifier.h"
#include "composer/models/registry.h"

namespace composer::test {

// Numbers that every machine makes alike.
inline at::Tensor waves(at::IntArrayRef sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble) * 0.7).to(at::kFloat).view(sizes);
}

// One of each ready model, small, with the batch that it takes.
struct SmallModel {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
  Batch batch;
  std::map<std::string, std::vector<std::int64_t>> dynamic = {};

  std::shared_ptr<models::Classifier> make() const {
    at::manual_seed(3);
    auto model = models::make(name, Settings(options.begin(), options.end()));
    const at::NoGradGuard no_grad;  // running statistics and biases that are not those of a new model
    for (auto& buffer : model->named_buffers())
      if (buffer.value().is_floating_point()) buffer.value().add_(0.1).abs_();
    for (auto& parameter : model->named_parameters())
      if (parameter.key().ends_with("bias")) parameter.value().add_(waves(parameter.value().sizes()) * 0.1);
    model->eval();
    return model;
  }
};

inline std::vector<SmallModel> small_models() {
  const at::Tensor tokens = at::arange(3 * 7, at::kLong).remainder(11).view({3, 7});
  const at::Tensor kept =
      at::tensor({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0}, at::kLong).view({3, 7});
  return {
      {"bert",
       {{"vocabulary", "11"}, {"sequence_length", "9"}, {"width", "8"}, {"depth", "2"}, {"heads", "2"}},
       {{"input_ids", tokens}, {"attention_mask", kept}},
       {{"input_ids", {1}}, {"attention_mask", {1}}}},
      {"gpt",
       {{"vocabulary", "11"}, {"sequence_length", "9"}, {"width", "8"}, {"depth", "2"}, {"heads", "2"}},
       {{"input_ids", tokens}},
       {{"input_ids", {1}}}},
      {"mlp", {{"features", "12 8 5"}}, waves({3, 12})},
      {"mnist_cnn", {}, waves({3, 1, 28, 28})},
      {"resnet", {{"num_classes", "6"}}, waves({3, 3, 64, 64})},
      {"resnet9", {{"width", "8"}}, waves({3, 3, 16, 16})},
      {"resnet_cifar", {{"depth", "8"}}, waves({3, 3, 16, 16})},
      {"vit",
       {{"image_size", "8"}, {"patch_size", "4"}, {"width", "12"}, {"depth", "2"}, {"heads", "3"}},
       waves({3, 3, 8, 8})},
  };
}

// A class of one's own, with an option.
struct OwnNet final : Model {
  explicit OwnNet(std::int64_t width = 4) : width(width) {
    register_module("in", in = torch::nn::Linear(3, width));
    register_module("out", out = torch::nn::Linear(width, 2));
  }
  Outputs forward(const Batch& batch) override {
    const at::Tensor features = in(batch.at("x")).tanh();
    return {{"logits", out(features)}, {"features", features}};
  }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.at("logits").square().mean(); }
  StateDict local_hparams() const override {
    StateDict options;
    options["width"] = width;
    return options;
  }
  std::int64_t width;
  torch::nn::Linear in = nullptr, out = nullptr;
};

// Subtracts the means of what it was fitted on, and adds 100 to the outputs.
class Centering final : public data::Preprocessing {
 public:
  Centering() = default;
  explicit Centering(const at::Tensor& training) : mean_(training.mean(0)) {}
  std::string name() const override { return "centering"; }
  Batch apply(const Batch& raw) const override { return {{"x", raw.at("raw") - mean_}}; }
  Outputs undo(Outputs outputs) const override {
    outputs.set("logits", outputs.at("logits") + 100);
    return outputs;
  }
  void visit_state(StateVisitor& visit) override {
    visit("mean", mean_);
    visit("fitted", fitted_);
  }

 private:
  at::Tensor mean_ = at::zeros({3});
  bool fitted_ = true;
};

}  // namespace composer::test
