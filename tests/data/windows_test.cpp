// Windows of series: properties of many random problems.
#include "composer/data/windows.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/split.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

namespace composer::windows_test {

using data::split_by_time;
using data::WindowOptions;
using data::Windows;
using data::windows;
using test::numbers_of;
using Rows = std::vector<std::int64_t>;

namespace {

struct Problem {
  Batch rows;  // "input" [T, 2]: the number of the row in its column 0; "id", "time"
  WindowOptions options;
  std::map<std::int64_t, Rows> series;  // the rows of each in the order of time
};

Problem problem(std::uint64_t number) {
  RandomStream random(number);
  const auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random.below(bound)); };
  Rows ids, times;
  const std::int64_t count = 1 + below(4);
  for (std::int64_t one = 0; one < count; ++one)
    for (std::int64_t i = 0, rows = 20 + below(40); i < rows; ++i) {
      ids.push_back(one * 5 - 3);
      times.push_back(i * 3);
    }
  if (number % 2 == 1)  // in any order
    for (std::size_t i = ids.size(); i > 1; --i) {
      const std::size_t other = random.below(i);
      std::swap(ids[i - 1], ids[other]);
      std::swap(times[i - 1], times[other]);
    }
  const auto rows = static_cast<std::int64_t>(ids.size());
  Problem made;
  made.rows = Batch{{"input", at::stack({at::arange(rows), at::arange(rows).mul(-1)}, 1)},
                    {"id", at::tensor(ids, at::kLong)},
                    {"time", at::tensor(times, at::kLong)}};
  made.options = {.length = 1 + below(6), .horizon = below(4), .gap = below(3), .stride = 1 + below(3)};
  made.options.series = "id";
  if (number % 2 == 1 || number % 4 == 0) made.options.time = "time";
  for (std::int64_t row = 0; row < rows; ++row) made.series[ids[static_cast<std::size_t>(row)]].push_back(row);
  for (auto& [id, list] : made.series)
    std::ranges::sort(list, {}, [&](std::int64_t row) { return times[static_cast<std::size_t>(row)]; });
  return made;
}

Rows column(const at::Tensor& window) { return numbers_of(window.select(1, 0)); }

// What the samples of the windows must be, one after another: the rows of inputs and of targets.
std::vector<std::pair<Rows, Rows>> expected_windows(const Problem& p) {
  const auto& o = p.options;
  std::vector<std::pair<Rows, Rows>> all;
  for (const auto& [id, rows] : p.series) {
    const auto at = [&, list = rows](std::int64_t from, std::int64_t count) {
      return Rows(list.begin() + from, list.begin() + from + count);
    };
    const std::int64_t span = o.length + (o.horizon > 0 ? o.gap + o.horizon : 0);
    for (std::int64_t from = 0; from + span <= static_cast<std::int64_t>(rows.size()); from += o.stride)
      all.emplace_back(at(from, o.length), o.horizon > 0 ? at(from + o.length + o.gap, o.horizon) : Rows{});
  }
  return all;
}

std::vector<std::pair<Rows, Rows>> samples_of(const Windows& all) {
  std::vector<std::pair<Rows, Rows>> samples;
  for (std::int64_t i = 0; i < all.size(); ++i) {
    const data::Sample sample = all.get(i);
    samples.emplace_back(column(sample["input"]), sample.contains("target") ? column(sample["target"]) : Rows{});
  }
  return samples;
}

}  // namespace

TEST_CASE("Windows are all stretches of each series in the order of time, and none spans two series") {
  for (std::uint64_t number = 0; number < 200; ++number) {
    CAPTURE(number);
    const Problem p = problem(number);
    const Windows all = windows(p.rows, p.options);
    const auto expected = expected_windows(p);
    CHECK(samples_of(all) == expected);
    Rows targets;
    for (const auto& [input, target] : expected) targets.insert(targets.end(), target.begin(), target.end());
    if (p.options.horizon > 0) CHECK(numbers_of(all.target_rows()) == targets);
  }
}

TEST_CASE("Windows of ordered rows are views, and targets have the columns asked for") {
  const at::Tensor rows = at::arange(40, at::kFloat).view({10, 4});
  const data::Sample sample = windows(rows, {.length = 3, .horizon = 2, .target_columns = {3, 1}}).get(2);
  CHECK(sample["input"].is_alias_of(rows));
  CHECK(sample["input"].equal(rows.slice(0, 2, 5)));
  CHECK(sample["target"].equal(at::tensor({23.0F, 21.0F, 27.0F, 25.0F}).view({2, 2})));
  const Batch both{{"load", at::arange(10)}, {"price", at::arange(10).mul(2)}};
  const Windows of_both = windows(both, {.length = 4, .horizon = 1, .input = "load", .target = "price"});
  CHECK(of_both.size() == 6);
  CHECK(numbers_of(of_both.get(5)["input"]) == Rows{5, 6, 7, 8});
  CHECK(of_both.get(5)["input"].sizes() == at::IntArrayRef{4, 1});
  CHECK(numbers_of(of_both.get(5)["target"]) == Rows{18});
}

TEST_CASE("A loader of windows gives the samples of the data set, shuffled, drawn, ahead or in order") {
  for (std::uint64_t number = 0; number < 60; ++number) {
    CAPTURE(number);
    const Problem p = problem(number);
    const Windows all = windows(p.rows, p.options);
    data::InMemoryOptions options{.batch_size = 1 + static_cast<std::int64_t>(number % 7),
                                  .shuffle = number % 3 > 0,
                                  .prefetch = static_cast<std::int64_t>(number % 2)};
    data::MapStyleOptions slow{.batch_size = options.batch_size, .shuffle = options.shuffle};
    if (number % 3 == 2) {
      options.weights = slow.weights = at::rand({all.size()});
      options.samples_per_epoch = slow.samples_per_epoch = 40;
    }
    const auto loader = data::in_memory(all, options);
    const auto by_sample = data::map_style(all, slow);
    CHECK(loader->num_batches() == by_sample->num_batches());
    for (const std::int64_t epoch : {0, 1}) {
      loader->seek(epoch, 0);
      by_sample->seek(epoch, 0);
      while (const auto batch = by_sample->next()) {
        const auto fast = loader->next();
        REQUIRE(fast);
        CHECK(fast->size() == batch->size());
        for (const auto& [name, tensor] : *batch) CHECK(fast->at(name).equal(tensor));
      }
      CHECK_FALSE(loader->next());
    }
  }
}

TEST_CASE("Parts by time share no row, or with history only inputs of the later with the earlier") {
  for (std::uint64_t number = 0; number < 200; ++number) {
    CAPTURE(number);
    const Problem p = problem(number);
    const Windows all = windows(p.rows, p.options);
    const std::int64_t gap = static_cast<std::int64_t>(number % 3);
    for (const bool history : {false, true}) {
      std::optional<std::array<Windows, 2>> parts;
      try {
        parts = split_by_time(all, {0.7, 0.3}, {.gap = gap, .history = history});
      } catch (const DataError&) {  // the second part is too short for a window
        continue;
      }
      const auto& [train, test] = *parts;
      std::set<std::int64_t> seen;                // by training
      std::map<std::int64_t, std::int64_t> last;  // of training, in each series
      std::map<std::int64_t, std::int64_t> place, series_of;
      for (const auto& [id, rows] : p.series)
        for (std::size_t i = 0; i < rows.size(); ++i) {
          place[rows[i]] = static_cast<std::int64_t>(i);
          series_of[rows[i]] = id;
        }
      const auto due = [&](const auto& samples) {  // how many windows there must be, by a second computation
        std::map<std::int64_t, std::int64_t> counts;
        for (const auto& [input, target] : samples) ++counts[series_of[input[0]]];
        return counts;
      };
      for (const auto& [input, target] : samples_of(train)) {
        for (const std::int64_t row : input) seen.insert(row);
        for (const std::int64_t row : target) seen.insert(row);
      }
      std::map<std::int64_t, std::int64_t> train_due, test_due;
      for (const auto& [input, target] : expected_windows(p)) {
        const std::int64_t id = series_of[input[0]];
        const auto cut = static_cast<std::int64_t>(0.7 * static_cast<double>(p.series.at(id).size()) + 0.5 + 1e-9);
        const std::int64_t end = place[target.empty() ? input.back() : target.back()];
        const std::int64_t begin = place[history && !target.empty() ? target.front() : input.front()];
        if (end < cut - gap) ++train_due[id];
        if (begin >= cut) ++test_due[id];
      }
      CHECK(due(samples_of(train)) == train_due);
      CHECK(due(samples_of(test)) == test_due);
      for (const auto& [input, target] : samples_of(test)) {
        for (const std::int64_t row : target) CHECK_FALSE(seen.contains(row));
        if (!history || target.empty())
          for (const std::int64_t row : input) CHECK_FALSE(seen.contains(row));
      }
    }
  }
}

TEST_CASE("Windows are divided and chosen like other data") {
  const Windows all = windows(at::arange(30), {.length = 3, .horizon = 1});
  const auto [train, test] = data::split(all, {0.5, 0.5}, {.shuffle = false});
  CHECK(train.size() == 14);
  CHECK(numbers_of(test.get(0)["input"]) == Rows{14, 15, 16});
  CHECK(data::k_folds(all, 3)[1].test.size() == 9);
  CHECK(numbers_of(subset(all, at::tensor({4, 0}, at::kLong)).target_rows()) == Rows{7, 3});
}

TEST_CASE("Windows that no series can have, and rows that contradict each other, are errors") {
  const at::Tensor rows = at::arange(10);
  CHECK_THROWS_WITH_AS(windows(rows, {.length = 8, .horizon = 3}),
                       "windows: a window has 11 rows (length, gap and horizon), and the longest series has 10",
                       DataError);
  CHECK_THROWS_WITH_AS(windows(rows, {}), "windows: length must be >= 1 rows, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(windows(rows, {.length = 1, .target_columns = {0}}),
                       "windows: target and target_columns need a horizon", ConfigError);
  CHECK_THROWS_WITH_AS(windows(rows, {.length = 1, .horizon = 1, .target_columns = {1}}),
                       "windows: target_columns has 1, and the columns of \"input\" are 0 to 0", ConfigError);
  CHECK_THROWS_WITH_AS(windows(at::zeros({3, 2, 2}), {.length = 1}),
                       "windows: \"input\" must have the shape [T, F] or [T], got [3, 2, 2]", DataError);
  CHECK_THROWS_WITH_AS(windows(rows, {.length = 1, .time = rows.div(2, "floor")}),
                       doctest::Contains("windows: time: rows 0 and 1 of one series have the same time, 0"), DataError);
  CHECK_THROWS_WITH_AS(windows(rows, {.length = 1, .series = "shop"}), doctest::Contains("shop"), DataError);
  CHECK_THROWS_WITH_AS(windows(rows, {.length = 1, .series = ""}),
                       doctest::Contains("windows: series: is given, and is an undefined tensor or an empty name"),
                       ConfigError);
  const Windows all = windows(rows, {.length = 4});
  CHECK_THROWS_WITH_AS(split_by_time(all, {0.9, 0.1}),
                       doctest::Contains("part 1 of 2, a fraction of 0.1, has no window of 4 rows in any series"),
                       DataError);
  CHECK_THROWS_WITH_AS(split_by_time(all, {0.9, 0.2}), doctest::Contains("split_by_time: the fractions must add up"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(data::in_memory(all, {.batch_size = 2, .flip = true}), doctest::Contains("are for images"),
                       ConfigError);
}

}  // namespace composer::windows_test
