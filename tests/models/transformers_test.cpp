#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/models/bert.h"
#include "composer/models/resnet9.h"
#include "composer/models/vit.h"
#include "tests/models/support.h"
#include "tests/support/doctest.h"

namespace composer::transformers_test {
namespace {

using test::parameter_count;

}  // namespace

TEST_CASE("ViT-B/16 and BERT base have as many parameters as their twins") {
  CHECK(parameter_count(*models::vit(
            {.image_size = 224, .patch_size = 16, .num_classes = 1000, .width = 768, .depth = 12, .heads = 12})) ==
        86567656);
  CHECK(parameter_count(*models::bert()) == 109483778);
}

TEST_CASE("A new ViT knows nothing: its head is zero, and it drops out in training alone") {
  const auto model = models::vit({.image_size = 8, .width = 24, .depth = 1, .dropout = 0.5});
  const Batch batch{{"input", at::rand({2, 3, 8, 8})}};
  CHECK(model->forward(batch).only().equal(at::zeros({2, 10})));
  at::Tensor head = model->named_parameters()["module.heads.head.weight"];
  head.set_data(at::ones_like(head));
  model->train();
  CHECK_FALSE(model->forward(batch).only().equal(model->forward(batch).only()));
  model->eval();
  CHECK(model->forward(batch).only().equal(model->forward(batch).only()));
}

TEST_CASE("BERT does not look at padding, and types are 0 where the batch has none") {
  const auto model = models::bert({.vocabulary = 20, .sequence_length = 6, .width = 8, .depth = 2, .heads = 2});
  model->eval();
  const at::Tensor ids = at::tensor({3, 4, 5, 6}).view({1, 4}), kept = at::tensor({1, 1, 0, 0}).view({1, 4});
  at::Tensor other = ids.clone();
  other[0][3] = 9;
  const auto logits = [&](const at::Tensor& tokens) {
    return model->forward({{"input_ids", tokens}, {"attention_mask", kept}}).only();
  };
  CHECK(logits(ids).equal(logits(other)));
  const at::Tensor all = model->forward({{"input_ids", ids}}).only();
  CHECK_FALSE(all.equal(logits(ids)));
  CHECK(at::allclose(all, model->forward({{"input_ids", ids}, {"token_type_ids", at::zeros_like(ids)}}).only()));
  CHECK(model->named_parameters()["module.bert.embeddings.word_embeddings.weight"][0].count_nonzero().item<int>() == 0);
}

TEST_CASE("ViTs, BERTs and ResNet-9s that cannot be are refused, and so are their inputs") {
  CHECK_THROWS_WITH_AS(models::vit({.image_size = 30}), "vit: image_size must be a multiple of patch_size (4), got 30",
                       ConfigError);
  CHECK_THROWS_WITH_AS(models::vit({.width = 100}), "vit: width must be a multiple of heads (3), got 100", ConfigError);
  CHECK_THROWS_WITH_AS(models::vit({.dropout = 1}), "vit: dropout must be in [0, 1), got 1", ConfigError);
  CHECK_THROWS_WITH_AS(models::vit({.mlp_width = -1}), "vit: mlp_width must be >= 0, got -1", ConfigError);
  CHECK_THROWS_WITH_AS(models::vit({.depth = 0}), "vit: depth must be >= 1, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(models::bert({.width = 100}), "bert: width must be a multiple of heads (12), got 100",
                       ConfigError);
  CHECK_THROWS_WITH_AS(models::bert({.num_classes = 0}), "bert: num_classes must be >= 1, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(models::bert({.attention_dropout = -1}), "bert: attention_dropout must be in [0, 1), got -1",
                       ConfigError);
  CHECK_THROWS_WITH_AS(models::resnet9({.width = 0}), "resnet9: width must be >= 1, got 0", ConfigError);
  const auto vit = models::vit({.image_size = 8, .width = 24, .depth = 1});
  CHECK_THROWS_WITH_AS(vit->forward({{"input", at::zeros({1, 3, 8, 9})}}),
                       "vit: expected images [N, C, 8, 8], got [1, 3, 8, 9]", DataError);
  const auto bert = models::bert({.vocabulary = 20, .sequence_length = 6, .width = 8, .depth = 1, .heads = 2});
  CHECK_THROWS_WITH_AS(bert->forward({{"input_ids", at::ones({1, 7}, at::kLong)}}),
                       "bert: expected input_ids [N, T] with T <= 6, got [1, 7]", DataError);
  CHECK_THROWS_WITH_AS(
      bert->forward({{"input_ids", at::ones({1, 5}, at::kLong)}, {"attention_mask", at::ones({1, 4})}}),
      "bert: attention_mask must have the shape of input_ids, [1, 5], got [1, 4]", DataError);
  const at::Tensor wrong = at::tensor({1, 20}).view({1, 2});
  CHECK_THROWS_WITH_AS(
      bert->forward({{"input_ids", wrong}}),
      "bert: token 20 of sample 0, at position 1, is out of range; the tokens of its vocabulary are 20, 0 to 19",
      DataError);
  CHECK_THROWS_WITH_AS(
      bert->forward({{"input_ids", at::ones_like(wrong)}, {"token_type_ids", at::full_like(wrong, 2)}}),
      "bert: type 2 of sample 0, at position 0, is out of range; the types of tokens are 2, 0 to 1", DataError);
}

}  // namespace composer::transformers_test
