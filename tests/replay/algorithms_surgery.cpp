// algorithms.json: the modules that algorithms put into a model, and the functions that these are made of.
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/pooling.h>

#include "composer/algorithms/blurpool.h"
#include "composer/algorithms/ghost_batchnorm.h"
#include "tests/replay/algorithms.h"
#include "tests/replay/errors.h"
#include "tests/replay/recorded.h"

namespace composer::replay {
namespace {

namespace nn = torch::nn;

Outcome blur_2d(const Json& c, const Recorded& recorded) {
  const at::Tensor filter = c.at("filter") == "default" ? at::Tensor() : recorded.at("in.filter");
  const auto stride = c.at("stride").is_array() ? c.at("stride").get<std::vector<std::int64_t>>()
                                                : std::vector<std::int64_t>{c.at("stride").get<std::int64_t>()};
  return judge_tensor(c, recorded.at("out"), algorithms::blur_2d(recorded.at("in.input"), stride, filter));
}

Outcome blurmax_pool2d(const Json& c, const Recorded& recorded) {
  const std::int64_t size = c.value("kernel_size", 2);
  nn::Sequential model{
      nn::MaxPool2d(nn::MaxPool2dOptions(size).stride(c.value("stride", size)).padding(c.value("padding", 0)))};
  algorithms::blurpool(*model);
  model->to(at::kDouble);
  return judge_tensor(c, recorded.at("out"), model->forward(recorded.at("in.input")));
}

Outcome blur_conv2d(const Json& c, const Recorded& recorded) {
  const Json& spec = c.at("conv");
  const nn::Conv2d conv(nn::Conv2dOptions(spec.at("in_channels").get<std::int64_t>(),
                                          spec.at("out_channels").get<std::int64_t>(),
                                          spec.at("kernel_size").get<std::int64_t>())
                            .stride(spec.at("stride").get<std::int64_t>())
                            .padding(spec.at("padding").get<std::int64_t>())
                            .bias(spec.value("bias", true)));
  nn::Sequential model{conv};
  algorithms::blurpool(*model, {.blur_first = c.at("blur_first"), .min_channels = 1});
  const at::NoGradGuard no_grad;
  Json keys = Json::array();
  for (const auto& buffer : model->named_buffers()) keys.push_back(buffer.key().substr(2));
  for (const auto& parameter : model->named_parameters()) {
    keys.push_back(parameter.key().substr(2));
    parameter.value().copy_(recorded.at("in." + keys.back().get<std::string>()));
  }
  return judge(c, {c.at("state_dict_keys"), to_json(recorded.at("out"))},
               {keys, to_json(model->forward(recorded.at("in.input")))}, {}, Tolerance{1e-5, 1e-6});
}

nn::Sequential batch_norm(const std::string& dimensions, std::int64_t features, double momentum) {
  const auto options = nn::BatchNormOptions(features).momentum(momentum);
  if (dimensions == "1d") return nn::Sequential(nn::BatchNorm1d(options));
  if (dimensions == "2d") return nn::Sequential(nn::BatchNorm2d(options));
  throw std::runtime_error("another batch norm was recorded: " + dimensions);
}

// Parameters and buffers by name, without the "0.batchnorm." before them.
Json state_of(const nn::Sequential& model) {
  Json state = Json::object();
  for (const auto& one : model->named_parameters()) state[one.key().substr(12)] = to_json(one.value());
  for (const auto& one : model->named_buffers()) state[one.key().substr(12)] = to_json(one.value());
  return state;
}

Outcome ghost_batchnorm(const Json& c, const Recorded& recorded) {
  const at::Tensor weight = recorded.at("in.weight");
  nn::Sequential model =
      batch_norm(c.at("batchnorm").get<std::string>(), weight.numel(), c.at("batchnorm_kwargs").value("momentum", 0.1));
  algorithms::ghost_batchnorm(*model, {.ghost_batch_size = c.at("ghost_batch_size")});
  model->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (const auto& one : model->named_parameters()) one.value().copy_(recorded.at("in." + one.key().substr(12)));
  for (const auto& one : model->named_buffers()) one.value().set_data(recorded.at("in." + one.key().substr(12)));
  if (!c.at("error").is_null()) {
    const Json want = without_message({{"error", c.at("error")}});
    return judge(c, want, result_of(want, [&] { return to_json(model->forward(recorded.at("in.input0"))); }), {});
  }
  Json want = Json::array(), got = Json::array();
  for (int step = 0; step < c.at("steps").get<int>(); ++step) {
    const std::string number = std::to_string(step);
    got.push_back(to_json(model->forward(recorded.at("in.input" + number))));
    want.push_back(to_json(recorded.at("out.train" + number)));
    const Json state = state_of(model);
    got.push_back(state);
    want.push_back(Json::object());
    for (const auto& one : state.items())
      want.back()[one.key()] = to_json(recorded.at("out.state" + number + "." + one.key()));
  }
  model->eval();
  got.push_back(to_json(model->forward(recorded.at("in.input_eval"))));
  want.push_back(to_json(recorded.at("out.eval")));
  return judge(c, want, got, {}, Tolerance{1e-12, 1e-14});
}

}  // namespace

Handlers surgery_handlers() {
  return {{"apply_ghost_batchnorm", ghost_batchnorm},
          {"blur_2d", blur_2d},
          {"blurmax_pool2d", blurmax_pool2d},
          {"BlurConv2d.from_conv2d", blur_conv2d}};
}

}  // namespace composer::replay
