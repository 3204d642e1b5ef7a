#pragma once
// The kinds of data that metrics exist for, and the metrics that can be made by name.
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/metric.h"
#include "composer/core/registry.h"
#include "composer/core/tensors.h"

namespace composer::test {

struct Step {
  Outputs outputs;
  Batch batch;
};
// Of a random size that is the same for every batch but for N.
struct Kind {
  const char* name;
  std::function<Step(std::int64_t n, at::ScalarType type)> draw;
};

inline std::vector<Kind> kinds() {
  const auto classes = [](at::IntArrayRef sizes, std::int64_t c) { return at::randint(c, sizes, at::kLong); };
  return {
      {"logits and classes",
       [=](std::int64_t n, at::ScalarType type) {
         return Step{at::randn({n, 4}, type), {{"target", classes({n}, 4)}}};
       }},
      {"logits and probabilities",
       [=](std::int64_t n, at::ScalarType type) {
         return Step{at::randn({n, 4}, type), {{"target", at::randn({n, 4}, type).softmax(1)}}};
       }},
      {"two logits and classes",
       [=](std::int64_t n, at::ScalarType type) {
         return Step{at::randn({n, 2}, type), {{"target", classes({n}, 2)}}};
       }},
      {"pixels",
       [=](std::int64_t n, at::ScalarType type) {
         return Step{at::randn({n, 4, 3, 2}, type), {{"target", classes({n, 3, 2}, 4)}}};
       }},
      {"tokens",
       [=](std::int64_t n, at::ScalarType type) {
         const at::Tensor target = classes({n, 5}, 7);
         return Step{at::randn({n, 5, 7}, type), {{"target", target.masked_fill(at::rand({n, 5}) < 0.3, -100)}}};
       }},
      {"values",
       [=](std::int64_t n, at::ScalarType type) {
         return Step{at::randn({n, 3}, type), {{"target", at::randn({n, 3}, type)}}};
       }},
      {"probabilities and answers",
       [=](std::int64_t n, at::ScalarType type) {
         return Step{at::rand({n}, type), {{"target", classes({n}, 2)}}};
       }},
      {"probabilities and answers of labels",
       [=](std::int64_t n, at::ScalarType type) {
         return Step{at::rand({n, 3}, type), {{"target", classes({n, 3}, 2)}}};
       }},
      {"token ids and their logits",
       [=](std::int64_t n, at::ScalarType type) {
         return Step{at::randn({n, 6, 3}, type), {{"target", classes({n, 2, 5}, 3)}}};
       }},
  };
}

inline bool is_allowed(const Entry<Metrics>& entry, const Settings& settings) {
  try {
    return entry.make(settings).size() == 1;
  } catch (const ConfigError&) {
    return false;
  }
}

// The metrics of an entry, with its examples, and once more with each value that an option of a few values has.
inline std::vector<Settings> settings_of(const Entry<Metrics>& entry) {
  Settings base;
  for (const OptionInfo& option : entry.options) {
    if (option.example) base[option.name] = *option.example;
    if (option.name == "num_classes") base[option.name] = std::string(1, '4');
    if (option.name == "k") base[option.name] = "1,3";
    if (option.name == "thresholds") base[option.name] = std::string(1, '5');
  }
  std::vector<Settings> all{base};
  for (const OptionInfo& option : entry.options) {
    if (option.name == "thresholds") {  // and without: exact
      all.push_back(base);
      all.back().erase(option.name);
    }
    std::string rest = option.type + " or ";
    if (rest.find(" or ") == option.type.size()) continue;  // not one of a few values
    for (std::size_t end; (end = rest.find(" or ")) != std::string::npos; rest = rest.substr(end + 4)) {
      Settings changed = base;
      changed[option.name] = rest.substr(0, end);
      if (is_allowed(entry, changed)) all.push_back(std::move(changed));
    }
  }
  return all;
}

inline bool accepts(const Metric& metric, const Kind& kind) {
  try {
    metric.fresh()->update(kind.draw(3, at::kFloat).outputs, kind.draw(3, at::kFloat).batch);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

inline double value(const Metric& metric) { return metric.compute().item<double>(); }

}  // namespace composer::test
