#include "composer/predict/summary.h"

#include <algorithm>

#include "composer/models/gpt.h"
#include "composer/models/mlp.h"
#include "composer/models/resnet.h"
#include "tests/models/support.h"
#include "tests/predict/support.h"
#include "tests/support/doctest.h"

namespace composer::summary_test {
namespace {

const LayerSummary& find(const ModelSummary& all, const std::string& name) {
  const auto found = std::ranges::find(all.layers, name, &LayerSummary::name);
  REQUIRE_MESSAGE(found != all.layers.end(), name);
  return *found;
}

using Shape = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("The summary of an MLP has the sizes and FLOPs of its layers") {
  const auto model = models::mlp({.features = {12, 8, 5}});
  model->parameters().front().set_requires_grad(false);
  const ModelSummary all = summarize(*model, test::waves({3, 12}));
  CHECK(all.type == "Classifier");
  CHECK(all.parameters == 149);
  CHECK(all.trainable == 149 - 96);
  CHECK(all.parameter_bytes == 4 * 149);
  CHECK(all.samples == 3);
  CHECK(all.flops == 2 * 3 * (12 * 8 + 8 * 5));
  CHECK(all.output_bytes == 4 * 3 * (8 + 5));
  REQUIRE(all.layers.size() == 3);
  CHECK(all.layers[0].type == "Mlp");
  CHECK(all.layers[0].flops == all.flops);
  CHECK(find(all, "module.fc1").type == "Linear");
  CHECK(find(all, "module.fc1").output == Shape{3, 8});
  CHECK(find(all, "module.fc1").flops == 2 * 3 * 12 * 8);
  CHECK(find(all, "module.fc2").parameters == 45);
  CHECK(to_text(all) ==
        "layer   type    output  parameters  FLOPs\n"
        "module  Mlp                    149   816\n"
        "  fc1   Linear  [3, 8]         104   576\n"
        "  fc2   Linear  [3, 5]          45   240\n"
        "Classifier: 149 parameters, 53 of them trainable (596 B); buffers 0 B\n"
        "forward pass of 3 samples: 816 FLOPs, 156 B of outputs of layers\n");
}

TEST_CASE("A summary without an example has parameters alone, to the depth that is asked for") {
  const auto model = models::resnet({.depth = 18});
  CHECK(summarize(*model).parameters == test::parameter_count(*model));
  const std::string text = summary(*model, 2);
  CHECK(text.find("layer4") != std::string::npos);
  CHECK(text.find("downsample") == std::string::npos);
  CHECK(text.find("FLOPs") == std::string::npos);
  CHECK(text.find("11,689,512 parameters (46.8 MB)") != std::string::npos);
}

TEST_CASE("FLOPs of ResNet-18 are those that are known of it, and those of attention are of its block") {
  const auto net = models::resnet({.depth = 18});
  const ModelSummary all = summarize(*net, test::waves({1, 3, 224, 224}));
  CHECK(static_cast<double>(all.flops) == doctest::Approx(2 * 1.814e9).epsilon(0.001));
  std::int64_t parts = 0;
  for (const LayerSummary& layer : all.layers) parts += layer.depth == 2 ? layer.flops : 0;
  CHECK(parts == all.flops);

  const auto gpt = models::gpt({.vocabulary = 11, .sequence_length = 8, .width = 8, .depth = 2, .heads = 2});
  const ModelSummary text = summarize(*gpt, {{"input_ids", at::zeros({2, 8}, at::kLong)}});
  const std::int64_t products = 2 * 2 * 8 * (8 * 24 + 8 * 8), attention = 2 * (2 * 2 * 2 * 8 * 8 * 4);
  CHECK(find(text, "module.h.0.attn").flops == products + attention);
  CHECK(find(text, "module.h.1.attn.c_attn").flops == 2 * 2 * 8 * 8 * 24);
}

}  // namespace composer::summary_test
