// algorithms.json: residual blocks that are dropped.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/stochastic_depth.h"
#include "composer/core/on.h"
#include "composer/data/in_memory.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/models/classifier.h"
#include "composer/optim/sgd.h"
#include "composer/trainer/trainer.h"
#include "tests/replay/algorithms.h"
#include "tests/replay/floating_point.h"
#include "tests/replay/recorded.h"

namespace composer::replay {
namespace {

namespace nn = torch::nn;
using algorithms::DropDistribution;
using algorithms::StochasticDepthOptions;
using algorithms::StochasticMethod;

// torchvision's, with the names of its parameters.
struct Bottleneck final : ResidualBlock {
  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t out, bool downsamples)
      : conv1(register_module("conv1", convolution(in, width, 1))),
        bn1(register_module("bn1", nn::BatchNorm2d(width))),
        conv2(register_module("conv2", convolution(width, width, 3))),
        bn2(register_module("bn2", nn::BatchNorm2d(width))),
        conv3(register_module("conv3", convolution(width, out, 1))),
        bn3(register_module("bn3", nn::BatchNorm2d(out))) {
    if (downsamples)
      downsample = register_module("downsample", nn::Sequential(convolution(in, out, 1), nn::BatchNorm2d(out)));
  }
  static nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, size).padding(size / 2).bias(false));
  }
  at::Tensor branch(const at::Tensor& x) override {
    const at::Tensor y = bn2->forward(conv2->forward(bn1->forward(conv1->forward(x)).relu())).relu();
    return bn3->forward(conv3->forward(y));
  }
  at::Tensor shortcut(const at::Tensor& x) override { return downsample ? downsample->forward(x) : x; }
  at::Tensor finish(at::Tensor sum) override { return sum.relu(); }

  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Conv2d conv2;
  nn::BatchNorm2d bn2;
  nn::Conv2d conv3;
  nn::BatchNorm2d bn3;
  nn::Sequential downsample{nullptr};
};

// The branch alone.
struct Dropped final : ResidualBlock {
  at::Tensor branch(const at::Tensor& x) override { return x.clone(); }
  at::Tensor shortcut(const at::Tensor& x) override { return at::zeros_like(x); }
};

StochasticMethod method_of(const Json& c) {
  return c.at("stochastic_method") == "block" ? StochasticMethod::BLOCK : StochasticMethod::SAMPLE;
}
ResidualBlock::Drop drop_of(StochasticMethod method) {
  return method == StochasticMethod::BLOCK ? ResidualBlock::Drop::BATCH : ResidualBlock::Drop::SAMPLE;
}

double first_number(const Json& value) { return value.is_array() ? first_number(value.at(0)) : value.get<double>(); }

// Sets libtorch's generator so that it draws what keeps and drops as the recorded numbers did.
void seed_like(const Json& c, double keep) {
  const Json& log = c.at("random_log");
  if (log.empty()) return;
  std::vector<bool> want, got;
  const Json& value = log.at(0).at("value");
  if (value.is_array()) {
    for (const Json& one : value) want.push_back(keep + first_number(one) >= 1);
  } else {
    want.push_back(value.get<double>() > 0);
  }
  for (std::uint64_t seed = 0; seed < 10000; ++seed) {
    got.clear();
    at::manual_seed(seed);
    if (value.is_array()) {
      const at::Tensor drawn = at::rand({static_cast<std::int64_t>(value.size())}, at::kDouble);
      for (std::int64_t i = 0; i < drawn.numel(); ++i) got.push_back(keep + drawn[i].item<double>() >= 1);
    } else {
      got.push_back(at::rand({}, at::kDouble).item<double>() < keep);
    }
    if (got == want) return static_cast<void>(at::manual_seed(seed));
  }
  throw std::runtime_error("no seed draws what was recorded");
}

// Composer stores rates as float32.
constexpr Tolerance kRates{1e-6, 1e-7};

Outcome bottleneck(const Json& c, const Recorded& recorded) {
  const double rate = c.at("drop_rate");
  const bool downsamples = c.at("downsample").get<bool>();
  const std::int64_t width = recorded.at("in.bn1.weight").numel();
  const auto block = std::make_shared<Bottleneck>(4, width, 4 * width, downsamples);
  convert_floating_point(*block, at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& one : block->named_parameters()) one.value().copy_(recorded.at("in." + one.key()));
  for (const auto& one : block->named_buffers()) one.value().copy_(recorded.at("in." + one.key()));
  block->set_drop(rate, drop_of(method_of(c)));
  block->train(c.at("training").get<bool>());
  seed_like(c, 1 - rate);
  Json got = Json::array({to_json(block->forward(recorded.at("in.input")))}),
       want = Json::array({to_json(recorded.at("out"))});
  for (const auto& one : block->named_buffers()) {
    if (!recorded.contains("out.state." + one.key())) continue;
    got.push_back(to_json(one.value()));
    want.push_back(to_json(recorded.at("out.state." + one.key())));
  }
  return judge(c, want, got, depth_rules(), kRates);
}

Outcome sample_drop(const Json& c, const Recorded& recorded) {
  Dropped block;
  const double rate = c.at("sample_drop_rate");
  block.set_drop(rate, ResidualBlock::Drop::SAMPLE);
  seed_like(c, 1 - rate);
  return judge_tensor(c, recorded.at("out"), block.forward(recorded.at("in.input")));
}

struct Blocks {
  explicit Blocks(std::int64_t number) {
    for (std::int64_t i = 0; i < number; ++i) {
      list.push_back(std::make_shared<Dropped>());
      body->push_back(list.back());
    }
    body->push_back(nn::Linear(2, 2));
  }
  Json rates() const {
    Json all = Json::array();
    for (const auto& block : list) all.push_back(block->drop_rate());
    return all;
  }
  std::vector<std::shared_ptr<Dropped>> list;
  nn::Sequential body;
};

StochasticDepthOptions depth_options(const Json& c) {
  return {
      .drop_rate = c.at("drop_rate"),
      .drop_distribution = c.at("drop_distribution") == "linear" ? DropDistribution::LINEAR : DropDistribution::UNIFORM,
      .drop_warmup = Time::parse(c.value("drop_warmup", "0dur"))};
}

Outcome rates(const Json& c, const Recorded&) {
  Blocks blocks(c.at("num_blocks").get<std::int64_t>());
  algorithms::stochastic_depth(*blocks.body, depth_options(c));
  return judge(c, c.at("block_drop_rates"), blocks.rates(), depth_rules(), kRates);
}

Outcome warmup(const Json& c, const Recorded&) {
  Blocks blocks(c.at("num_blocks").get<std::int64_t>());
  Json rows = Json::array(), logged = Json::object();
  const auto logger = std::make_shared<loggers::InMemoryLogger>();
  const std::int64_t samples = c.at("dataloader_len").get<std::int64_t>();
  TrainerOptions options{
      .model = std::make_shared<models::Classifier>(blocks.body, models::ClassifierOptions{.num_classes = 2}),
      .train_dataloader =
          data::in_memory({{"input", at::ones({samples, 2})}, {"target", at::zeros({samples}, at::kLong)}},
                          {.batch_size = 1, .shuffle = false})};
  options.optimizer = optim::sgd({.lr = 0.1});
  options.max_duration = Time::parse(c.at("max_duration").get<std::string>());
  options.device = at::Device(at::kCPU);
  options.handle_signals = false;
  options.algorithms = {algorithms::StochasticDepth(depth_options(c))};
  options.loggers.add(logger);
  options.callbacks.add(on(Event::BATCH_START, [&](const State& state) {
    rows.push_back({state.timestamp.batch, blocks.rates()});
  }));
  Trainer trainer(std::move(options));
  trainer.fit();
  for (const auto& one : c.at("logged").items()) {
    logged[one.key()] = Json::array();
    for (const auto& point : logger->get_timeseries(one.key()))
      logged[one.key()].push_back({point.timestamp.batch, point.number()});
  }
  return judge(c, {{"rows", c.at("rows")}, {"logged", c.at("logged")}}, {{"rows", rows}, {"logged", logged}},
               depth_rules(), kRates);
}

}  // namespace

const Rules& depth_rules() {
  static const Rules all = {
      {.name = "stochastic_depth_takes_all_residual_blocks",
       .applies_to = "`StochasticDepth(target_layer_name=...)`",
       .composer_does = "Knows `ResNetBottleneck` alone, and rejects any other name.",
       .we_do = "There is no such option: every block that derives from `ResidualBlock` takes part.",
       .why = "Any residual block can be dropped, basic blocks and those of users as well.",
       .matches = [](const Json& c) { return c.value("function", "") == "StochasticDepth constructor"; },
       .ours =
           [](Json& expected, const Json& c) {
             for (std::size_t i = 0; i < expected.size(); ++i)
               if (c.at("rows").at(i).at("kwargs").at("target_layer_name") != "ResNetBottleneck")
                 expected[i] = expected.at(0);
           }},
      {.name = "dropped_blocks_end_as_others",
       .applies_to = "A residual block without `downsample` that is dropped",
       .composer_does = "Returns its input.",
       .we_do = "Returns what it returns for a branch of zeros: the activation at its end is applied to the input.",
       .why = "It is the same for what comes out of a block; any other input is treated as if the block were kept.",
       .matches =
           [](const Json& c) {
             return c.value("function", "") == "stochastic bottleneck forward" && !c.at("downsample").get<bool>();
           },
       .ours =
           [](Json& expected, const Json& c) {
             const Json& log = c.at("random_log");
             if (log.empty() || log.at(0).at("value") != 0.0) return;
             for (Json& value : expected[0]["values"]) value = std::max(0.0, value.get<double>());
           }},
      {.name = "drop_rates_reach_their_target",
       .applies_to = "`StochasticDepth` with a `drop_warmup`",
       .composer_does = "Leaves blocks at the rates of the last batch of the warm-up, and logs the full rate.",
       .we_do = "After the warm-up blocks have the full rates.",
       .why = "It is the rate that was asked for.",
       .matches = [](const Json& c) { return c.value("function", "") == "StochasticDepth in a training"; },
       .ours =
           [](Json& expected, const Json& c) {
             const Json& logged = c.at("logged").at("stochastic_depth/drop_rate");
             for (std::size_t i = 0; i < expected["rows"].size(); ++i) {
               Json& blocks = expected["rows"][i][1];
               for (std::size_t block = 0; block < blocks.size(); ++block)
                 blocks[block] = logged.at(i).at(1).get<double>() * static_cast<double>(block + 1) /
                                 static_cast<double>(blocks.size());
             }
           }},
  };
  return all;
}

Handlers depth_handlers() {
  return {{"apply_stochastic_depth", rates},
          {"stochastic bottleneck forward", bottleneck},
          {"_sample_drop", sample_drop},
          {"StochasticDepth in a training", warmup}};
}

}  // namespace composer::replay
