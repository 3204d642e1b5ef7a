#include "composer/models/mlp.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/models/ready.h"
#include "composer/surgery/layer.h"

namespace composer::models {
namespace {

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const std::vector<std::int64_t>& features) {
    for (std::size_t i = 1; i < features.size(); ++i)
      layers_.emplace_back(this, "fc" + std::to_string(i), torch::nn::Linear(features[i - 1], features[i]));
  }

  at::Tensor forward(at::Tensor x) {
    x = x.flatten(1);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (i > 0) x.relu_();
      x = layers_[i](x);
    }
    return x;
  }

 private:
  std::vector<Layer> layers_;
};

std::vector<Option<MlpOptions>> mlp_options() {
  return all_options(part("features", &MlpOptions::features, "numbers, separated by spaces")
                         .shown([](const auto& features) {
                           std::string widths;
                           for (const std::int64_t width : features) widths += join(widths.empty() ? "" : " ", width);
                           return widths;
                         })
                         .read_by([](const std::string& text) {
                           std::vector<std::int64_t> features;
                           for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
                             end = text.find(' ', begin);
                             composer::detail::read_text(text.substr(begin, end - begin), features.emplace_back());
                           }
                           return features;
                         }));
}

}  // namespace

std::shared_ptr<Classifier> mlp(MlpOptions options) {
  const auto& features = options.features;
  if (features.size() < 2) throw ConfigError("mlp: features needs at least two numbers, got ", features.size());
  for (std::int64_t width : features)
    if (width < 1) throw ConfigError("mlp: features must be >= 1, got ", width);
  return std::make_shared<Classifier>(
      std::make_shared<Mlp>(features),
      ClassifierOptions{
          .num_classes = features.back(), .hyperparameters = describe(options, mlp_options()), .ready = "mlp"});
}

namespace entries {

Entry<ReadyModel> mlp() {
  return ready_model("mlp", "Linear layers with ReLU between them", mlp_options(), models::mlp);
}

}  // namespace entries

}  // namespace composer::models
