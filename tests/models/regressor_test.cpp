#include "composer/models/regressor.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"
#include "tests/models/support.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::regressor_test {
namespace {

namespace nn = torch::nn;
using models::Regressor;

TEST_CASE("A regressor's loss is the mean squared error of its module's outputs") {
  Regressor model(nn::Sequential(nn::Linear(4, 1)));
  const Batch batch = {{"input", at::ones({5, 4})}, {"target", at::arange(5, at::kFloat).unsqueeze(1)}};
  const Outputs outputs = model.forward(batch);
  CHECK(model.loss(outputs, batch)["total"].equal(at::mse_loss(outputs.only(), batch["target"])));
  CHECK(metric_names(model.get_metrics(true)) == std::vector<std::string>{"MeanSquaredError"});
  CHECK(metric_names(model.get_metrics(false)) == std::vector<std::string>{"MeanSquaredError", "MeanAbsoluteError"});
}

TEST_CASE("A regressor refuses targets of another shape than the outputs, which would be spread") {
  Regressor model(nn::Linear(4, 1));
  const Batch batch = {{"input", at::ones({5, 4})}, {"target", at::ones(5)}};
  CHECK_THROWS_WITH_AS(model.loss(model.forward(batch), batch),
                       "Regressor: the outputs are [5, 1], and the targets \"target\" [5]; they must have one shape",
                       DataError);
}

TEST_CASE("Loss, metrics and names of a regressor can be chosen") {
  Regressor model(nn::Linear(4, 1),
                  {.train_metrics = Metrics(),
                   .val_metrics = Metrics(),
                   .loss_fn = [](const at::Tensor& output, const at::Tensor&) { return output.sum() * 0 + 7; },
                   .input = "x",
                   .target = "y"});
  const Batch batch = {{"x", at::ones({2, 4})}, {"y", at::ones(2)}};
  CHECK(model.loss(model.forward(batch), batch)["total"].item<float>() == 7);
  CHECK(model.get_metrics(false).empty());
  CHECK_THROWS_WITH_AS(Regressor(std::shared_ptr<nn::LinearImpl>()), "Regressor: the module is null", ConfigError);
}

TEST_CASE("A regressor learns a line") {
  at::manual_seed(1);
  const at::Tensor x = at::linspace(-1, 1, 32).unsqueeze(1);
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Regressor>(nn::Linear(1, 1));
  options.train_dataloader = data::in_memory({{"input", x}, {"target", 2 * x + 1}}, {.batch_size = 8});
  options.eval_dataloader = data::in_memory({{"input", x}, {"target", 2 * x + 1}}, {.batch_size = 8});
  options.max_duration = "50ep";
  options.eval_interval = "50ep";
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.state().metrics.at("eval", "MeanSquaredError") < 1e-4);
}

}  // namespace
}  // namespace composer::test::regressor_test
