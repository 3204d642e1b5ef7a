// What a Saver knows of the checkpoints of its run: their names, their values, and which are to be deleted.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"

namespace composer::saving {
namespace {

// Versions of weights only grow.
bool has_older(const Saved& saved, std::uint64_t weights) { return saved.weights != 0 && saved.weights < weights; }

}  // namespace

std::vector<std::string> Saver::saved() const {
  std::vector<std::string> names;
  names.reserve(list_.saved.size());
  for (const Saved& one : list_.saved) names.push_back(one.name);
  return names;
}

const Saved* Saver::find(const std::string& name) const {
  const auto found = std::ranges::find(list_.saved, name, &Saved::name);
  return found == list_.saved.end() ? nullptr : &*found;
}

bool Saver::has_periodic(const std::string& name) const {
  const Saved* const there = find(name);
  return there && !there->by_hand;
}

bool Saver::has_by_hand(const std::string& name) const {
  const Saved* const there = find(name);
  return there && there->by_hand;
}

std::string Saver::name_by_hand(const std::string& name) const {
  std::string tried = name;
  for (int number = 2;; ++number) {
    const Saved* const there = find(tried);
    if (!there) return name;
    if (there->by_hand) return tried;
    tried = join(name, '-', number);
  }
}

// One of the same weights is the same checkpoint. Who names each alike, or each of an epoch, wants one of them, as does
// a program that gives a name again; but not one for another that has the best value, or is of the same moment.
bool Saver::may_replace(const Saved& old, const Manifest& manifest, const Planned& planned) const {
  if (old.weights != 0 && old.weights == planned.weights && old.fit == planned.fit) return true;
  if (old.by_hand != planned.by_hand) return false;
  if (old.ahead || planned.is_rolling) return true;
  return old.batch != -1 && old.batch != manifest.time.batch && (old.by_hand || !options_.best);
}

// A mirror may have one that this machine has not. Errors of the disk are told when the new one is written.
bool Saver::is_gone(const std::string& name) const try {
  return !options_.mirror && files_->type(options_.folder / name) == FileSystem::Type::NONE;
} catch (const FileError&) {
  return false;
}

bool Saver::is_free(const std::string& name) const try {
  const std::filesystem::path path = options_.folder / name;
  return files_->type(path) == FileSystem::Type::NONE || is_of_run(path, options_.run_id, *files_);
} catch (const FileError&) {
  return true;
}

void Saver::choose_name(Manifest& manifest, const Planned& planned) {
  wait();
  if (std::exchange(planned_, false)) list_ = before_;  // what was planned was never saved
  const std::string name = manifest.name;
  for (int number = 2;; ++number) {
    const Saved* const there = find(manifest.name);
    if (!there && (number == 2 || is_free(manifest.name))) return;  // that another run has the first one is an error
    if (there && (may_replace(*there, manifest, planned) || is_gone(there->name))) {
      const bool is_same = there->weights != 0 && there->weights == planned.weights;
      if (is_same && there->has_value() && options_.best) manifest.metrics.emplace(options_.best->metric, there->value);
      return;
    }
    manifest.name = join(name, '-', number);
  }
}

// Checkpoints that are to be deleted, here or in the mirror, are named in it, too: the process may end before they are.
void Saver::visit_state(StateVisitor& visit, std::uint64_t weights, std::int64_t batch) {
  std::vector<std::string> saved, by_hand, current;  // current: those that have the weights which are saved with this
  std::vector<double> values;
  std::vector<std::int64_t> batches;
  for (const Saved& one : list_.saved) {
    saved.push_back(one.name);
    values.push_back(one.value);
    batches.push_back(one.batch);
    if (one.by_hand) by_hand.push_back(one.name);
    if (weights != 0 && one.weights == weights) current.push_back(one.name);
  }
  const auto optional = [&](const char* name, auto& value) {  // earlier versions lack it
    if (!visit.is_loading() || visit.has(name)) visit(name, value);
  };
  visit("saved", saved);
  visit("values", values);
  std::vector<std::string> retired = list_.retired;
  if (options_.mirror && !visit.is_loading())
    for (std::string& name : options_.mirror->undeleted())
      if (std::ranges::find(saved, name) == saved.end() && std::ranges::find(retired, name) == retired.end())
        retired.push_back(std::move(name));
  optional("retired", retired);
  optional("by_hand", by_hand);
  optional("batches", batches);
  if (visit.is_loading() && !visit.has("current") && !saved.empty() && !batches.empty() && batches.back() == batch)
    current.push_back(saved.back());
  optional("current", current);
  std::string metric = options_.best ? options_.best->metric : "";  // that the values are of
  optional("metric", metric);
  std::int64_t number = list_.number;
  optional("number", number);
  list_.number = std::max(list_.number, number);  // a damaged one that is newer may be there
  std::optional<Better> better = better_;
  visit("better", better);
  if (!visit.is_loading()) return;
  if (options_.best && !options_.best->better && metric == options_.best->metric && better) better_ = better;
  list_.retired = std::move(retired);
  wait();
  if (saved.size() != values.size()) throw CheckpointError("checkpoint: saver/values does not match saver/saved");
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  batches.resize(saved.size(), -1);
  list_.saved.clear();
  loaded_.clear();
  for (std::size_t i = 0; i < saved.size(); ++i)
    list_.saved.push_back({.name = saved[i],
                           .value = values[i],
                           .by_hand = has(by_hand, saved[i]),
                           .batch = batches[i],
                           .weights = has(current, saved[i]) ? weights : 0,
                           .ahead = batch >= 0 && batches[i] > batch});
  if (options_.best)
    for (Saved& one : list_.saved) {
      if (metric != options_.best->metric) one.value = NAN;
      settle_value(one);
    }
  std::erase_if(list_.retired, [&](const std::string& name) { return has(saved, name); });
}

// NaN: the metric was not measured on these weights.
double Saver::value_of(const std::map<std::string, double>& metrics) const {
  const auto found = options_.best ? metrics.find(options_.best->metric) : metrics.end();
  return found == metrics.end() ? NAN : found->second;
}

// An evaluation that came after it, as the last one of a fit, has noted its value in the manifest alone; and a process
// may have ended before a value that the list has was noted there.
void Saver::settle_value(Saved& saved) {
  try {
    const Manifest manifest = open_checkpoint(options_.folder / saved.name, *files_).manifest;
    if (manifest.run_id != options_.run_id || manifest.time.batch != saved.batch) return;
    saved.id = manifest.id;
    const double noted = value_of(manifest.metrics);
    if (!saved.has_value())
      saved.value = noted;
    else if (std::isnan(noted))
      loaded_.push_back({.name = saved.name, .id = saved.id, .metrics = {{options_.best->metric, saved.value}}});
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): then it has none
  }
}

void Saver::note_loaded() { std::ranges::move(std::exchange(loaded_, {}), std::back_inserter(added_)); }

bool Saver::lacks_value(std::int64_t batch) const {
  return options_.best && !list_.saved.empty() && list_.saved.back().batch == batch && !list_.saved.back().has_value();
}

// Both also change the list that there is again if the checkpoint that is being written fails.
void Saver::forget_moments() {
  for (List* const list : {&list_, &before_})
    for (Saved& one : list->saved)
      if (one.batch > 0) one.batch = -1;
}

void Saver::add_metrics(std::uint64_t weights, const std::map<std::string, double>& metrics) {
  const double value = value_of(metrics);
  if (std::isnan(value)) return;
  for (List* const list : {&list_, &before_})
    for (auto one = list->saved.rbegin(); one != list->saved.rend() && !has_older(*one, weights); ++one) {
      if (one->weights != weights || one->has_value()) continue;
      one->value = value;
      if (list == &list_) added_.push_back({.name = one->name, .id = one->id, .metrics = metrics});
    }
}

void Saver::note_weights(const std::string& name, std::uint64_t weights) {
  const auto found = std::ranges::find(list_.saved, name, &Saved::name);
  if (found != list_.saved.end()) found->weights = weights;
}

bool Saver::has_weights(std::uint64_t weights) const {
  for (auto one = list_.saved.rbegin(); one != list_.saved.rend() && !has_older(*one, weights); ++one)
    if (one->weights == weights) return true;
  return false;
}

void Saver::plan(const Manifest& manifest, const Planned& planned) {
  bool by_hand = planned.by_hand;
  if (options_.keep == 0 && !by_hand) return;
  wait();
  if (std::exchange(planned_, true)) list_ = before_;  // what was planned was never saved
  before_ = list_;
  ++list_.number;
  const std::string& name = manifest.name;
  const auto replaced = std::ranges::find(list_.saved, name, &Saved::name);
  if (replaced != list_.saved.end()) {
    by_hand = by_hand || replaced->by_hand;  // who asked for it by name still wants it
    list_.saved.erase(replaced);
  }
  std::erase(list_.retired, name);
  list_.saved.push_back({.name = name,
                         .value = value_of(manifest.metrics),
                         .by_hand = by_hand,
                         .batch = manifest.time.batch,
                         .weights = planned.weights,
                         .fit = planned.fit});
  if (options_.best && !better_ && has_value()) return;  // nobody knows which is the worst: all are kept until then
  const auto better = options_.best ? std::optional(better_.value_or(Better::HIGHER)) : std::nullopt;
  Retention retention = retain(std::move(list_.saved), options_.keep, better);
  list_.saved = std::move(retention.keep);
  std::ranges::move(retention.remove, std::back_inserter(list_.retired));
}

bool Saver::has_value() const {
  return std::ranges::any_of(list_.saved, [](const Saved& one) { return one.has_value(); });
}

const Saved* Saver::best() const { return options_.best && better_ ? best_of(list_.saved, *better_) : nullptr; }

// As the list has what it did not know of.
Saved Saver::entry_of(const Manifest& manifest) const {
  return {.name = manifest.name,
          .value = value_of(manifest.metrics),
          .by_hand = manifest.by_hand,
          .batch = manifest.time.batch,
          .ahead = true,
          .id = manifest.id};
}

// Those of later moments are the oldest, because the run writes them again.
std::vector<Manifest> Saver::adopt_left(std::int64_t batch) {
  std::vector<Manifest> left;
  for (Found& found : checkpoints_of_saver(options_.folder, *files_)) {
    const Manifest& one = found.manifest;
    const bool is_named = find(one.name) || std::ranges::find(list_.retired, one.name) != list_.retired.end() ||
                          std::ranges::find(left, one.name, &Manifest::name) != left.end();
    if (one.run_id == options_.run_id && !is_named && folder_.holds(one)) left.push_back(std::move(found.manifest));
  }
  std::vector<Saved> later;
  for (const Manifest& one : left) {
    count_from(one);
    (one.time.batch > batch ? later : list_.saved).push_back(entry_of(one));
  }
  list_.saved.insert(list_.saved.begin(), later.begin(), later.end());
  return left;
}

}  // namespace composer::saving
