// Every metric on random problems of several batches of different sizes, against what torchmetrics has computed
// (torchmetrics_values.py writes torchmetrics.json), and the same batches shared by two copies.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "composer/core/metric_parts.h"
#include "composer/metrics/registry.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace composer::torchmetrics_test {
namespace {

using Json = nlohmann::json;
using Sizes = std::vector<std::int64_t>;

// The numbers that torchmetrics_values.py draws, in its order.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed * 1000003 + 12345) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::uint64_t n) { return static_cast<std::int64_t>(next() % n); }
  double unit() { return static_cast<double>(next() >> 40) / 16777216.0; }
  double bell() {
    double sum = unit();
    for (int i = 0; i < 3; ++i) sum += unit();
    return sum - 2;
  }

 private:
  std::uint64_t state_;
};

template <class Next>
at::Tensor filled(const Sizes& sizes, at::ScalarType type, const Next& next) {
  const at::Tensor all = at::zeros(sizes, at::kDouble);
  double* value = all.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < all.numel(); ++i) value[i] = next();
  return all.to(type);
}

at::Tensor scores(Draw& draw, std::uint64_t seed, const Sizes& sizes) {
  return filled(sizes, at::kDouble, [&] {
    const double value = draw.unit();
    return seed % 3 == 0 ? std::floor(value * 8) / 8 : value;
  });
}
at::Tensor values(Draw& draw, std::uint64_t seed, const Sizes& sizes) {
  return filled(sizes, at::kDouble, [&] { return draw.bell() + (seed % 4 == 0 ? 100 : 0); });
}
at::Tensor classes(Draw& draw, std::uint64_t seed, const Sizes& sizes, std::uint64_t most) {
  const std::uint64_t count = seed % 5 != 0 ? most : std::max<std::uint64_t>(1, most / 2);
  return filled(sizes, at::kLong, [&] { return static_cast<double>(draw.below(count)); });
}
at::Tensor ignored(Draw& draw, const at::Tensor& target, std::int64_t value) {
  const at::Tensor drop = filled(target.sizes().vec(), at::kBool, [&] { return draw.below(6) == 0 ? 1. : 0.; });
  return target.masked_fill(drop, value);
}

std::pair<at::Tensor, at::Tensor> batch(const std::string& kind, Draw& draw, std::uint64_t seed, std::int64_t n) {
  const auto pair = [](const auto& first, const auto& second) {  // in this order
    at::Tensor outputs = first();
    at::Tensor target = second(outputs);
    return std::pair(outputs, target);
  };
  const bool drops = kind.ends_with(", ignored");
  const std::string base = drops ? kind.substr(0, kind.size() - 9) : kind;
  const auto of_classes = [&](const Sizes& sizes, std::uint64_t most, std::int64_t dropped) {
    return [&draw, seed, sizes, most, dropped, drops](const at::Tensor&) {
      const at::Tensor target = classes(draw, seed, sizes, most);
      return drops ? ignored(draw, target, dropped) : target;
    };
  };
  const auto of_scores = [&](const Sizes& sizes) { return [&draw, seed, sizes] { return scores(draw, seed, sizes); }; };
  const auto of_values = [&](const Sizes& sizes) { return [&draw, sizes] { return values(draw, 1, sizes); }; };
  if (base == "scores") return pair(of_scores({n}), of_classes({n}, 2, -1));
  if (base == "classes") return pair(of_values({n, 4}), of_classes({n}, 4, 1));
  if (base == "class scores") return pair(of_scores({n, 4}), of_classes({n}, 4, 1));
  if (base == "labels") return pair(of_scores({n, 3}), of_classes({n, 3}, 2, -1));
  if (base == "sequences") return pair(of_values({n, 3, 2}), of_classes({n, 2}, 3, -1));
  if (base == "pixels") return pair(of_values({n, 4, 3, 2}), of_classes({n, 3, 2}, 4, -1));
  if (base == "tokens") {
    const std::int64_t length = 1 + draw.below(12), wanted = 1 + draw.below(12);
    const auto tokens = [&](const Sizes& sizes) { return ignored(draw, classes(draw, 1, sizes, 3), -100); };
    return pair([&] { return tokens({n, length}); }, [&](const at::Tensor&) { return tokens({n, 2, wanted}); });
  }
  REQUIRE((base == "values" || base == "rows"));
  const Sizes sizes = base == "values" ? Sizes{n} : Sizes{n, 3};
  return pair([&] { return values(draw, seed, sizes); },
              [&](const at::Tensor& outputs) { return outputs + values(draw, 1, sizes); });
}

std::vector<std::pair<at::Tensor, at::Tensor>> batches(const std::string& kind, std::uint64_t seed) {
  Draw draw(seed);
  std::vector<std::pair<at::Tensor, at::Tensor>> all;
  for (std::int64_t count = 1 + draw.below(4); count > 0; --count) {
    const std::int64_t n = 1 + draw.below(9);
    all.push_back(batch(kind, draw, seed, n));
  }
  return all;
}

std::shared_ptr<Metric> made(const Json& one) {
  Settings settings;
  for (const auto& [option, text] : one["settings"].items()) settings[option] = text.get<std::string>();
  const Metrics list = metrics::registry().find(one["metric"].get<std::string>()).make(settings);
  return *list.begin();
}

// Adds the sums of `other` to those of `metric`, and its rows after those of `metric`, as several ranks do.
void merge(Metric& metric, Metric& other) {
  std::vector<at::Tensor> sums;
  other.visit_sums([&](std::string_view, at::Tensor& sum) { sums.push_back(sum); });
  std::size_t next = 0;
  metric.visit_sums([&](std::string_view, at::Tensor& sum) {
    const at::Tensor& more = sums[next++];
    sum = !sum.defined() ? more : !more.defined() ? sum : sum + more;
  });
  auto* keeper = dynamic_cast<KeepsRows*>(&metric);
  if (!keeper) return;
  std::vector<std::vector<at::Tensor>> rows;
  dynamic_cast<KeepsRows&>(other).visit_rows(
      [&](std::string_view, std::vector<at::Tensor>& list) { rows.push_back(list); });
  next = 0;
  keeper->visit_rows([&](std::string_view, std::vector<at::Tensor>& list) {
    list.insert(list.end(), rows[next].begin(), rows[next].end());
    ++next;
  });
}

bool is_same(double value, const Json& expected, double tolerance) {
  if (expected.is_null()) return std::isnan(value);
  const double wanted = expected.get<double>();
  return std::abs(value - wanted) <= tolerance * std::max(1., std::abs(wanted));
}

TEST_CASE("Metrics are those of torchmetrics on 100 problems each, also of two copies put together") {
  std::ifstream file(test::repository() / "tests/metrics/torchmetrics.json");
  const Json recorded = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  std::size_t compared = 0;
  for (const Json& one : recorded["cases"]) {
    const std::string what = one["metric"].get<std::string>() + " " + one["settings"].dump();
    CAPTURE(what);
    REQUIRE(one["values"].size() == 100);
    // torchmetrics adds 1e-6 to the deviations of ranks
    const double tolerance = one["metric"] == "spearman_corr_coef" ? 3e-5 : 3e-6;
    for (std::size_t seed = 0; seed < one["values"].size(); ++seed) {
      CAPTURE(seed);
      const auto metric = made(one), left = metric->fresh(), right = metric->fresh();
      bool is_left = true;
      for (const auto& [outputs, target] : batches(one["kind"].get<std::string>(), seed)) {
        metric->update(outputs, {{"target", target}});
        (is_left ? left : right)->update(outputs, {{"target", target}});
        is_left = !is_left;
      }
      const double value = metric->compute().item<double>();
      CAPTURE(value);
      CAPTURE(one["values"][seed].dump());
      if (!one["values"][seed].is_boolean()) {
        CHECK(is_same(value, one["values"][seed], tolerance));
        ++compared;
      }
      merge(*left, *right);
      CHECK(is_same(left->compute().item<double>(), std::isnan(value) ? Json() : Json(value), 1e-11));
      if (one["each"].empty() || one["each"][seed].is_boolean()) continue;
      const auto& several = dynamic_cast<const HasSeveralValues&>(*metric);
      const at::Tensor each = several.compute_values();
      REQUIRE(each.sizes() == at::IntArrayRef({static_cast<std::int64_t>(several.value_names().size())}));
      REQUIRE(each.size(0) == static_cast<std::int64_t>(one["each"][seed].size()));
      for (std::int64_t i = 0; i < each.size(0); ++i) {
        CAPTURE(i);
        CAPTURE(one["each"][seed].dump());
        CHECK(is_same(each[i].item<double>(), one["each"][seed][static_cast<std::size_t>(i)], tolerance));
      }
    }
  }
  CHECK(compared >= 10'000);
}

}  // namespace
}  // namespace composer::torchmetrics_test
