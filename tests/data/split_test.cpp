// Rows that are divided: properties of many random problems, of each kind of split.
#include "composer/data/split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"

namespace composer::data::k_folds_test {

// Rows that count how often a part of them is made.
struct Counted {
  std::int64_t rows;
  std::shared_ptr<int> made;
};
inline std::int64_t num_rows(const Counted& data) { return data.rows; }
inline Counted subset(const Counted& data, const at::Tensor& rows) {
  ++*data.made;
  return {rows.numel(), data.made};
}
inline at::Tensor column(const Counted& data, const std::string&) { return at::arange(data.rows); }

}  // namespace composer::data::k_folds_test

namespace composer::split_test {

using data::k_fold_rows;
using data::split;
using data::split_rows;
using data::SplitOptions;
using test::numbers_of;
using Rows = std::vector<std::int64_t>;

namespace {

struct Problem {
  std::int64_t rows;
  std::vector<double> fractions;
  SplitOptions options;
};

// Random sizes, fractions and seeds.
Problem problem(std::uint64_t number) {
  RandomStream random(number);
  Problem made{.rows = static_cast<std::int64_t>(20 + random.below(300)), .fractions = {}, .options = {}};
  const std::size_t parts = 1 + random.below(4);
  double sum = 0;
  for (std::size_t i = 0; i < parts; ++i) sum += made.fractions.emplace_back(0.2 + random.uniform());
  for (double& fraction : made.fractions) fraction /= sum;
  made.options.seed = random.next();
  made.options.shuffle = random.below(3) > 0;
  return made;
}

// Values from 0 to `distinct` - 1, each at least `least` times, in random order.
at::Tensor values(std::uint64_t number, std::int64_t rows, std::int64_t distinct, std::int64_t least) {
  RandomStream random(hash64(number, 1));
  Rows made;
  for (std::int64_t i = 0; i < distinct * least; ++i) made.push_back(i % distinct);
  while (static_cast<std::int64_t>(made.size()) < rows)  // smaller ones more often
    made.push_back(static_cast<std::int64_t>(random.uniform() * random.uniform() * static_cast<double>(distinct)));
  for (std::size_t i = made.size(); i > 1; --i) std::swap(made[i - 1], made[random.below(i)]);
  return at::tensor(made, at::kLong);
}

std::vector<Rows> lists(const std::vector<at::Tensor>& parts) {
  std::vector<Rows> made;
  for (const at::Tensor& part : parts) made.push_back(numbers_of(part));
  return made;
}

// Each part is ascending, and each row in exactly one.
void check_partition(const std::vector<Rows>& parts, std::int64_t rows) {
  Rows all;
  for (const Rows& part : parts) {
    CHECK_FALSE(part.empty());
    CHECK(std::ranges::is_sorted(part));
    all.insert(all.end(), part.begin(), part.end());
  }
  std::ranges::sort(all);
  Rows expected(static_cast<std::size_t>(rows));
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(all == expected);
}

std::map<std::int64_t, double> counts(const Rows& part, const Rows& value_of) {
  std::map<std::int64_t, double> made;
  for (const std::int64_t row : part) ++made[value_of[static_cast<std::size_t>(row)]];
  return made;
}

}  // namespace

TEST_CASE("Each row is in one part, parts have their fractions to within a row, and depend on the seed alone") {
  for (std::uint64_t number = 0; number < 300; ++number) {
    const auto [rows, fractions, options] = problem(number);
    CAPTURE(number);
    const auto parts = lists(split_rows(rows, fractions, options));
    check_partition(parts, rows);
    REQUIRE(parts.size() == fractions.size());
    for (std::size_t i = 0; i < parts.size(); ++i)
      CHECK(std::abs(static_cast<double>(parts[i].size()) - fractions[i] * static_cast<double>(rows)) <= 1);
    CHECK(lists(split_rows(rows, fractions, options)) == parts);
    SplitOptions other = options;
    ++other.seed;
    if (parts.size() > 1) CHECK((lists(split_rows(rows, fractions, other)) == parts) == !options.shuffle);
    if (!options.shuffle) CHECK(parts[0].back() == static_cast<std::int64_t>(parts[0].size()) - 1);
  }
}

TEST_CASE("Every row is as likely as another to be in a part") {
  std::vector<int> times(20);
  for (std::uint64_t seed = 0; seed < 4000; ++seed)
    for (const std::int64_t row : numbers_of(split_rows(20, {0.75, 0.25}, {.seed = seed})[1]))
      ++times[static_cast<std::size_t>(row)];
  for (const int count : times) CHECK(std::abs(count - 1000) < 5 * 28);  // standard deviation: 27.4
}

TEST_CASE("A stratified split gives each part its share of each class, up to one row") {
  for (std::uint64_t number = 0; number < 300; ++number) {
    auto [rows, fractions, options] = problem(number);
    CAPTURE(number);
    const at::Tensor classes = values(number, rows, 1 + static_cast<std::int64_t>(number % 5), 4);
    options.stratify = number % 3 == 0 ? classes.to(at::kDouble).div(8) : classes;
    const Rows class_of = numbers_of(classes);
    const auto parts = lists(split_rows(rows, fractions, options));
    check_partition(parts, rows);
    Rows all(static_cast<std::size_t>(rows));
    std::iota(all.begin(), all.end(), 0);
    const auto in_all = counts(all, class_of);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto in_part = counts(parts[i], class_of);
      for (const auto& [one, count] : in_all) CHECK(std::abs(in_part[one] - fractions[i] * count) < 1);
      CHECK(std::abs(static_cast<double>(parts[i].size()) - fractions[i] * static_cast<double>(rows)) <=
            (parts.size() <= 2 ? 1 : 2));
    }
    CHECK(lists(split_rows(rows, fractions, options)) == parts);
  }
  // A part whose share of a class is whole gets no more, though it lacks some of the class before.
  const at::Tensor classes = at::cat({at::zeros(5), at::ones(4)});
  for (const auto& part : split_rows(9, {0.5, 0.25, 0.25}, {.stratify = classes}))
    CHECK(classes.index_select(0, part).sum().item<int>() == (part.numel() > 3 ? 2 : 1));
}

TEST_CASE("A group is never in two parts, and no part exceeds its share by its last group") {
  for (std::uint64_t number = 0; number < 300; ++number) {
    auto [rows, fractions, options] = problem(number);
    CAPTURE(number);
    const auto groups = static_cast<std::int64_t>(fractions.size() + number % 12);
    const at::Tensor group = values(number, rows, groups, 1);
    options.groups = group;
    const Rows group_of = numbers_of(group);
    const auto parts = lists(split_rows(rows, fractions, options));
    check_partition(parts, rows);
    std::map<std::int64_t, std::size_t> part_of;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      double largest = 0;
      for (const auto& [one, count] : counts(parts[i], group_of)) {
        CHECK(part_of.try_emplace(one, i).first->second == i);
        largest = std::max(largest, count);
      }
      if (groups > 2 * static_cast<std::int64_t>(parts.size()))
        CHECK(static_cast<double>(parts[i].size()) < fractions[i] * static_cast<double>(rows) + largest);
    }
  }
  // As many groups as parts, of which the first would be filled twice before the second.
  const auto two = lists(split_rows(4, {0.9, 0.1}, {.groups = at::tensor({7, 7, 2, 2})}));
  CHECK(two[0].size() == 2);
}

TEST_CASE("A split by time leaves no moment in two parts, and the oldest are the first") {
  for (std::uint64_t number = 0; number < 300; ++number) {
    auto [rows, fractions, options] = problem(number);
    CAPTURE(number);
    const at::Tensor times = values(number, rows, 12 + rows / 4, 0).sub(7);
    options.time = number % 2 == 0 ? times : times.to(at::kFloat).div(4);
    const Rows time_of = numbers_of(times);
    const auto least = std::ranges::min(fractions) * static_cast<double>(rows) - 1;
    if (at::bincount(times.add(7)).max().item<double>() >= least) continue;  // a moment may be all of a part
    const auto parts = lists(split_rows(rows, fractions, options));
    check_partition(parts, rows);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      CHECK(counts(parts[i], time_of).rbegin()->first < counts(parts[i + 1], time_of).begin()->first);
    options.shuffle = !options.shuffle;
    ++options.seed;
    CHECK(lists(split_rows(rows, fractions, options)) == parts);
  }
  const at::Tensor times = at::tensor({5, 4, 3, 2, 1, 0});
  CHECK(numbers_of(split_rows(6, {0.5, 0.5}, {.time = times})[0]) == Rows{3, 4, 5});
  CHECK(numbers_of(split_rows(6, {0.5, 0.5}, {.time = times, .gap = 2})[0]) == Rows{5});
}

TEST_CASE("Each series is divided by itself, in the order of time or of its rows, with a gap between its parts") {
  for (std::uint64_t number = 0; number < 200; ++number) {
    auto [rows, fractions, options] = problem(number);
    if (fractions.size() < 2) continue;
    CAPTURE(number);
    const at::Tensor series = values(number, rows, 2, 9);
    const at::Tensor times = number % 2 == 0 ? at::arange(rows) : at::arange(rows).neg();
    options.series = series;
    if (number % 4 != 0) options.time = times;
    const Rows series_of = numbers_of(series), time_of = numbers_of(options.time.empty() ? at::arange(rows) : times);
    check_partition(lists(split_rows(rows, fractions, options)), rows);
    options.gap = static_cast<std::int64_t>(number % 2);
    const auto parts = lists(split_rows(rows, fractions, options));
    for (const std::int64_t one : {0, 1}) {
      Rows all;
      for (std::int64_t row = 0; row < rows; ++row)
        if (series_of[static_cast<std::size_t>(row)] == one) all.push_back(row);
      const auto size = static_cast<double>(all.size());
      double due = 0;
      std::int64_t latest = -1000000;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        Rows times_here;
        for (const std::int64_t row : parts[i])
          if (series_of[static_cast<std::size_t>(row)] == one)
            times_here.push_back(time_of[static_cast<std::size_t>(row)]);
        due = fractions[i] * size - (i + 1 < parts.size() ? static_cast<double>(options.gap) : 0);
        CHECK(std::abs(static_cast<double>(times_here.size()) - due) <= 1);
        if (times_here.empty()) continue;
        CHECK(std::ranges::min(times_here) > latest);
        latest = std::ranges::max(times_here);
      }
    }
  }
}

TEST_CASE("Folds test each row once and train on all others, whatever is kept together") {
  for (std::uint64_t number = 0; number < 100; ++number) {
    auto [rows, fractions, options] = problem(number);
    CAPTURE(number);
    const std::int64_t k = 2 + static_cast<std::int64_t>(number % 4);
    const at::Tensor classes = values(number, rows, 3, 5);
    if (number % 3 == 1) options.stratify = classes;
    if (number % 3 == 2) options.groups = values(number, rows, 9, 1);
    std::vector<Rows> tests;
    for (const auto& [train, test] : k_fold_rows(rows, k, options)) {
      check_partition({numbers_of(train), numbers_of(test)}, rows);
      tests.push_back(numbers_of(test));
    }
    REQUIRE(tests.size() == static_cast<std::size_t>(k));
    check_partition(tests, rows);
  }
}

TEST_CASE("Folds by time train on the past, and test each row after the first block once") {
  for (std::int64_t k = 2; k < 7; ++k)
    for (std::int64_t rows = 2 * k + 2; rows < 60; ++rows)
      for (const std::int64_t gap : {0, 1}) {
        CAPTURE(k);
        CAPTURE(rows);
        Rows tested;
        std::int64_t first = 0;
        for (const auto& [train, test] : k_fold_rows(rows, k, {.time = at::arange(rows).mul(3), .gap = gap})) {
          const Rows past = numbers_of(train), now = numbers_of(test);
          if (tested.empty()) first = now.front();
          CHECK(past.front() == 0);
          CHECK(past.back() == now.front() - 1 - gap);
          CHECK(static_cast<std::int64_t>(past.size()) == past.back() + 1);
          tested.insert(tested.end(), now.begin(), now.end());
        }
        Rows expected(static_cast<std::size_t>(rows - first));
        std::iota(expected.begin(), expected.end(), first);
        CHECK(tested == expected);
      }
}

TEST_CASE("Folds are made one after another, each when it is asked for") {
  const auto made = std::make_shared<int>(0);
  const data::k_folds_test::Counted rows{10, made};
  const auto folds = data::k_folds(rows, 5, {.seed = 3});
  CHECK(*made == 0);
  CHECK(folds.size() == 5);
  std::int64_t tested = 0;
  int before = 0;
  for (const auto& [train, test] : folds) {
    CHECK(*made == before + 2);
    before = *made;
    CHECK(train.rows == 8);
    tested += test.rows;
  }
  CHECK(tested == 10);
  CHECK(folds[3].test.rows == 2);
  CHECK(*made == 12);
  const std::vector<data::Fold<Batch>> all = [] {
    const auto of_batch = data::k_folds(Batch(at::arange(6)), 3);
    return std::vector(of_batch.begin(), of_batch.end());
  }();
  CHECK(all.size() == 3);
}

TEST_CASE("An undefined tensor or an empty name for the rows is an error, not the same as none") {
  const auto error = [](const SplitOptions& options) {
    try {
      split_rows(6, {0.5, 0.5}, options);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  const std::string why =
      " is given, and is an undefined tensor or an empty name; give a value for each row, or leave "
      "the option out";
  CHECK(error({.groups = at::Tensor()}) == "split: groups:" + why);
  CHECK(error({.groups = ""}) == "split: groups:" + why);
  CHECK(error({.stratify = at::Tensor()}) == "split: stratify:" + why);
  CHECK(error({.time = std::string()}) == "split: time:" + why);
  CHECK(error({.series = ""}) == "split: series:" + why);
  CHECK(error({.groups = {}}) == "none");
  CHECK_THROWS_WITH_AS(split(Batch(at::arange(6)), {0.5, 0.5}, {.groups = ""}), doctest::Contains("empty name"),
                       ConfigError);
}

TEST_CASE("Batches, data sets and parts of them are divided by the names of their columns") {
  const Batch rows{
      {"input", at::arange(40).view({20, 2})}, {"target", at::arange(20).remainder(2)}, {"scale", at::ones({})}};
  const auto [train, test] = split(rows, {0.8, 0.2}, {.stratify = "target"});
  CHECK(train["input"].sizes() == at::IntArrayRef{16, 2});
  CHECK(test["target"].sum().item<std::int64_t>() == 2);
  CHECK(test["input"].select(1, 0).div(2, "floor").remainder(2).equal(test["target"]));
  CHECK(test["scale"].dim() == 0);
  const std::vector<Batch> parts = split(rows, std::vector<double>{0.5, 0.25, 0.25});
  CHECK(parts[2]["target"].numel() == 5);
  CHECK(at::cat({parts[0]["input"], parts[1]["input"], parts[2]["input"]}).sum().equal(rows["input"].sum()));

  // Rows that follow each other are shared.
  const auto [older, newer] = split(rows, {0.5, 0.5}, {.shuffle = false});
  CHECK(newer["input"].const_data_ptr() == rows["input"].slice(0, 10).const_data_ptr());

  const data::SampleSource source{.size = 20, .get = [](std::int64_t index, RandomStream) -> data::Sample {
                                    return at::scalar_tensor(index, at::kLong);
                                  }};
  const auto [first, second] = split(source, {0.5, 0.5}, {.stratify = rows["target"]});
  std::set<std::int64_t> seen;
  for (const auto& part : {first, second})
    for (std::int64_t i = 0; i < part.size; ++i)
      seen.insert(part.get(i, RandomStream(0)).at("input").item<std::int64_t>());
  CHECK(seen.size() == 20);
  CHECK(data::k_folds(source, 4)[3].test.size == 5);
  CHECK_THROWS_WITH_AS(split(source, {0.5, 0.5}, {.groups = "patient"}),
                       doctest::Contains("\"patient\" is a name, and the samples of this data are read by index"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(split(rows, {0.5, 0.5}, {.groups = "patient"}), doctest::Contains("patient"), DataError);
}

TEST_CASE("What cannot be divided as asked is an error that says why") {
  const auto error = [](std::int64_t rows, const std::vector<double>& fractions, const SplitOptions& options) {
    try {
      split_rows(rows, fractions, options);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  const at::Tensor ids = at::tensor({0, 0, 0, 1, 1, 2});
  CHECK(error(6, {0.8, 0.1}, {}) == "split: the fractions must add up to 1, got 0.9 in all");
  CHECK(error(6, {}, {}) == "split: the fractions must add up to 1, got 0 in all");
  CHECK(error(6, {1.2, -0.2}, {}) == "split: each fraction must be > 0, got -0.2");
  CHECK(error(6, {NAN, 1}, {}) == "split: each fraction must be > 0, got nan");
  CHECK(error(0, {1}, {}) == "split: the data has no rows");
  CHECK(error(3, {0.9, 0.1}, {}) ==
        "split: part 1 of 2, a fraction of 0.1, gets none of 3 rows; give it more of them, or leave it out");
  CHECK(error(6, {0.5, 0.5}, {.stratify = ids}) ==
        "split: stratify: class 2 has 1 of 6 rows, fewer than the 2 parts; leave such rows out, or do not stratify");
  CHECK(error(6, {0.25, 0.25, 0.25, 0.25}, {.groups = ids}) == "split: groups: there are 3, fewer than the 4 parts");
  CHECK(error(6, {0.5, 0.5}, {.stratify = ids, .groups = ids}) ==
        "split: stratify, groups and time (or series) each decide alone which rows a part has; give one");
  CHECK(error(6, {0.5, 0.5}, {.gap = 1}) == "split: gap needs time or series, which order the rows");
  CHECK(error(6, {0.5, 0.5}, {.time = ids, .gap = -1}) == "split: gap must be >= 0 rows, got -1");
  CHECK(error(6, {0.5, 0.5}, {.time = at::zeros(6)}).starts_with("split: part 1 of 2"));
  CHECK(error(7, {0.5, 0.5}, {.time = ids}) ==
        "split: time: must have one value for each of 7 rows, got the shape [6]");
  CHECK(error(2, {0.5, 0.5}, {.time = at::tensor({0.5, double(NAN)})}) ==
        "split: time: row 1 is NaN; give every row a value");
  CHECK(error(6, {0.5, 0.5}, {.time = "when"}).starts_with("split: time: \"when\" is a name"));
  CHECK_THROWS_WITH_AS(k_fold_rows(6, 1), "k_folds: k must be >= 2, got 1", ConfigError);
  CHECK_THROWS_WITH_AS(k_fold_rows(3, 4), "k_folds: the data has 3 rows, fewer than the 4 folds", DataError);
}

}  // namespace composer::split_test
