// algorithms.json: what the functions of the algorithms make of recorded tensors and random numbers.
#include <algorithm>
#include <map>
#include <string>

#include <ATen/ATen.h>

#include "composer/algorithms/cutout.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/registry.h"
#include "tests/replay/algorithms_augmentations.h"
#include "tests/replay/algorithms_depth.h"
#include "tests/replay/algorithms_images.h"
#include "tests/replay/algorithms_models.h"
#include "tests/replay/algorithms_surgery.h"
#include "tests/replay/algorithms_training.h"
#include "tests/replay/errors.h"
#include "tests/replay/recorded.h"
#include "tests/replay/replay.h"

namespace composer::replay {
namespace {

// Of a recorded case, or for the page of differences.
Rule weights_have_a_smallest_norm(const Recorded* tensors) {
  return {.name = "weights_have_a_smallest_norm",
          .applies_to = "Adaptive clipping of the gradient of weights that are zero, or almost",
          .composer_does = "Makes it zero, so that a head or a bias that begins at zero stays there for the whole run.",
          .we_do = "Takes 0.001 for the norm of smaller weights; with `min_weight_norm` 0 it does what Composer does.",
          .why = "It is what the paper says, and a model is trained.",
          .matches = [](const Json& c) { return c.value("clipping_type", "") == "adaptive" && c["error"].is_null(); },
          .ours =
              [tensors](Json& expected, const Json& c) {
                const auto threshold = c.at("clipping_threshold").get<double>();
                for (std::size_t i = 0; i < expected.size(); ++i) {
                  const auto name = c.at("parameter_order").at(i).get<std::string>();
                  const at::Tensor weight = tensors->at("in.weight." + name);
                  if (weight.norm().item<double>() >= 1e-3 || !tensors->contains("in.grad." + name)) continue;
                  const at::Tensor gradient = tensors->at("in.grad." + name);
                  const double factor = threshold * 1e-3 / gradient.norm().item<double>();
                  expected[i] = to_json(gradient * std::min(factor, 1.0));
                }
              }};
}

Rules all_rules() {
  Rules all = {
      weights_have_a_smallest_norm(nullptr),
      {.name = "ignored_targets_stay_without_probability",
       .applies_to = "Label smoothing of a target with a negative class, as -100",
       .composer_does =
           "Gives it `smoothing / num_classes` of every class, so padding is trained towards uniform outputs.",
       .we_do = "Gives it zeros, so it has no share in the loss and no gradient.",
       .why = "`cross_entropy` with `label_smoothing` leaves ignored targets out as well.",
       .matches = [](const Json& c) { return c.value("target_kind", "") == "index_neg"; },
       .ours =
           [](Json& expected, const Json&) {  // samples whose classes are all alike
             const auto classes = expected["shape"].at(1).get<std::size_t>();
             Json& values = expected["values"];
             for (std::size_t from = 0; from < values.size(); from += classes) {
               bool uniform = true;
               for (std::size_t i = 1; i < classes; ++i) uniform = uniform && values[from + i] == values[from];
               for (std::size_t i = 0; uniform && i < classes; ++i) values[from + i] = 0.0;
             }
           }},
  };
  for (const Rules& more : {model_rules(), depth_rules(), image_rules()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}
const Rules& algorithms_rules() {
  static const Rules all = all_rules();
  return all;
}

constexpr Tolerance kSingle{1e-6, 1e-7};

Outcome smooth_labels(const Json& c, const Recorded& tensors) {
  const at::Tensor got =
      algorithms::smooth_labels(tensors.at("in.logits"), tensors.at("in.target"), c.at("smoothing").get<double>());
  return judge(c, to_json(tensors.at("out")), to_json(got), algorithms_rules(), kSingle);
}

Outcome mixup_batch(const Json& c, const Recorded& tensors) {
  const auto [input, target] = algorithms::mixup_batch(tensors.at("in.input"), tensors.at("in.target"),
                                                       {c.at("mixing").get<double>(), tensors.at("in.indices")});
  return judge(c, {to_json(tensors.at("out.input")), to_json(tensors.at("out.permuted_target"))},
               {to_json(input), to_json(target)}, algorithms_rules(), kSingle);
}

Outcome gen_mixing_coef(const Json& c, const Recorded&) {
  const Json& log = c.at("random_log");
  std::size_t drawn = 0;
  Json got = Json::array();
  for (std::size_t i = 0; i < c.at("coefficients").size(); ++i)
    got.push_back(algorithms::gen_mixing_coef(c.at("alpha").get<double>(), [&](double a, double b) {
      const Json& draw = log.at(drawn++);
      if (draw.at("args") != Json({a, b})) throw std::runtime_error("other parameters were recorded");
      return draw.at("value").get<double>();
    }));
  if (drawn != log.size()) return wrong("fewer random numbers were drawn than recorded");
  return judge(c, c.at("coefficients"), got, algorithms_rules());
}

Outcome cutout_batch(const Json& c, const Recorded& tensors) {
  const Json& log = c.at("random_log");
  std::size_t drawn = 0;
  const auto sample = [&](std::int64_t low, std::int64_t high) {
    const Json& draw = log.at(drawn++);
    const auto first = draw.at("args").at(0).get<std::int64_t>();
    const bool both = draw.contains("kwargs");  // otherwise `first` is the upper bound
    if (low != (both ? first : 0) || high != (both ? draw["kwargs"].at("high").get<std::int64_t>() : first))
      throw std::runtime_error("other bounds were recorded");
    return draw.at("value").get<std::int64_t>();
  };
  const at::Tensor input = tensors.at("in.input");
  const auto holes = algorithms::cutout_holes(input.size(-2), input.size(-1),
                                              {.num_holes = c.at("num_holes").get<std::int64_t>(),
                                               .length = c.at("length").get<double>(),
                                               .uniform_sampling = c.value("uniform_sampling", false)},
                                              sample);
  if (drawn != log.size()) return wrong("fewer random numbers were drawn than recorded");
  return judge(c, to_json(tensors.at("out.input")), to_json(algorithms::cutout_batch(input, holes)),
               algorithms_rules());
}

Json clip(const Json& c, const Recorded& tensors, double min_weight_norm) {
  const std::map<std::string, algorithms::ClippingType> types = {{"norm", algorithms::ClippingType::NORM},
                                                                 {"value", algorithms::ClippingType::VALUE},
                                                                 {"adaptive", algorithms::ClippingType::ADAPTIVE}};
  const auto type = c.at("clipping_type").get<std::string>();
  const auto threshold = c.at("clipping_threshold").get<double>();
  algorithms::registry().find("gradient_clipping").make({{"clipping_type", type}, {"clipping_threshold", "1"}});

  std::vector<at::Tensor> parameters;
  for (const Json& name : c.at("parameter_order")) {
    parameters.push_back(tensors.at("in.weight." + name.get<std::string>()));
    const std::string gradient = "in.grad." + name.get<std::string>();
    if (tensors.contains(gradient)) parameters.back().mutable_grad() = tensors.at(gradient);
  }
  algorithms::apply_gradient_clipping(parameters, types.at(type), threshold, min_weight_norm);
  Json got = Json::array();
  for (const at::Tensor& parameter : parameters)
    got.push_back(parameter.grad().defined() ? to_json(parameter.grad()) : Json());
  return got;
}

Outcome apply_gradient_clipping(const Json& c, const Recorded& tensors) {
  Json recorded = Json::array();
  Tolerance tolerance{};
  if (!c.at("error").is_null()) {
    recorded = c.at("error");
  } else {
    for (const Json& name : c.at("parameter_order")) {
      const std::string key = "out.grad." + name.get<std::string>();
      recorded.push_back(tensors.contains(key) ? to_json(tensors.at(key)) : Json());
      if (tensors.contains(key) && tensors.at(key).scalar_type() == at::kFloat) tolerance = kSingle;
    }
  }
  const auto clipped = [&](double norm) { return result_of(recorded, [&] { return clip(c, tensors, norm); }); };
  const Json want = without_message(recorded);
  if (const Outcome without = judge(c, want, clipped(0), {}, tolerance); without.verdict != Verdict::EQUAL)
    return without;
  return judge(c, want, clipped(1e-3), {weights_have_a_smallest_norm(&tensors)}, tolerance);
}

// The name in the registry for the class of each algorithm whose constructor is compared.
const std::map<std::string, std::string> kConstructors = {
    {"Alibi constructor", "alibi"},
    {"AugMix constructor", "augmix"},
    {"BlurPool constructor", "blurpool"},
    {"ChannelsLast constructor", "channels_last"},
    {"ColOut constructor", "colout"},
    {"CutMix constructor", "cutmix"},
    {"CutOut constructor", "cutout"},
    {"Factorize constructor", "factorize"},
    {"GatedLinearUnits constructor", "gated_linear_units"},
    {"GhostBatchNorm constructor", "ghost_batchnorm"},
    {"GradientClipping constructor", "gradient_clipping"},
    {"GyroDropout constructor", "gyro_dropout"},
    {"LabelSmoothing constructor", "label_smoothing"},
    {"LayerFreezing constructor", "layer_freezing"},
    {"LowPrecisionLayerNorm constructor", "low_precision_layernorm"},
    {"MixUp constructor", "mixup"},
    {"NoOpModel constructor", "no_op_model"},
    {"ProgressiveResizing constructor", "progressive_resizing"},
    {"RandAugment constructor", "randaugment"},
    {"SAM constructor", "sam"},
    {"SelectiveBackprop constructor", "selective_backprop"},
    {"SeqLengthWarmup constructor", "seq_length_warmup"},
    {"SqueezeExcite constructor", "squeeze_excite"},
    {"StochasticDepth constructor", "stochastic_depth"},
    {"WeightStandardization constructor", "weight_standardization"}};

// The flags of each row of constructor arguments, or its error. `find_unused_parameters` and `backwards_create_graph`
// are for wrappers of models that are not there; a text that makes the object again is Python's.
Outcome construct(const Json& c, const std::string& entry) {
  Json recorded = Json::array(), got = Json::array();
  for (const Json& row : c.at("rows")) {
    Json want = without_message(row.at("result"));
    for (const char* of_python : {"repr", "find_unused_parameters", "backwards_create_graph"}) want.erase(of_python);
    recorded.push_back(want);
    Settings settings;
    for (const auto& [name, value] : row.at("kwargs").items())
      if (name != "target_layer_name") settings[name] = value.is_string() ? value.get<std::string>() : value.dump();
    got.push_back(result_of(want, [&]() -> Json {
      const Algorithms made = algorithms::registry().find(entry).make(settings);
      return {{"required_on_load", made.list().front().object->required_on_load()}};
    }));
  }
  return judge(c, recorded, got, algorithms_rules());
}

Outcome run_algorithms(const Json& c, const Context& context) {
  using Handler = Outcome (*)(const Json&, const Recorded&);
  static const std::map<std::string, Handler> handlers = {{"smooth_labels", smooth_labels},
                                                          {"cutout_batch", cutout_batch},
                                                          {"mixup_batch", mixup_batch},
                                                          {"_gen_mixing_coef", gen_mixing_coef},
                                                          {"apply_gradient_clipping", apply_gradient_clipping}};
  const auto function = c.at("function").get<std::string>();
  const auto found = handlers.find(function);
  if (const auto name = kConstructors.find(function); name != kConstructors.end()) return construct(c, name->second);
  for (const auto& part :
       {replay_surgery, replay_models, replay_depth, replay_training_algorithm, replay_images, replay_augmentations})
    if (const auto outcome = part(c, context)) return *outcome;
  if (found == handlers.end()) return unsupported(function);
  return found->second(c, Recorded(c, context));
}

}  // namespace

Suite algorithms_suite() {
  Rules all = algorithms_rules();
  for (const Rule& rule : training_algorithm_rules()) all.push_back(rule);
  return {"algorithms.json", "Algorithms", run_algorithms, all};
}

}  // namespace composer::replay
