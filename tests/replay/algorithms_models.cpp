// algorithms.json: models of a few layers before and after an algorithm, and single layers that algorithms make.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>

#include "composer/algorithms/alibi.h"
#include "composer/algorithms/blurpool.h"
#include "composer/algorithms/channels_last.h"
#include "composer/algorithms/factorize.h"
#include "composer/algorithms/gated_linear_units.h"
#include "composer/algorithms/low_precision_groupnorm.h"
#include "composer/algorithms/low_precision_layernorm.h"
#include "composer/algorithms/squeeze_excite.h"
#include "composer/algorithms/weight_standardization.h"
#include "tests/replay/algorithms.h"
#include "tests/replay/recorded.h"
#include "tests/support/bf16_autocast.h"

namespace composer::replay {
namespace {

namespace nn = torch::nn;

// Fills the parameters whose names were recorded.
void fill(nn::Module& model, const Context::Tensors& tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& one : model.named_parameters())
    if (const auto found = tensors.find(one.key()); found != tensors.end()) one.value().copy_(found->second);
}

// Names of modules and of their classes, as Composer's: [["0", "Conv2d"], ...].
Json modules_of(const nn::Module& model) {
  Json list = Json::array();
  for (const auto& one : model.named_modules("", /*include_self=*/false)) {
    std::string name = one.value()->name();
    name = name.substr(0, name.find('<'));
    name = name.substr(name.rfind(':') + 1);
    if (name.ends_with("Impl")) name.resize(name.size() - 4);
    if (name == "Factorized")
      name += bare(*one.value()).children().at(0)->name().find("Conv") == std::string::npos ? "Linear" : "Conv2d";
    list.push_back({one.key(), name});
  }
  return list;
}

Json set_of(const Json& names) {
  std::set<std::string> all;
  for (const Json& name : names) all.insert(name.get<std::string>());
  return all;
}
Json keys_of(const nn::Module& model) {
  std::set<std::string> all;
  for (const auto& one : model.named_parameters()) all.insert(one.key());
  for (const auto& one : model.named_buffers()) all.insert(one.key());
  return all;
}

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t padding, at::IntArrayRef stride = 1,
                bool bias = true) {
  const torch::ExpandingArray<2> steps =
      stride.size() == 2 ? torch::ExpandingArray<2>({stride[0], stride[1]}) : torch::ExpandingArray<2>(stride[0]);
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).padding(padding).stride(steps).bias(bias));
}

Outcome squeeze_excite_2d(const Json& c, const Recorded& recorded) {
  Layer block =
      algorithms::squeeze_excite_2d(c.at("num_features").get<std::int64_t>(), c.at("latent_channels").get<double>());
  block->to(at::kDouble);
  fill(*block, recorded.below("in."));
  const Json hidden = block->parameters().at(0).size(0);
  return judge(c, {c.at("state_dict_keys"), c.at("resolved_latent_channels"), to_json(recorded.at("out"))},
               {keys_of(*block), hidden, to_json(block(recorded.at("in.input")))}, model_rules(),
               tolerance_for(recorded.at("out")));
}

Outcome apply_squeeze_excite(const Json& c, const Recorded& recorded) {
  nn::Sequential model{conv(3, 8, 3, 0), nn::ReLU(), conv(8, 16, 3, 0),
                       Layer(nn::Sequential(conv(16, 16, 1, 0, 1, /*bias=*/false))), nn::Flatten()};
  const algorithms::SqueezeExciteOptions options{.latent_channels = c.at("latent_channels"),
                                                 .min_channels = c.at("min_channels")};
  const Json before = modules_of(*model);
  algorithms::squeeze_excite(*model, options);
  fill(*model, recorded.below("in.after_surgery."));
  const Json keys = keys_of(*model), after = modules_of(*model);
  const bool idle = algorithms::squeeze_excite(*model, options).made.empty();
  // An element whose terms almost cancel was recorded 1.6e-6 from its value in double precision.
  const double largest = recorded.at("out").abs().max().item<double>();
  const Tolerance tolerance{1e-5, 1e-5 * largest};
  return judge(c,
               {c.at("modules_before"), c.at("modules_after"), set_of(c.at("state_dict_keys_after")),
                c.at("second_application_changes_nothing"), to_json(recorded.at("out"))},
               {before, after, keys, idle, to_json(model->forward(recorded.at("in.input")))}, model_rules(), tolerance);
}

Outcome apply_blurpool(const Json& c, const Recorded& recorded) {
  nn::Sequential model{conv(1, 4, 3, 1),
                       nn::MaxPool2d(2),
                       conv(4, 16, 3, 1, 2),
                       nn::ReLU(),
                       conv(16, 8, 3, 1, {2, 1}, /*bias=*/false),
                       nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(1).padding(1)),
                       nn::Flatten()};
  fill(*model, recorded.below("in."));
  const Json before = modules_of(*model);
  algorithms::blurpool(*model, {.replace_convs = c.value("replace_convs", true),
                                .blur_first = c.value("blur_first", true),
                                .min_channels = c.value("min_channels", std::int64_t{16})});
  return judge(c,
               {c.at("modules_before"), c.at("modules_after"), set_of(c.at("state_dict_keys_after")),
                to_json(recorded.at("out"))},
               {before, modules_of(*model), keys_of(*model), to_json(model->forward(recorded.at("in.input")))},
               model_rules(), Tolerance{1e-4, 1e-5});
}

Outcome standardize_weights(const Json& c, const Recorded& recorded) {
  return judge_tensor(c, recorded.at("out"), algorithms::standardize_weights(recorded.at("in.W")));
}

Outcome apply_weight_standardization(const Json& c, const Recorded& recorded) {
  nn::Sequential model{conv(2, 4, 3, 1), nn::ReLU(), conv(4, 6, 3, 0, 1, /*bias=*/false), nn::Flatten(),
                       nn::Linear(96, 3)};
  fill(*model, recorded.below("in."));
  const Replacements done =
      algorithms::weight_standardization(*model, {.n_last_layers_ignore = c.at("n_last_layers_ignore")});
  return judge(c, {c.at("count"), set_of(c.at("state_dict_keys_after")), to_json(recorded.at("out"))},
               {done.made.size(), keys_of(*model), to_json(model->forward(recorded.at("in.input")))}, model_rules(),
               Tolerance{1e-4, 1e-4});
}

constexpr Tolerance kSolved{1e-8, 1e-10};

at::Tensor if_any(const Recorded& recorded, const std::string& name) {
  return recorded.contains(name) ? recorded.at(name) : at::Tensor();
}

Outcome factorize_matrix(const Json& c, const Recorded& recorded) {
  const algorithms::LowRankFactors found = algorithms::factorize_matrix(
      recorded.at("in.X"), recorded.at("in.Y"), recorded.at("in.W"), if_any(recorded, "in.Wb"),
      if_any(recorded, "in.bias"), c.at("rank").get<double>(), c.at("n_iters").get<std::int64_t>());
  const at::Tensor product = found.b.defined() ? at::matmul(found.a, found.b) : found.a;
  return judge(
      c, {c.at("solution_rank"), c.at("has_Wb"), to_json(recorded.at("out.product")), to_json(recorded.at("out.bias"))},
      {found.rank, found.b.defined(), to_json(product), to_json(found.bias)}, model_rules(), kSolved);
}

// FactorizedLinear.set_rank(): the factors that the layer would have after it.
Outcome set_rank(const Json& c, const Recorded& recorded) {
  const at::Tensor x = recorded.at("in.input"), a = recorded.at("in.module0.weight").t(),
                   b = recorded.at("in.module1.weight").t(), bias = recorded.at("in.module1.bias");
  const at::Tensor y = at::matmul(at::matmul(x, a), b) + bias;
  const algorithms::LowRankFactors found = algorithms::factorize_matrix(x, y, a, b, bias, c.at("rank").get<double>());
  return judge(c, {c.at("latent_size_after"), to_json(recorded.at("out.before")), to_json(recorded.at("out.after"))},
               {found.rank, to_json(y), to_json(at::matmul(at::matmul(x, found.a), found.b) + found.bias)},
               model_rules(), kSolved);
}

Outcome factorize_conv2d(const Json& c, const Recorded& recorded) {
  const std::int64_t padding = c.at("conv_kwargs").value("padding", 0);
  const at::Tensor x = recorded.at("in.X");
  const algorithms::LowRankFactors found =
      algorithms::factorize_conv2d(x, recorded.at("in.W"), recorded.at("in.bias"), c.at("rank").get<double>(),
                                   c.at("n_iters").get<std::int64_t>(), padding);
  const at::Tensor composed = at::conv2d(at::conv2d(x, found.a, {}, 1, padding), found.b, found.bias);
  return judge(c, {c.at("solution_rank"), c.at("Wa_shape"), c.at("Wb_shape"), to_json(recorded.at("out.composed"))},
               {found.rank, found.a.sizes().vec(), found.b.sizes().vec(), to_json(composed)}, model_rules(), kSolved);
}

Outcome factorize_ranks(const Json& c, const Recorded&) {
  return judge_rows(c, model_rules(), [](const Json& row) -> RecordedAndGot {
    const auto in = row.at("in").get<std::int64_t>(), out = row.at("out").get<std::int64_t>();
    // A kernel size that is one number was taken for the number of its elements.
    const Json& kernel = row.at("kernel_size");
    const std::int64_t size = algorithms::clean_latent_size(row.at("latent_size").get<double>(), in, out),
                       most = algorithms::max_rank_with_possible_speedup(
                           in, out, kernel.is_null() ? 1 : kernel.get<std::int64_t>());
    return {{row.at("clean_latent_size"), row.at("max_rank_with_possible_speedup")}, {size, most}};
  });
}

Outcome apply_factorization(const Json& c, const Recorded& recorded) {
  nn::Sequential model{conv(3, 8, 3, 1), nn::ReLU(),          conv(8, 16, 3, 1, 2),
                       nn::Flatten(),    nn::Linear(256, 20), nn::Linear(nn::LinearOptions(20, 10).bias(false))};
  const Json before = modules_of(*model);
  algorithms::factorize(*model, {.min_channels = c.at("min_channels"),
                                 .latent_channels = c.at("latent_channels"),
                                 .min_features = c.at("min_features"),
                                 .latent_features = c.at("latent_features")});
  Json shapes = Json::object();
  for (const auto& one : model->named_parameters()) shapes[one.key()] = one.value().sizes().vec();
  fill(*model, recorded.below("in.after_surgery."));
  return judge(
      c, {c.at("modules_before"), c.at("modules_after"), c.at("state_dict_shapes_after"), to_json(recorded.at("out"))},
      {before, modules_of(*model), shapes, to_json(model->forward(recorded.at("in.input")))}, model_rules(),
      Tolerance{1e-4, 1e-3});
}

Outcome alibi_slopes(const Json& c, const Recorded&) {
  return judge_rows(c, model_rules(), [](const Json& row) -> RecordedAndGot {
    return {row.at("slopes"), algorithms::alibi_head_slopes(row.at("n_heads"))};
  });
}

Outcome register_alibi(const Json& c, const Recorded& recorded) {
  return judge_tensor(c, recorded.at("out.alibi"),
                      algorithms::alibi_bias(c.at("n_heads").get<std::int64_t>(),
                                             c.at("max_token_length").get<std::int64_t>(), c.at("causal").get<bool>()));
}

Outcome alibi_batch(const Json& c, const Recorded& recorded) {
  const at::Tensor tokens = recorded.at("in.input_ids");
  const Batch cut = algorithms::alibi_cut_sequences({{"input_ids", tokens}, {"labels", tokens + 1}},
                                                    c.at("train_sequence_length_scaling").get<double>());
  return judge(c, {to_json(recorded.at("out.input_ids")), to_json(recorded.at("out.labels"))},
               {to_json(cut.at("input_ids")), to_json(cut.at("labels"))}, model_rules());
}

struct Wide final : FeedForward {
  Wide(std::int64_t in, std::int64_t out) : FeedForward("non_gated_layer", in, out, {}) {}
  at::Tensor forward(const at::Tensor& x) const { return wide(x); }
  Layer with_gate(const Gate& gate) const override { return gated(*this, gate); }
};

// What follows the gated layer is BERT's own, under BERT's names.
Outcome gated_output(const Json& c, const Recorded& recorded) {
  const std::int64_t width = c.at("d_embed");
  nn::Sequential model{Layer(std::make_shared<Wide>(width, c.at("d_ff").get<std::int64_t>()))};
  algorithms::gated_linear_units(*model, {.act_fn = c.at("act_fn").get<std::string>(),
                                          .gated_layer_bias = c.at("gated_layer_bias"),
                                          .non_gated_layer_bias = c.at("non_gated_layer_bias")});
  model->to(at::kDouble);
  nn::Module& layer = *model->children().at(0);
  fill(layer, recorded.below("in."));
  Json keys = Json::array();
  for (const Json& key : c.at("state_dict_keys"))
    if (key.get<std::string>().find("gated_layer") != std::string::npos) keys.push_back(key);
  const at::Tensor wide = at::linear(model->forward(recorded.at("in.hidden_states")), recorded.at("in.wo.weight"),
                                     recorded.at("in.wo.bias"));
  const at::Tensor got =
      at::layer_norm(wide + recorded.at("in.residual_connection"), {width}, recorded.at("in.layernorm.weight"),
                     recorded.at("in.layernorm.bias"), c.at("layernorm_eps").get<double>());
  return judge(c, {set_of(keys), to_json(recorded.at("out"))}, {keys_of(layer), to_json(got)}, model_rules(),
               tolerance_for(got));
}

template <class Apply>
Outcome low_precision(const Json& c, const Recorded& recorded, nn::Sequential model, Apply&& apply) {
  const Precision precision = parse_precision(c.at("precision").get<std::string>());
  fill(*model, recorded.below("in."));
  std::forward<Apply>(apply)(*model, precision);
  const at::NoGradGuard no_grad;
  std::optional<test::Bf16Autocast> autocast;
  if (c.at("cpu_autocast_bf16").get<bool>()) autocast.emplace();
  const at::Tensor got = model->forward(recorded.at("in.input"));
  const bool low = got.scalar_type() == at::kBFloat16;
  return judge(c, {c.at("modules_after"), c.at("out_dtype"), to_json(recorded.at("out"))},
               {modules_of(*model), low ? "torch.bfloat16" : "torch.float32", to_json(got.to(at::kFloat))},
               model_rules(), low ? Tolerance{0.01, 0.01} : tolerance_for(got));
}

Outcome low_precision_layernorm(const Json& c, const Recorded& recorded) {
  return low_precision(c, recorded, nn::Sequential(nn::Linear(6, 6), nn::LayerNorm(nn::LayerNormOptions({6}))),
                       algorithms::low_precision_layernorm);
}
Outcome low_precision_groupnorm(const Json& c, const Recorded& recorded) {
  return low_precision(c, recorded, nn::Sequential(nn::Linear(6, 6), nn::GroupNorm(3, 6)),
                       algorithms::low_precision_groupnorm);
}

Outcome apply_channels_last(const Json& c, const Recorded&) {
  nn::Sequential model{conv(2, 3, 3, 0), nn::BatchNorm2d(3)};
  const auto layout = [&] {
    Json strides = Json::object(), shapes = Json::object();
    for (const auto& one : model->named_parameters()) {
      strides[one.key()] = one.value().strides().vec();
      shapes[one.key()] = one.value().sizes().vec();
    }
    return Json::array({shapes, strides});
  };
  Json got = layout();
  algorithms::channels_last(*model);
  got.push_back(layout()[1]);
  return judge(c, {c.at("shapes"), c.at("strides_before"), c.at("strides_after")}, got, model_rules());
}

}  // namespace

const Rules& model_rules() {
  static const Rules all = {
      {.name = "weight_standardization_is_required",
       .applies_to = "`WeightStandardization` when a checkpoint is loaded",
       .composer_does = "Does not require it, although the names of parameters have changed.",
       .we_do = "It is required, as for every algorithm that changes the names of parameters.",
       .why = "Without it the weights could not be loaded, and the message would name parameters, not the reason.",
       .matches = [](const Json& c) { return c.value("function", "") == "WeightStandardization constructor"; },
       .ours =
           [](Json& expected, const Json&) {
             for (Json& row : expected) row["required_on_load"] = true;
           }},
  };
  return all;
}

Handlers model_handlers() {
  return {{"SqueezeExcite2d", squeeze_excite_2d},
          {"apply_squeeze_excite", apply_squeeze_excite},
          {"apply_blurpool", apply_blurpool},
          {"_standardize_weights", standardize_weights},
          {"apply_weight_standardization", apply_weight_standardization},
          {"factorize_matrix", factorize_matrix},
          {"factorize_conv2d", factorize_conv2d},
          {"FactorizedLinear.set_rank", set_rank},
          {"_clean_latent_size, _max_rank_with_possible_speedup, factorizing_could_speedup", factorize_ranks},
          {"apply_factorization", apply_factorization},
          {"_get_alibi_head_slopes", alibi_slopes},
          {"register_alibi", register_alibi},
          {"Alibi at after_dataloader", alibi_batch},
          {"BERTGatedFFOutput", gated_output},
          {"apply_low_precision_layernorm", low_precision_layernorm},
          {"apply_low_precision_groupnorm", low_precision_groupnorm},
          {"apply_channels_last", apply_channels_last}};
}

}  // namespace composer::replay
