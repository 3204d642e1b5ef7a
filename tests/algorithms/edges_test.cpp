// Algorithms of models and runs that are not the usual ones: a second trainer, masks among the buffers, two together.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/alibi.h"
#include "composer/algorithms/ema.h"
#include "composer/algorithms/gyro_dropout.h"
#include "composer/algorithms/layer_freezing.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/sam.h"
#include "composer/algorithms/selective_backprop.h"
#include "composer/algorithms/stochastic_depth.h"
#include "composer/algorithms/swa.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/models/gpt.h"
#include "composer/surgery/layer.h"
#include "composer/surgery/residual_block.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::edges_test {
namespace {

namespace nn = torch::nn;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Block final : ResidualBlock {
  Block() { register_module("inner", inner); }
  at::Tensor branch(const at::Tensor& x) override { return inner(x); }
  nn::Linear inner{8, 8};
};

// With a residual block, dropout, a batch norm, a mask of -inf and a buffer that is expanded.
class Net final : public Model {
 public:
  explicit Net(bool expanded) {
    register_module("in", in_);
    register_module("norm", norm);
    register_module("block", block_);
    register_module("out", out_);
    mask_ = register_buffer("mask", at::tensor({0.F, 0.F, 0.F, -kInfinity}));
    scale_ = register_buffer("scale", expanded ? at::ones({1}).expand({4}) : at::ones({4}));
  }
  Outputs forward(const Batch& batch) override {
    const at::Tensor x = drop_(block_->forward(norm(in_(batch.at("input")))));
    if (is_training()) kept.push_back(drop_(at::ones({1, 8})).gt(0));
    return out_(x) * scale_ + mask_;
  }
  // Has a layer, so that autocast matters.
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    const at::Tensor logits = at::linear(outputs.only().narrow(1, 0, 3), at::eye(3));
    return nn::functional::cross_entropy(logits, batch.at("target"));
  }
  std::vector<at::Tensor> kept;  // what the dropout lets through
  nn::BatchNorm1d norm{8};

 private:
  nn::Linear in_{4, 8}, out_{8, 4};
  std::shared_ptr<Block> block_ = std::make_shared<Block>();
  Layer drop_{this, "drop", nn::Dropout(0.5)};
  at::Tensor mask_, scale_;
};

std::shared_ptr<Net> net(bool expanded = false) {
  at::manual_seed(1);
  return std::make_shared<Net>(expanded);
}

TrainerOptions options_of(std::shared_ptr<Model> model, Algorithms algorithms) {
  TrainerOptions options = tiny_options();
  options.model = std::move(model);
  options.algorithms = std::move(algorithms);
  options.max_duration = "2ep";
  options.seed = 1;
  return options;
}

bool is_finite(const Model& model) {
  bool all = true;
  for (const at::Tensor& parameter : model.parameters()) all = all && parameter.isfinite().all().item<bool>();
  return all;
}

}  // namespace

TEST_CASE("EMA leaves masks of infinities as they are, and buffers that cannot be written to") {
  auto ema = std::make_shared<algorithms::EMA>(algorithms::EMAOptions{.half_life = "2ba"});
  Trainer trainer(options_of(net(/*expanded=*/true), {ema}));
  trainer.fit();
  bool has_mask = false;
  for (const auto& [name, average] : ema->averages()) {
    CHECK_FALSE(average.isnan().any().item<bool>());
    CHECK(name != "scale");
    has_mask = has_mask || name == "mask";
  }
  CHECK(has_mask);
}

TEST_CASE("SWA gives averages to a model with masks of infinities and expanded buffers") {
  const auto model = net(/*expanded=*/true);
  Trainer trainer(options_of(model, {algorithms::SWA({.swa_start = "0ep", .swa_end = "2ep"})}));
  trainer.fit();
  CHECK(is_finite(*model));
  CHECK(at::equal(model->named_buffers()["mask"], at::tensor({0.F, 0.F, 0.F, -kInfinity})));
}

TEST_CASE("An overflow of SAM's first pass leaves no NaN in running statistics") {
  const auto model = net();
  TrainerOptions options = options_of(model, {algorithms::SAM()});
  options.grad_scaler = optim::GradScalerOptions{.init_scale = 3e38, .backoff_factor = 1e-20};
  options.max_duration = "4ep";
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(is_finite(*model));
  CHECK(model->norm->running_mean.isfinite().all().item<bool>());
}

TEST_CASE("Losses of mixed targets are computed in the precision of the run") {
  TrainerOptions options = options_of(net(), {algorithms::MixUp({.interpolate_loss = true})});
  options.precision = Precision::AMP_BF16;
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(trainer.state().batch_loss.at("total").isfinite().item<bool>());
}

TEST_CASE("GyroDropout of a second trainer has its own options and changes its masks") {
  const auto model = net();
  for (const double p : {0.5, 0.9}) {
    model->kept.clear();
    TrainerOptions options = options_of(model, {algorithms::GyroDropout({.p = p, .sigma = 8, .tau = 2})});
    options.max_duration = "40ba";
    Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(warnings.texts.empty());
    int changes = 0;
    for (std::size_t i = 1; i < model->kept.size(); ++i) changes += !at::equal(model->kept[i], model->kept[i - 1]);
    CHECK(changes >= 2);
    CHECK(at::cat(model->kept).to(at::kFloat).mean().item<double>() == doctest::Approx(1 - p).epsilon(0.35));
  }
}

TEST_CASE("Alibi of a second trainer cuts sequences, and warns of nothing") {
  const auto model = models::gpt({.vocabulary = 11, .sequence_length = 8, .width = 16, .depth = 1, .heads = 2});
  const at::Tensor tokens = at::arange(64).remainder(11).view({8, 8});
  for (int run = 0; run < 2; ++run) {
    TrainerOptions options =
        options_of(model, {algorithms::Alibi({.max_sequence_length = 8, .train_sequence_length_scaling = 0.5})});
    options.train_dataloader = data::in_memory({{"input_ids", tokens}, {"target", tokens}}, {.batch_size = 4});
    std::int64_t length = 0;
    options.callbacks.add(At([&](Event event, const State& state) {
      if (event == Event::BEFORE_FORWARD) length = state.batch.at("input_ids").size(1);
    }));
    Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(length == 4);
    CHECK(warnings.texts.empty());
  }
}

TEST_CASE("LayerFreezing refuses a run without an end before it trains, and a checkpoint with fewer frozen layers") {
  TrainerOptions endless = options_of(net(), {algorithms::LayerFreezing()});
  endless.max_duration = {};
  Trainer first(std::move(endless));
  CHECK(error_of([&] { first.begin(); }).find("max_duration") != std::string::npos);

  const Folder folder;
  TrainerOptions options = options_of(net(), {algorithms::LayerFreezing({.freeze_start = 0.2})});
  options.max_duration = "5ep";
  options.save_folder = folder.path().string();
  Trainer trainer(std::move(options));
  trainer.fit();
  const std::string text = error_of([&] { trainer.state().run->load({.path = (folder.path() / "ep1-ba4").string()}); });
  CHECK(text.find("layers are frozen") != std::string::npos);
}

TEST_CASE("A run is resumed to the bit if a selection looks at a model whose dropping follows the run") {
  const auto train = [](int stop_after, const std::string& folder) {
    const auto model = net();
    TrainerOptions options =
        options_of(model, {algorithms::SelectiveBackprop({.start = 0, .end = 1, .keep = 0.5, .interrupt = 0}),
                           algorithms::GyroDropout({.p = 0.5, .sigma = 16, .tau = 2}),
                           algorithms::StochasticDepth({.drop_rate = 0.9, .drop_warmup = "1dur"})});
    options.train_dataloader = tiny_loader(64, 16);
    options.max_duration = "16ba";
    options.save_folder = folder;
    options.save_interval = Interval("1ba");
    options.run_name = "r";
    Trainer trainer(std::move(options));
    trainer.begin();
    for (int i = 0; i < stop_after && trainer.step(); ++i) {
    }
    if (stop_after == 100) trainer.end();
    return model;
  };
  const Folder whole, cut;
  const auto expected = train(100, (whole.path() / "a").string());
  train(7, (cut.path() / "a").string());
  const auto resumed = train(100, (cut.path() / "a").string());
  const auto theirs = expected->parameters(), ours = resumed->parameters();
  for (std::size_t i = 0; i < theirs.size(); ++i) CHECK(at::equal(theirs[i], ours[i]));
}

}  // namespace composer::test::edges_test
