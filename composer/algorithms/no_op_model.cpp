#include "composer/algorithms/no_op_model.h"

#include <memory>
#include <utility>

#include <ATen/ATen.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/state.h"

namespace composer::algorithms {
namespace {

class Scaled final : public Model {
 public:
  explicit Scaled(std::string target_key) : target_key_(std::move(target_key)) {
    weights_ = register_parameter("weights", at::full({1}, 1.5, at::kFloat));
  }
  Outputs forward(const Batch& batch) override { return batch.at(target_key_) * weights_; }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::mse_loss(outputs.only(), batch.at(target_key_).to(at::kFloat));
  }

 private:
  std::string target_key_;
  at::Tensor weights_;
};

std::vector<Option<NoOpModelOptions>> no_op_model_options() {
  return all_options(option("target_key", &NoOpModelOptions::target_key).not_empty());
}

}  // namespace

NoOpModel::NoOpModel(NoOpModelOptions options)
    : options_(checked("NoOpModel", std::move(options), no_op_model_options())) {}

void NoOpModel::apply(Event, State& state, Logger&) {
  const auto model = std::make_shared<Scaled>(options_.target_key);
  model->to(state.device);
  state.model = Handle<Model>(model);
}

StateDict NoOpModel::local_hparams() const { return describe(options_, no_op_model_options()); }

namespace entries {

Entry<Algorithms> no_op_model() {
  return entry<NoOpModel>("no_op_model", "Replaces the model by one that costs nothing", no_op_model_options());
}

}  // namespace entries
}  // namespace composer::algorithms
