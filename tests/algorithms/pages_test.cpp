// The examples on the pages of the algorithms, word for word (scripts/pages.py), and what they promise.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "composer/algorithms/alibi.h"
#include "composer/algorithms/augmix.h"
#include "composer/algorithms/blurpool.h"
#include "composer/algorithms/channels_last.h"
#include "composer/algorithms/colout.h"
#include "composer/algorithms/cutmix.h"
#include "composer/algorithms/cutout.h"
#include "composer/algorithms/ema.h"
#include "composer/algorithms/factorize.h"
#include "composer/algorithms/factorize_matrix.h"
#include "composer/algorithms/gated_linear_units.h"
#include "composer/algorithms/ghost_batchnorm.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/gyro_dropout.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/layer_freezing.h"
#include "composer/algorithms/low_precision_groupnorm.h"
#include "composer/algorithms/low_precision_layernorm.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/progressive_resizing.h"
#include "composer/algorithms/randaugment.h"
#include "composer/algorithms/sam.h"
#include "composer/algorithms/selective_backprop.h"
#include "composer/algorithms/seq_length_warmup.h"
#include "composer/algorithms/squeeze_excite.h"
#include "composer/algorithms/stochastic_depth.h"
#include "composer/algorithms/swa.h"
#include "composer/algorithms/weight_standardization.h"
#include "composer/models/bert.h"
#include "composer/models/gpt.h"
#include "composer/models/resnet_cifar.h"
#include "composer/optim/optimizer.h"
#include "composer/util/loss.h"
#include "tests/support/doctest.h"

namespace composer::pages_test {
namespace {

TEST_CASE("The example on the page of alibi does what it says") {
  const auto model = models::gpt({.vocabulary = 100, .sequence_length = 16, .width = 32, .depth = 1, .heads = 4});
  algorithms::alibi(*model, {.max_sequence_length = 64});  // the model now accepts 64 tokens
  const Batch batch = {{"input_ids", at::randint(100, {4, 16}, at::kLong)}};
  const Batch parts = algorithms::alibi_cut_sequences(batch, 0.25);  // [16, 4]
  CHECK(parts.at("input_ids").sizes() == at::IntArrayRef({16, 4}));
  CHECK(model->forward({{"input_ids", at::zeros({1, 64}, at::kLong)}}).only().size(1) == 64);
}

TEST_CASE("The example on the page of augmix does what it says") {
  const at::Tensor images = at::randint(256, {8, 3, 32, 32}, at::kByte);
  const auto draws = algorithms::draw_augmix(images.sizes(), {.severity = 3}, /*seed=*/1);
  const at::Tensor mixed = algorithms::augmix_batch(images, draws);
  CHECK(mixed.sizes() == images.sizes());
  CHECK_FALSE(mixed.equal(images));
}

TEST_CASE("The example on the page of blurpool does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  const Replacements done = algorithms::blurpool(*model, {.min_channels = 8});
  const at::Tensor half = algorithms::blur_2d(at::rand({8, 3, 32, 32}), /*stride=*/2);  // [8, 3, 16, 16]
  CHECK(done.made.size() > 0);
  CHECK(half.sizes() == at::IntArrayRef({8, 3, 16, 16}));
}

TEST_CASE("The example on the page of channels_last does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  const std::size_t changed = algorithms::channels_last(*model);  // tensors
  CHECK(changed > 0);
}

TEST_CASE("The example on the page of colout does what it says") {
  const at::Tensor images = at::randint(256, {8, 3, 32, 32}, at::kByte);
  const auto permute = [](std::int64_t n) { return at::randperm(n); };
  const algorithms::ColOutKept kept = algorithms::colout_kept(32, 32, /*p_row=*/0.25, /*p_col=*/0.25, permute);
  const at::Tensor smaller = algorithms::colout_batch(images, kept);  // [8, 3, 24, 24]
  CHECK(smaller.sizes() == at::IntArrayRef({8, 3, 24, 24}));
}

TEST_CASE("The example on the page of cutmix does what it says") {
  const at::Tensor images = at::rand({8, 3, 32, 32}), target = at::randint(10, {8}, at::kLong);
  const auto sample = [](std::int64_t low, std::int64_t high) {  // from low to high - 1
    return at::randint(low, high, {}, at::kLong).item<std::int64_t>();
  };
  const auto box = algorithms::cutmix_box(32, 32, /*length=*/0.5, /*uniform_sampling=*/false, sample);
  const auto cut = algorithms::cutmix_batch(images, target, /*permutation=*/at::randperm(8), box);
  const auto model = models::resnet_cifar({.depth = 8});
  const at::Tensor logits = model->forward({{"input", cut.input}}).only();
  const at::Tensor loss = cut.kept * at::cross_entropy_loss(logits, target) +
                          (1 - cut.kept) * at::cross_entropy_loss(logits, cut.other_target);
  CHECK(loss.item<double>() > 0);
  CHECK(cut.kept < 1);
}

TEST_CASE("The example on the page of cutout does what it says") {
  const at::Tensor images = at::randint(256, {8, 3, 32, 32}, at::kByte);
  const auto sample = [](std::int64_t low, std::int64_t high) {  // from low to high - 1
    return at::randint(low, high, {}, at::kLong).item<std::int64_t>();
  };
  const auto holes = algorithms::cutout_holes(32, 32, {.num_holes = 2, .length = 0.25}, sample);
  const at::Tensor cut = algorithms::cutout_batch(images, holes);
  CHECK(holes.size() == 2);
  CHECK_FALSE(cut.equal(images));
}

TEST_CASE("The example on the page of ema does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  WeightsByName averages = algorithms::copy_weights(*model);
  algorithms::compute_ema(*model, averages, /*smoothing=*/0.99);  // after each step of the optimizer
  CHECK(averages.size() > 20);
}

TEST_CASE("The example on the page of factorize does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  const Replacements done = algorithms::factorize(*model, {.min_channels = 32});
  const auto factors = algorithms::low_rank(at::rand({64, 48}), /*rank=*/8);  // a: [64, 8], b: [8, 48]
  const at::Tensor x = at::rand({100, 64}), weight = at::rand({64, 48});
  const auto fitted = algorithms::factorize_matrix(x, x.matmul(weight), weight, {}, {}, /*rank=*/0.25);
  CHECK(done.made.size() > 0);
  CHECK(factors.b.sizes() == at::IntArrayRef({8, 48}));
  CHECK(fitted.rank == 16);
}

TEST_CASE("The example on the page of gated_linear_units does what it says") {
  const auto model = models::bert({.vocabulary = 100, .sequence_length = 16, .width = 32, .depth = 2, .heads = 4});
  const Replacements done = algorithms::gated_linear_units(*model, {.act_fn = "gelu"});
  CHECK(done.made.size() == 2);
}

TEST_CASE("The example on the page of ghost_batchnorm does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  const Replacements done = algorithms::ghost_batchnorm(*model, {.ghost_batch_size = 16});
  CHECK(done.made.size() > 0);
}

TEST_CASE("The example on the page of gradient_clipping does what it says") {
  torch::nn::Linear model(4, 3);
  model->forward(at::rand({8, 4})).square().sum().backward();
  algorithms::apply_gradient_clipping(model->parameters(), algorithms::ClippingType::NORM, /*threshold=*/0.1);
  CHECK(model->weight.grad().norm().item<double>() <= 0.1001);
}

TEST_CASE("The example on the page of gyro_dropout does what it says") {
  torch::nn::Sequential model(torch::nn::Linear(4, 64), torch::nn::Dropout(), torch::nn::Linear(64, 3));
  const algorithms::GyroDropoutOptions options{.sigma = 64, .tau = 4};
  const auto position = std::make_shared<algorithms::GyroDropoutPosition>();
  algorithms::gyro_dropout(*model, options, position);
  for (std::int64_t batch = 0; batch < 128; ++batch) {
    position->round = batch / algorithms::gyro_dropout_period(128, options);  // 8: masks change every 8 batches
    model->forward(at::rand({8, 4}));
  }
  CHECK(algorithms::gyro_dropout_period(128, options) == 8);
  CHECK(position->round == 15);
}

TEST_CASE("The example on the page of label_smoothing does what it says") {
  const at::Tensor logits = at::rand({8, 10}), target = at::randint(10, {8}, at::kLong);
  const at::Tensor smoothed = algorithms::smooth_labels(logits, target, /*smoothing=*/0.1);  // float32 [8, 10]
  const at::Tensor loss = soft_cross_entropy(logits, smoothed);
  CHECK(at::allclose(smoothed.sum(1), at::ones({8})));
  CHECK(loss.item<double>() > 0);
}

TEST_CASE("The example on the page of layer_freezing does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  const auto optimizer = optim::sgd({.lr = 0.1}).make(optim::parameters_of(*model));
  const auto frozen = algorithms::freeze_layers(*model, *optimizer, /*current_duration=*/0.75, {.freeze_start = 0.5});
  CHECK(frozen.percentage == 0.5);
  CHECK(frozen.depth > 0);
}

TEST_CASE("The example on the page of low_precision_groupnorm does what it says") {
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::GroupNorm(2, 8));
  const Replacements done = algorithms::low_precision_groupnorm(*model, Precision::AMP_BF16);
  CHECK(done.made.size() == 1);
}

TEST_CASE("The example on the page of low_precision_layernorm does what it says") {
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
  const Replacements done = algorithms::low_precision_layernorm(*model, Precision::AMP_BF16);
  CHECK(done.made.size() == 1);
}

TEST_CASE("The example on the page of mixup does what it says") {
  const at::Tensor input = at::rand({8, 4}), target = at::randint(3, {8}, at::kLong);
  const auto mixed = algorithms::mixup_batch(input, target, {.mixing = 0.2, .permutation = at::randperm(8)});
  torch::nn::Linear model(4, 3);
  const at::Tensor logits = model->forward(mixed.input);
  const at::Tensor loss =
      0.8 * at::cross_entropy_loss(logits, target) + 0.2 * at::cross_entropy_loss(logits, mixed.permuted_target);
  CHECK(loss.item<double>() > 0);
}

TEST_CASE("The example on the page of progressive_resizing does what it says") {
  const at::Tensor images = at::randint(256, {8, 3, 32, 32}, at::kByte);
  const at::Tensor target = at::randint(10, {8}, at::kLong);
  const auto sample = [](std::int64_t high) { return at::randint(high, {}, at::kLong).item<std::int64_t>(); };
  const auto resized = algorithms::resize_batch(images, target, /*scale=*/0.5, algorithms::ResizingMode::CROP,
                                                /*resize_target=*/false, sample);
  CHECK(resized.input.sizes() == at::IntArrayRef({8, 3, 16, 16}));
  CHECK(resized.target.is_same(target));
}

TEST_CASE("The example on the page of randaugment does what it says") {
  const at::Tensor images = at::randint(256, {8, 3, 32, 32}, at::kByte);
  const auto changes = algorithms::draw_randaugment(images.sizes(), {.severity = 9, .depth = 2}, /*seed=*/1);
  const at::Tensor changed = algorithms::randaugment_batch(images, changes);
  CHECK(changes.size() == 8);
  CHECK_FALSE(changed.equal(images));
}

TEST_CASE("The example on the page of sam does what it says") {
  torch::nn::Linear model(4, 3);
  const at::Tensor x = at::rand({8, 4});
  const auto pass = [&] { model->forward(x).square().sum().backward(); };
  pass();
  {
    const algorithms::SharpStep step(model->parameters(), /*rho=*/0.05, /*epsilon=*/1e-12);
    pass();  // at the weights that the step has moved uphill
  }
  // The weights are back; the gradients are those of the second pass.
  CHECK(model->weight.grad().defined());
}

TEST_CASE("The example on the page of selective_backprop does what it says") {
  const at::Tensor losses = at::rand({8});                                      // of each sample
  const auto choose = [](const std::vector<double>& weights, std::int64_t n) {  // n positions, with these weights
    const at::Tensor chosen = at::tensor(weights).multinomial(n);
    return std::vector<std::int64_t>(chosen.const_data_ptr<std::int64_t>(), chosen.const_data_ptr<std::int64_t>() + n);
  };
  const at::Tensor selected = algorithms::select_using_loss(losses, /*keep=*/0.5, choose);  // four indices of samples
  CHECK(selected.sizes() == at::IntArrayRef({4}));
}

TEST_CASE("The example on the page of seq_length_warmup does what it says") {
  const Batch batch = {{"input_ids", at::randint(100, {4, 64}, at::kLong)}};
  const Batch shorter = algorithms::set_batch_sequence_length(batch, /*length=*/16);                    // [4, 16]
  const Batch more = algorithms::set_batch_sequence_length(batch, /*length=*/16, {.truncate = false});  // [16, 16]
  CHECK(shorter.at("input_ids").sizes() == at::IntArrayRef({4, 16}));
  CHECK(more.at("input_ids").sizes() == at::IntArrayRef({16, 16}));
}

TEST_CASE("The example on the page of squeeze_excite does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  const Replacements done = algorithms::squeeze_excite(*model, {.latent_channels = 0.25, .min_channels = 32});
  Layer block = algorithms::squeeze_excite_2d(/*channels=*/64, /*latent_channels=*/16);  // for a model of your own
  const at::Tensor y = block(at::rand({2, 64, 8, 8}));
  CHECK(done.made.size() > 0);
  CHECK(y.sizes() == at::IntArrayRef({2, 64, 8, 8}));
}

TEST_CASE("The example on the page of stochastic_depth does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  const std::size_t blocks = algorithms::stochastic_depth(*model, {.drop_rate = 0.2}, /*scale=*/0.5);
  CHECK(blocks == 3);
}

TEST_CASE("The example on the page of swa does what it says") {
  const algorithms::SWAOptions options{.schedule_swa_lr = true, .anneal_steps = 10, .swa_lr = 0.02};
  const double lr = algorithms::swa_learning_rate(/*from=*/0.1, /*updates=*/5, options);  // 0.06
  CHECK(lr == doctest::Approx(0.06));
}

TEST_CASE("The example on the page of weight_standardization does what it says") {
  const auto model = models::resnet_cifar({.depth = 8});
  const Replacements done = algorithms::weight_standardization(*model, {.n_last_layers_ignore = 1});
  const at::Tensor weight = algorithms::standardize_weights(at::rand({16, 3, 3, 3}));
  CHECK(done.made.size() > 0);
  CHECK(std::abs(weight.mean().item<double>()) < 1e-5);
}

}  // namespace
}  // namespace composer::pages_test
