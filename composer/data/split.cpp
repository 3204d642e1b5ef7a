#include "composer/data/split.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <ATen/ops/empty.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/fractions.h"
#include "composer/data/keys.h"
#include "composer/data/sampler.h"
#include "composer/util/random.h"

namespace composer::data {
namespace {

using detail::Keys;
using RowList = std::vector<std::int64_t>;

constexpr std::uint64_t kSplit = 11;  // sets the order of rows apart from other random numbers of the seed
constexpr std::int32_t kLeftOut = -1;

std::vector<Option<SplitOptions>> split_options() {
  using O = SplitOptions;
  return all_options(part("seed", &O::seed, "whole number"), option("shuffle", &O::shuffle),
                     part("stratify", &O::stratify, "a tensor or name"), part("groups", &O::groups, "a tensor or name"),
                     part("time", &O::time, "a tensor or name"), part("series", &O::series, "a tensor or name"),
                     option("gap", &O::gap).at_least(0, "rows"));
}

SplitOptions checked_options(const char* who, const SplitOptions& given) {
  SplitOptions options = checked(who, given, split_options());
  const bool timed = !options.time.empty() || !options.series.empty();
  if (!options.stratify.empty() + !options.groups.empty() + timed > 1)
    throw ConfigError(who, ": stratify, groups and time (or series) each decide alone which rows a part has; give one");
  if (options.gap > 0 && !timed) throw ConfigError(who, ": gap needs time or series, which order the rows");
  return options;
}

// The shares of parts, and the part of each row.
class Parting {
 public:
  Parting(std::int64_t rows, const std::vector<double>& fractions)
      : fractions_(fractions), part_of_(static_cast<std::size_t>(rows), kLeftOut) {}

  std::size_t parts() const { return fractions_.size(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(part_of_.size()); }
  double fraction(std::size_t part) const { return fractions_[part]; }
  void put(std::int64_t row, std::size_t part) {
    part_of_[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(part);
  }

  std::vector<std::size_t> ends(std::size_t count) const { return detail::ends_of_parts(fractions_, count); }

  void in_order(const RowList& rows) {
    std::size_t at = 0, part = 0;
    for (const std::size_t end : ends(rows.size())) {
      for (; at < end; ++at) put(rows[at], part);
      ++part;
    }
  }

  std::vector<at::Tensor> result(const char* who) const {
    std::vector<std::int64_t> counts(parts());
    for (const std::int32_t part : part_of_)
      if (part != kLeftOut) ++counts[static_cast<std::size_t>(part)];
    std::vector<at::Tensor> result;
    std::vector<std::int64_t*> next;
    for (std::size_t part = 0; part < parts(); ++part) {
      if (counts[part] == 0)
        throw DataError(who, ": part ", part, " of ", parts(), ", a fraction of ", fractions_[part], ", gets none of ",
                        rows(), " rows; give it more of them, or leave it out");
      result.push_back(at::empty({counts[part]}, at::kLong));
      next.push_back(result.back().mutable_data_ptr<std::int64_t>());
    }
    for (std::int64_t row = 0; row < rows(); ++row)
      if (const std::int32_t part = part_of_[static_cast<std::size_t>(row)]; part != kLeftOut)
        *next[static_cast<std::size_t>(part)]++ = row;
    return result;
  }

 private:
  std::vector<double> fractions_;
  std::vector<std::int32_t> part_of_;
};

RowList all_rows(std::int64_t rows, const SplitOptions& options) {
  if (options.shuffle) return detail::shuffled(rows, RandomStream(hash64(options.seed, kSplit)));
  RowList order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Gives each part its share of each class, rounded up or down. What is left of a class by rounding down goes to the
// parts that have, over all classes so far, the least of what is due to them, so the parts keep their sizes as well.
void stratify(Parting& parting, const SplitOptions& options) {
  const Keys keys(options.stratify, parting.rows(), "split: stratify");
  std::int64_t classes = 0;
  const RowList class_of = keys.distinct(classes);
  const RowList order = all_rows(parting.rows(), options);
  std::vector<RowList> members(static_cast<std::size_t>(classes));
  for (const std::int64_t row : order)
    members[static_cast<std::size_t>(class_of[static_cast<std::size_t>(row)])].push_back(row);

  const std::size_t parts = parting.parts();
  std::vector<double> owed(parts), rest(parts);
  std::vector<std::size_t> neediest(parts), counts(parts);
  for (const RowList& rows : members) {
    if (rows.size() < parts)
      throw DataError("split: stratify: class ", keys.text(rows.front()), " has ", rows.size(), " of ", parting.rows(),
                      " rows, fewer than the ", parts, " parts; leave such rows out, or do not stratify");
    std::size_t left = rows.size();
    for (std::size_t part = 0; part < parts; ++part) {
      const double share = parting.fraction(part) * static_cast<double>(rows.size());
      counts[part] = std::min(left, static_cast<std::size_t>(share + detail::kRounding));
      rest[part] = share - static_cast<double>(counts[part]);
      owed[part] += rest[part];
      left -= counts[part];
      neediest[part] = part;
    }
    const auto is_whole = [&](std::size_t part) { return rest[part] <= detail::kRounding; };  // gets no more
    std::ranges::stable_sort(neediest, [&](std::size_t a, std::size_t b) {
      return is_whole(a) == is_whole(b) ? owed[a] > owed[b] : is_whole(b);
    });
    for (std::size_t i = 0; left > 0; --left, ++i) {
      ++counts[neediest[i % parts]];
      --owed[neediest[i % parts]];
    }
    std::size_t at = 0;
    for (std::size_t part = 0; part < parts; ++part)
      for (std::size_t i = 0; i < counts[part]; ++i) parting.put(rows[at++], part);
  }
}

// Takes the groups in random order, and puts each into the part that lacks most of its rows. So no part exceeds its
// share by as much as the last group that it got.
void keep_groups(Parting& parting, const SplitOptions& options) {
  const Keys keys(options.groups, parting.rows(), "split: groups");
  std::int64_t groups = 0;
  const RowList group_of = keys.distinct(groups);
  if (groups < static_cast<std::int64_t>(parting.parts()))
    throw DataError("split: groups: there are ", groups, ", fewer than the ", parting.parts(), " parts");
  std::vector<double> sizes(static_cast<std::size_t>(groups)), lacks;
  RowList in_order;  // the groups, by the first row of each in the data
  for (const std::int64_t group : group_of)
    if (sizes[static_cast<std::size_t>(group)]++ == 0) in_order.push_back(group);
  if (options.shuffle) in_order = detail::shuffled(groups, RandomStream(hash64(options.seed, kSplit)));

  for (std::size_t part = 0; part < parting.parts(); ++part)
    lacks.push_back(parting.fraction(part) * static_cast<double>(parting.rows()));
  std::vector<std::size_t> part_of(static_cast<std::size_t>(groups)), got(parting.parts());
  std::size_t empty = parting.parts(), left = in_order.size();
  for (const std::int64_t group : in_order) {
    const bool must_fill = left-- == empty;  // each of the remaining groups goes to a part that has none
    std::size_t best = parting.parts();
    for (std::size_t part = 0; part < parting.parts(); ++part)
      if (!(must_fill && got[part] > 0) && (best == parting.parts() || lacks[part] > lacks[best])) best = part;
    if (got[best]++ == 0) --empty;
    lacks[best] -= sizes[static_cast<std::size_t>(group)];
    part_of[static_cast<std::size_t>(group)] = best;
  }
  for (std::int64_t row = 0; row < parting.rows(); ++row)
    parting.put(row, part_of[static_cast<std::size_t>(group_of[static_cast<std::size_t>(row)])]);
}

// The end of a part, moved to the nearest place where the time changes; to the later one of two.
std::size_t change_of_time(const Keys& times, const RowList& ordered, std::size_t end) {
  const auto splits_moment = [&](std::size_t at) {
    return at > 0 && at < ordered.size() && times.equal(ordered[at - 1], ordered[at]);
  };
  std::size_t up = end, down = end;
  while (splits_moment(up)) ++up;
  while (splits_moment(down)) --down;
  return down > 0 && (up == ordered.size() || end - down < up - end) ? down : up;
}

// Each series, or all rows, divided in the order of time. The first `trimmed` parts lose their last rows to the gap.
void by_time(Parting& parting, const SplitOptions& options, std::size_t trimmed) {
  const std::int64_t rows = parting.rows();
  std::vector<RowList> series(1, all_rows(rows, {.shuffle = false}));
  if (!options.time.empty()) series.front() = Keys(options.time, rows, "split: time").ascending();
  if (!options.series.empty()) {
    std::int64_t count = 0;
    const RowList series_of = Keys(options.series, rows, "split: series").distinct(count);
    std::vector<RowList> apart(static_cast<std::size_t>(count));
    for (const std::int64_t row : series.front())
      apart[static_cast<std::size_t>(series_of[static_cast<std::size_t>(row)])].push_back(row);
    series = std::move(apart);
  }
  std::optional<Keys> times;
  if (!options.time.empty()) times.emplace(options.time, rows, "split: time");

  for (const RowList& ordered : series) {
    std::vector<std::size_t> ends = parting.ends(ordered.size());
    if (times)
      for (std::size_t& end : ends) end = change_of_time(*times, ordered, end);
    ends.back() = ordered.size();
    std::size_t begin = 0;
    for (std::size_t part = 0; part < ends.size(); ++part) {
      const std::size_t end = std::max(begin, ends[part]);
      const auto gap = part < trimmed && end < ordered.size() ? static_cast<std::size_t>(options.gap) : 0;
      for (std::size_t i = begin; i + gap < end; ++i) parting.put(ordered[i], part);
      begin = end;
    }
  }
}

bool is_timed(const SplitOptions& options) { return !options.time.empty() || !options.series.empty(); }

std::vector<at::Tensor> divided(const char* who, std::int64_t rows, const std::vector<double>& fractions,
                                const SplitOptions& options, std::size_t trimmed) {
  Parting parting(rows, fractions);
  if (!options.stratify.empty())
    stratify(parting, options);
  else if (!options.groups.empty())
    keep_groups(parting, options);
  else if (is_timed(options))
    by_time(parting, options, trimmed);
  else
    parting.in_order(all_rows(rows, options));
  return parting.result(who);
}

// The rows of all parts but one, ascending.
at::Tensor others(const std::vector<at::Tensor>& parts, std::size_t but) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (i != but) count += parts[i].numel();
  at::Tensor rows = at::empty({count}, at::kLong);
  auto* const first = rows.mutable_data_ptr<std::int64_t>();
  auto* to = first;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (i != but) to = std::copy_n(parts[i].const_data_ptr<std::int64_t>(), parts[i].numel(), to);
  std::sort(first, to);
  return rows;
}

}  // namespace

RowValues::RowValues(const std::vector<std::int64_t>& values)
    : given_(true), values_(at::empty({static_cast<std::int64_t>(values.size())}, at::kLong)) {
  std::ranges::copy(values, values_.mutable_data_ptr<std::int64_t>());
}

std::vector<at::Tensor> split_rows(std::int64_t rows, const std::vector<double>& fractions,
                                   const SplitOptions& options) {
  detail::check_fractions("split", fractions);
  const SplitOptions given = checked_options("split", options);
  if (rows < 1) throw DataError("split: the data has no rows");
  return divided("split", rows, fractions, given, fractions.size());
}

std::vector<FoldRows> k_fold_rows(std::int64_t rows, std::int64_t k, const SplitOptions& options) {
  const SplitOptions given = checked_options("k_folds", options);
  if (k < 2) throw ConfigError("k_folds: k must be >= 2, got ", k);
  if (rows < k) throw DataError("k_folds: the data has ", rows, " rows, fewer than the ", k, " folds");
  std::vector<FoldRows> folds;
  if (!is_timed(given)) {
    const auto parts = divided(
        "k_folds", rows, std::vector<double>(static_cast<std::size_t>(k), 1.0 / static_cast<double>(k)), given, 0);
    for (std::size_t i = 0; i < parts.size(); ++i) folds.push_back({others(parts, i), parts[i]});
    return folds;
  }
  for (std::int64_t i = 1; i <= k; ++i) {
    const double block = 1.0 / static_cast<double>(k + 1);
    std::vector<double> fractions{static_cast<double>(i) * block, block};
    if (i < k) fractions.push_back(static_cast<double>(k - i) * block);
    const auto parts = divided("k_folds", rows, fractions, given, 1);
    folds.push_back({parts[0], parts[1]});
  }
  return folds;
}

}  // namespace composer::data
