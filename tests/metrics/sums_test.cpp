// What every metric that can be made by name promises of visit_sums() and visit_rows(), for random data split over
// several copies.
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/metric_parts.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/metrics/registry.h"
#include "tests/metrics/kinds.h"
#include "tests/support/doctest.h"

namespace composer::sums_test {

using test::accepts, test::Kind, test::kinds, test::settings_of, test::Step;

namespace {

// Rows are the sums of metrics that keep rows: they are put one after the other.
struct NamedSums {
  std::vector<std::pair<std::string, at::Tensor>> sums;
  std::vector<std::pair<std::string, std::vector<at::Tensor>>> rows;
  bool empty() const { return sums.empty() && rows.empty(); }
};

using Steps = std::vector<Step>;

// Copies of the sums as they are now.
NamedSums sums_of(Metric& metric) {
  NamedSums all;
  metric.visit_sums([&](std::string_view name, at::Tensor& sum) {
    all.sums.emplace_back(name, sum.defined() ? sum.clone() : at::Tensor());
  });
  if (auto* keeper = dynamic_cast<KeepsRows*>(&metric))
    keeper->visit_rows(
        [&](std::string_view name, std::vector<at::Tensor>& rows) { all.rows.emplace_back(name, rows); });
  return all;
}

void set_sums(Metric& metric, const NamedSums& all) {
  const auto& sums = all.sums;
  std::size_t next = 0;
  metric.visit_sums([&](std::string_view name, at::Tensor& sum) {
    REQUIRE(next < sums.size());
    REQUIRE(sums[next].first == name);
    sum = sums[next++].second;
  });
  CHECK(next == sums.size());
  if (auto* keeper = dynamic_cast<KeepsRows*>(&metric))
    keeper->visit_rows([&, next_rows = std::size_t{0}](std::string_view name, std::vector<at::Tensor>& rows) mutable {
      REQUIRE(next_rows < all.rows.size());
      REQUIRE(all.rows[next_rows].first == name);
      rows = all.rows[next_rows++].second;
    });
}

// What a reduction over processes does: undefined sums count nothing.
NamedSums added(const NamedSums& a, const NamedSums& b) {
  REQUIRE(a.sums.size() == b.sums.size());
  REQUIRE(a.rows.size() == b.rows.size());
  NamedSums all;
  for (std::size_t i = 0; i < a.sums.size(); ++i) {
    REQUIRE(a.sums[i].first == b.sums[i].first);
    const auto& [name, left] = a.sums[i];
    const at::Tensor& right = b.sums[i].second;
    all.sums.emplace_back(name, !left.defined() ? right : !right.defined() ? left : left + right);
  }
  for (std::size_t i = 0; i < a.rows.size(); ++i) {
    REQUIRE(a.rows[i].first == b.rows[i].first);
    all.rows.push_back(a.rows[i]);
    all.rows.back().second.insert(all.rows.back().second.end(), b.rows[i].second.begin(), b.rows[i].second.end());
  }
  return all;
}

std::string text_of(const Settings& settings) {
  std::string text;
  for (const auto& [option, value] : settings) text += option + "=" + value + " ";
  return text;
}

std::shared_ptr<Metric> seen(const Metric& like, const Steps& steps) {
  std::shared_ptr<Metric> metric = like.fresh();
  for (const auto& [outputs, batch] : steps) metric->update(outputs, batch);
  return metric;
}

void check_same(const Metric& a, const Metric& b, double tolerance) {
  const at::Tensor x = a.compute(), y = b.compute();
  CHECK(at::allclose(x, y, tolerance, /*atol=*/0, /*equal_nan=*/true));
}

void check_sums(const Metric& metric, const Kind& kind, at::ScalarType type, std::mt19937& random) {
  const auto up_to = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  const std::size_t copies = 1 + static_cast<std::size_t>(up_to(4));
  Steps all;
  std::vector<Steps> parts(copies);  // some stay empty
  for (std::int64_t batches = up_to(6); batches > 0; --batches) {
    all.push_back(kind.draw(1 + up_to(8), type));
    parts[static_cast<std::size_t>(up_to(static_cast<std::int64_t>(copies) - 1))].push_back(all.back());
  }
  const std::shared_ptr<Metric> whole = seen(metric, all);

  NamedSums total = sums_of(*seen(metric, parts[0]));
  REQUIRE_FALSE(total.empty());
  for (std::size_t i = 1; i < copies; ++i) total = added(total, sums_of(*seen(metric, parts[i])));
  const std::shared_ptr<Metric> reduced = metric.fresh();
  set_sums(*reduced, total);
  check_same(*whole, *reduced, 1e-12);

  // stored and loaded, and what is added after that; the stored sums are not those that it goes on adding to
  const std::shared_ptr<Metric> loaded = metric.fresh();
  set_sums(*loaded, sums_of(*whole));
  check_same(*whole, *loaded, 0);
  const Step more = kind.draw(2, type);
  whole->update(more.outputs, more.batch);
  loaded->update(more.outputs, more.batch);
  check_same(*whole, *loaded, 0);

  loaded->reset();
  CHECK(std::isnan(loaded->compute().item<double>()));
  set_sums(*loaded, total);
  check_same(*reduced, *loaded, 0);
}

}  // namespace

TEST_CASE("The sums of every metric made by name add up over any split of the batches") {
  at::manual_seed(17);
  std::mt19937 random(17);
  for (const std::string& key : metrics::registry().names()) {
    CAPTURE(key);
    const auto& entry = metrics::registry().find(key);
    for (const Settings& settings : settings_of(entry)) {
      CAPTURE(text_of(settings));
      const Metrics list = entry.make(settings);
      const Metric& metric = **list.begin();
      int kinds_seen = 0;
      for (const Kind& kind : kinds()) {
        CAPTURE(std::string(kind.name));
        if (!accepts(metric, kind)) continue;
        ++kinds_seen;
        for (int run = 0; run < 12; ++run)
          for (const at::ScalarType type : {at::kFloat, at::kDouble}) check_sums(metric, kind, type, random);
      }
      CHECK(kinds_seen > 0);
    }
  }
}

TEST_CASE("LossMetric names its sums") {
  std::mt19937 random(3);
  const auto mse = [](const at::Tensor& x, const at::Tensor& y) { return (x - y).square().mean(); };
  for (const bool mean_of_batches : {false, true}) {
    const metrics::LossMetric metric({.loss_function = mse, .mean_of_batches = mean_of_batches});
    for (int run = 0; run < 12; ++run) check_sums(metric, kinds()[5], at::kFloat, random);
  }
}

TEST_CASE("The sums of a metric have names of their own, the same before the first batch and after") {
  for (const std::string& key : metrics::registry().names()) {
    CAPTURE(key);
    const auto& entry = metrics::registry().find(key);
    for (const Settings& settings : settings_of(entry)) {
      const Metrics list = entry.make(settings);
      Metric& metric = **list.begin();
      for (const Kind& kind : kinds()) {
        if (!accepts(metric, kind)) continue;
        const NamedSums before = sums_of(*metric.fresh()), after = sums_of(*seen(metric, {kind.draw(3, at::kFloat)}));
        std::map<std::string, bool> defined;
        for (const auto& [name, sum] : after.sums) CHECK(defined.emplace(name, sum.defined()).second);
        for (const auto& [name, rows] : after.rows) CHECK(defined.emplace(name, !rows.empty()).second);
        CHECK_FALSE(defined.empty());
        REQUIRE(before.sums.size() == after.sums.size());
        for (std::size_t i = 0; i < before.sums.size(); ++i) {
          const auto& [name, sum] = after.sums[i];
          CHECK(before.sums[i].first == name);
          CHECK_FALSE(before.sums[i].second.defined());
          CHECK(sum.defined());
          CHECK((sum.scalar_type() == at::kLong || sum.scalar_type() == at::kDouble));
        }
        REQUIRE(before.rows.size() == after.rows.size());
        for (std::size_t i = 0; i < before.rows.size(); ++i) {
          CHECK(before.rows[i].first == after.rows[i].first);
          CHECK(before.rows[i].second.empty());
          REQUIRE_FALSE(after.rows[i].second.empty());
          CHECK((after.rows[i].second.front().scalar_type() == at::kDouble));
        }
      }
    }
  }
}

}  // namespace composer::sums_test
