// algorithms.json: what the functions of the algorithms make of recorded tensors and random numbers.
#include "tests/replay/algorithms.h"

#include <algorithm>
#include <map>
#include <string>

#include <ATen/ATen.h>

#include "composer/algorithms/cutout.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/registry.h"
#include "tests/replay/errors.h"
#include "tests/replay/make.h"
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
                const double threshold = c.at("clipping_threshold");
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
  RandomLog random(c.at("random_log"));
  Json got = Json::array();
  for (std::size_t i = 0; i < c.at("coefficients").size(); ++i)
    got.push_back(algorithms::gen_mixing_coef(c.at("alpha"), [&](double a, double b) -> double {
      return random.next("np.random.beta", {a, b});
    }));
  if (!random.is_used_up()) return wrong("fewer random numbers were drawn than recorded");
  return judge(c, c.at("coefficients"), got, algorithms_rules());
}

Outcome cutout_batch(const Json& c, const Recorded& tensors) {
  RandomLog random(c.at("random_log"));
  const at::Tensor input = tensors.at("in.input");
  const auto holes =
      algorithms::cutout_holes(input.size(-2), input.size(-1),
                               {.num_holes = c.at("num_holes"),
                                .length = c.at("length"),
                                .uniform_sampling = c.value("uniform_sampling", false)},
                               [&](std::int64_t low, std::int64_t high) { return random.integer(low, high); });
  if (!random.is_used_up()) return wrong("fewer random numbers were drawn than recorded");
  return judge(c, to_json(tensors.at("out.input")), to_json(algorithms::cutout_batch(input, holes)),
               algorithms_rules());
}

Json clip(const Json& c, const Recorded& tensors, double min_weight_norm) {
  const std::map<std::string, algorithms::ClippingType> types = {{"norm", algorithms::ClippingType::NORM},
                                                                 {"value", algorithms::ClippingType::VALUE},
                                                                 {"adaptive", algorithms::ClippingType::ADAPTIVE}};
  const std::string type = c.at("clipping_type");
  const double threshold = c.at("clipping_threshold");
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

// The name in the registry for the class of each algorithm.
const std::map<std::string, std::string> kEntries = {{"Alibi", "alibi"},
                                                     {"AugMix", "augmix"},
                                                     {"BlurPool", "blurpool"},
                                                     {"ChannelsLast", "channels_last"},
                                                     {"ColOut", "colout"},
                                                     {"CutMix", "cutmix"},
                                                     {"CutOut", "cutout"},
                                                     {"EMA", "ema"},
                                                     {"Factorize", "factorize"},
                                                     {"GatedLinearUnits", "gated_linear_units"},
                                                     {"GhostBatchNorm", "ghost_batchnorm"},
                                                     {"GradientClipping", "gradient_clipping"},
                                                     {"GyroDropout", "gyro_dropout"},
                                                     {"LabelSmoothing", "label_smoothing"},
                                                     {"LayerFreezing", "layer_freezing"},
                                                     {"LowPrecisionLayerNorm", "low_precision_layernorm"},
                                                     {"MixUp", "mixup"},
                                                     {"NoOpModel", "no_op_model"},
                                                     {"ProgressiveResizing", "progressive_resizing"},
                                                     {"RandAugment", "randaugment"},
                                                     {"SAM", "sam"},
                                                     {"SelectiveBackprop", "selective_backprop"},
                                                     {"SeqLengthWarmup", "seq_length_warmup"},
                                                     {"SWA", "swa"},
                                                     {"SqueezeExcite", "squeeze_excite"},
                                                     {"StochasticDepth", "stochastic_depth"},
                                                     {"WeightStandardization", "weight_standardization"}};

// The flags of each row of constructor arguments, or its error. `find_unused_parameters` and `backwards_create_graph`
// are for wrappers of models that are not there; a text that makes the object again is Python's.
Outcome construct(const Json& c, const Recorded&) {
  const std::string function = c.at("function");
  const std::string name = function.substr(0, function.find(' '));
  return judge_rows(c, algorithms_rules(), [&](const Json& row) -> RecordedAndGot {
    Json want = without_message(row.at("result")), arguments = row.at("kwargs");
    for (const char* of_python : {"repr", "find_unused_parameters", "backwards_create_graph"}) want.erase(of_python);
    arguments.erase("target_layer_name");
    return {want, result_of(want, [&]() -> Json {
              return {{"required_on_load", make_algorithm(name, settings_of(arguments))->required_on_load()}};
            })};
  });
}

Outcome run_algorithms(const Json& c, const Context& context) {
  static const Handlers all = [] {
    Handlers handlers = {{"smooth_labels", smooth_labels},
                         {"cutout_batch", cutout_batch},
                         {"mixup_batch", mixup_batch},
                         {"_gen_mixing_coef", gen_mixing_coef},
                         {"apply_gradient_clipping", apply_gradient_clipping}};
    for (const Handlers& more : {augmentation_handlers(), depth_handlers(), image_handlers(), model_handlers(),
                                 surgery_handlers(), training_handlers()})
      handlers.insert(more.begin(), more.end());
    for (const auto& [name, entry] : kEntries) handlers.emplace(name + " constructor", construct);
    return handlers;
  }();
  const auto found = all.find(c.at("function").get<std::string>());
  if (found == all.end()) return unsupported(c.at("function"));
  return found->second(c, Recorded(c, context));
}

}  // namespace

Settings settings_of(const Json& arguments) {
  Settings settings;
  for (const auto& [name, value] : arguments.items())
    if (name != "class")
      settings[name] = value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
  return settings;
}

std::shared_ptr<Algorithm> make_algorithm(const std::string& name, const Settings& settings) {
  const auto entry = kEntries.find(name);
  if (entry == kEntries.end()) throw Unsupported{"algorithm " + name};
  return algorithms::registry().find(entry->second).make(settings).list().front().object;
}

Suite algorithms_suite() {
  Rules all = algorithms_rules();
  for (const Rule& rule : training_algorithm_rules()) all.push_back(rule);
  return {"algorithms.json", "Algorithms", run_algorithms, all};
}

}  // namespace composer::replay
