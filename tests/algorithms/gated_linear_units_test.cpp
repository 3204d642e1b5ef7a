#include "composer/algorithms/gated_linear_units.h"

#include <memory>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/models/bert.h"
#include "composer/models/gpt.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"

namespace composer::test::gated_linear_units_test {
namespace {

using algorithms::gated_linear_units;
using algorithms::GatedLinearUnits;

std::shared_ptr<models::Classifier> small_gpt() {
  return models::gpt({.vocabulary = 11, .sequence_length = 8, .width = 8, .depth = 1, .heads = 2});
}
at::Tensor tokens(std::int64_t samples) {
  return at::arange(samples * 8, at::kLong).mul(7).remainder(10).add(1).view({samples, 8});
}

TEST_CASE("A gated layer multiplies the activation of its gate by the dense layer, whose weight it keeps") {
  const auto model = small_gpt();
  const at::Tensor weight = model->named_parameters()["module.h.0.mlp.c_fc.weight"].detach().clone();
  const Replacements done = gated_linear_units(*model, {.act_fn = "silu"});
  REQUIRE(done.made.size() == 1);
  CHECK(done.made[0].name == "module.h.0.mlp");
  const auto parameters = model->named_parameters();
  const auto p = [&](const std::string& name) { return parameters["module.h.0.mlp." + name]; };
  CHECK(p("c_fc.weight").equal(weight));
  CHECK_FALSE(parameters.contains("module.h.0.mlp.c_fc.bias"));
  CHECK_FALSE(parameters.contains("module.h.0.mlp.gated_layer.bias"));
  const at::Tensor x = at::randn({2, 3, 8});
  const at::Tensor wide = at::silu(at::linear(x, p("gated_layer.weight"))) * at::linear(x, p("c_fc.weight"));
  CHECK(at::allclose(done.made[0].place(x), at::linear(wide, p("c_proj.weight"), p("c_proj.bias")), 1e-5, 1e-6));
  CHECK(gated_linear_units(*model).made.empty());
}

TEST_CASE("Both halves of a gated layer have biases if they are asked for, and its activation is the layer's own") {
  const auto model = models::bert(
      {.num_classes = 2, .vocabulary = 11, .sequence_length = 8, .width = 8, .depth = 2, .heads = 2, .mlp_width = 12});
  const Replacements done = gated_linear_units(*model, {.gated_layer_bias = true, .non_gated_layer_bias = true});
  REQUIRE(done.made.size() == 2);
  CHECK(done.made[1].name == "module.bert.encoder.layer.1.intermediate");
  const auto parameters = model->named_parameters();
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    const std::string prefix = "module.bert.encoder.layer.1.intermediate." + name;
    return at::linear(x, parameters[prefix + ".weight"], parameters[prefix + ".bias"]);
  };
  const at::Tensor x = at::randn({2, 3, 8});
  CHECK(at::allclose(done.made[1].place(x), at::gelu(linear(x, "gated_layer")) * linear(x, "dense"), 1e-5, 1e-6));
}

TEST_CASE("A run with GatedLinearUnits that is cut off and resumed ends with the weights of one that is not") {
  const auto options = [] {
    at::manual_seed(5);
    TrainerOptions with = tiny_options();
    with.model = small_gpt();
    with.train_dataloader = data::in_memory({{"input_ids", tokens(16)}, {"target", tokens(16).roll(1, 1)}},
                                            {.batch_size = 4, .shuffle = false});
    with.optimizer = optim::adamw({.lr = 0.01});
    with.max_duration = "2ep";
    with.seed = 7;
    with.algorithms = {GatedLinearUnits()};
    return with;
  };
  check_cut_and_resumed(options, 3);
}

TEST_CASE("GatedLinearUnits refuses an activation that it does not know") {
  CHECK_THROWS_WITH_AS(GatedLinearUnits({.act_fn = "foo"}), doctest::Contains("got \"foo\""), ConfigError);
}

}  // namespace
}  // namespace composer::test::gated_linear_units_test
