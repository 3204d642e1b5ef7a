#include "composer/checkpoint/saved_list.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ranges>
#include <utility>

#include "composer/core/error.h"

namespace composer::saving {
namespace {

// Versions of weights only increase.
bool has_older(const Saved& saved, std::uint64_t weights) { return saved.weights != 0 && saved.weights < weights; }

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Whether the new checkpoint may replace an old one with the same name. A checkpoint of equal weights is the same one
// again. Otherwise, replacing is wanted if names do not depend on the moment, or if the program saves under a name
// again. It may not replace one that may have the best value, or one of this moment.
bool may_replace(const Saved& old, std::int64_t batch, const Planned& planned, bool may_be_best) {
  if (old.weights != 0 && old.weights == planned.weights && old.fit == planned.fit) return true;
  if (old.by_hand != planned.by_hand) return false;
  if (old.ahead || planned.is_rolling) return true;
  return old.batch != -1 && old.batch != batch && (old.by_hand || !may_be_best);
}

}  // namespace

BestMetric::BestMetric(std::optional<Best> best) : best_(std::move(best)) {
  if (best_) better_ = best_->better;
}

double BestMetric::value_in(const std::map<std::string, double>& metrics) const {
  const auto found = best_ ? metrics.find(best_->metric) : metrics.end();
  return found == metrics.end() ? NAN : found->second;
}

SavedList::SavedList(std::int64_t keep, std::optional<Best> best) : keep_(keep), metric_(std::move(best)) {}

std::vector<Saved> SavedList::visible() const {
  std::vector<Saved> there;
  there.reserve(all_.size());
  for (const Entry& one : all_)
    if (!one.goes) there.push_back(one.saved);
  return there;
}

std::vector<std::string> SavedList::names() const {
  std::vector<std::string> names;
  names.reserve(all_.size());
  for (const Entry& one : all_)
    if (!one.goes) names.push_back(one.saved.name);
  return names;
}

const Saved* SavedList::find(const std::string& name) const {
  const auto found = std::ranges::find_if(all_, [&](const Entry& one) { return !one.goes && one.saved.name == name; });
  return found == all_.end() ? nullptr : &found->saved;
}

const Saved* SavedList::find_by_hand(const std::string& name) const {
  std::string tried = name;
  for (int number = 2;; ++number) {
    const Saved* const there = find(tried);
    if (!there || there->by_hand) return there;
    tried = join(name, '-', number);
  }
}

const Saved* SavedList::best() const {
  if (!metric_.is_set() || !metric_.better()) return nullptr;
  const std::vector<Saved> there = visible();
  const Saved* const best = best_of(there, *metric_.better());
  return best ? find(best->name) : nullptr;
}

bool SavedList::has_value() const {
  return std::ranges::any_of(all_, [](const Entry& one) { return !one.goes && one.saved.has_value(); });
}

bool SavedList::has_weights(std::uint64_t weights) const {
  for (const auto& [saved, goes] : all_ | std::views::reverse) {
    if (goes) continue;
    if (has_older(saved, weights)) return false;
    if (saved.weights == weights) return true;
  }
  return false;
}

bool SavedList::lacks_value(std::int64_t batch) const {
  return metric_.is_set() && !all_.empty() && all_.back().saved.batch == batch && !all_.back().saved.has_value();
}

std::vector<std::string> SavedList::retired() const {
  if (!plan_) return retired_;
  return plan_->sent ? std::vector<std::string>() : plan_->retired;
}

bool SavedList::knows(const std::string& id) const { return has_name(ids_, id); }

SavedList::Choice SavedList::choose_name(const Manifest& manifest, const Planned& planned, const Folder& folder) const {
  std::string name = manifest.name;
  for (int number = 2;; ++number) {
    const Saved* const there = find(name);
    // If the first name belongs to another run, that is an error, which is reported by the write.
    if (!there && (number == 2 || folder.is_free(name))) return {.name = name, .value = {}};
    if (there && (may_replace(*there, manifest.time.batch, planned, metric_.is_set()) || folder.is_gone(name))) {
      const bool is_same = there->weights != 0 && there->weights == planned.weights;
      const bool gives_value = is_same && there->has_value() && metric_.is_set();
      return {.name = name, .value = gives_value ? std::optional(there->value) : std::nullopt};
    }
    name = join(manifest.name, '-', number);
  }
}

void SavedList::drop(const std::string& name) {
  std::erase_if(all_, [&](const Entry& one) { return one.saved.name == name; });
}

void SavedList::drop_plan() {
  if (!plan_ || plan_->sent) return;
  plan_.reset();
  all_.pop_back();
  for (Entry& one : all_) one.goes = false;
}

void SavedList::plan(const Manifest& manifest, const Planned& planned) {
  drop_plan();
  Saved next{.name = manifest.name,
             .value = metric_.value_in(manifest.metrics),
             .by_hand = planned.by_hand,
             .batch = manifest.time.batch,
             .weights = planned.weights,
             .fit = planned.fit};
  for (Entry& one : all_)
    if (one.saved.name == next.name) {
      next.by_hand = next.by_hand || one.saved.by_hand;  // the program that saved it by hand still needs it
      one.goes = true;
    }
  plan_ = Plan{.retired = retired_, .number = number_ + 1, .sent = {}};
  std::erase(plan_->retired, next.name);
  all_.push_back({.saved = std::move(next)});
  if (metric_.is_set() && !metric_.better() && has_value()) return;  // the worst one is unknown, so all are kept
  const auto better = metric_.is_set() ? std::optional(metric_.better().value_or(Better::HIGHER)) : std::nullopt;
  for (std::string& name : retain(visible(), keep_, better).remove) {
    for (Entry& one : all_) one.goes = one.goes || one.saved.name == name;
    plan_->retired.push_back(std::move(name));
  }
}

std::optional<SavedList::Sent> SavedList::send(Manifest& manifest) {
  if (!plan_ || plan_->sent) return std::nullopt;
  ids_.push_back(manifest.id);
  all_.back().saved.id = manifest.id;
  manifest.parent = parent_;
  manifest.number = plan_->number;
  plan_->sent = std::exchange(notes_, {});
  const Saved* const best_then = best();
  return Sent{.retired = plan_->retired,
              .best = best_then ? best_then->name : "",
              .has_values = has_value(),
              .notes = *plan_->sent};
}

void SavedList::settle(Outcome outcome, std::vector<std::string> undeleted) {
  if (!plan_ || !plan_->sent) return;
  Plan ended = *std::exchange(plan_, std::nullopt);
  if (outcome != Outcome::WRITTEN) notes_.insert(notes_.begin(), ended.sent->begin(), ended.sent->end());
  if (outcome == Outcome::FAILED) {
    all_.pop_back();
    for (Entry& one : all_) one.goes = false;
  } else {
    std::erase_if(all_, [](const Entry& one) { return one.goes; });
    parent_ = all_.back().saved.name;
    number_ = std::max(number_, ended.number);
    std::erase_if(retired_, [&](const std::string& name) { return name == parent_ || has_name(ended.retired, name); });
  }
  std::ranges::move(undeleted, std::back_inserter(retired_));
}

// Also adds to entries that are to be removed, because they stay if the write fails.
void SavedList::add_metrics(std::uint64_t weights, const std::map<std::string, double>& metrics) {
  const double value = metric_.value_in(metrics);
  if (std::isnan(value)) return;
  for (auto& [saved, goes] : all_ | std::views::reverse) {
    if (has_older(saved, weights)) return;
    if (saved.weights != weights || saved.has_value()) continue;
    saved.value = value;
    if (!goes) notes_.push_back({.name = saved.name, .id = saved.id, .metrics = metrics});
  }
}

std::vector<Note> SavedList::take_notes() { return std::exchange(notes_, {}); }

void SavedList::queue_loaded() { std::ranges::move(std::exchange(loaded_, {}), std::back_inserter(notes_)); }

void SavedList::forget_moments() {
  for (Entry& one : all_)
    if (one.saved.batch > 0) one.saved.batch = -1;
}

void SavedList::set_weights(const std::string& name, std::uint64_t weights) {
  for (Entry& one : all_)
    if (!one.goes && one.saved.name == name) one.saved.weights = weights;
}

void SavedList::adopt(const Manifest& resumed) {
  parent_ = resumed.name;
  ids_.push_back(resumed.id);
  count_from(resumed);
}

void SavedList::count_from(const Manifest& there) { number_ = std::max(number_, there.number); }

// The entry for a checkpoint that was not in the list.
SavedList::Entry SavedList::entry_of(const Manifest& manifest) const {
  return {.saved = {.name = manifest.name,
                    .value = metric_.value_in(manifest.metrics),
                    .by_hand = manifest.by_hand,
                    .batch = manifest.time.batch,
                    .ahead = true,
                    .id = manifest.id}};
}

void SavedList::keep_later(const Manifest& by_hand) {
  all_.insert(all_.begin(), entry_of(by_hand));
  ids_.push_back(by_hand.id);
}

// Checkpoints of later moments count as the oldest, because the run writes them again.
void SavedList::adopt_unlisted(const std::vector<Manifest>& unlisted, std::int64_t batch) {
  std::vector<Entry> later, others;
  for (const Manifest& one : unlisted) {
    count_from(one);
    (one.time.batch > batch ? later : others).push_back(entry_of(one));
  }
  all_.insert(all_.end() - (plan_ ? 1 : 0), others.begin(), others.end());
  all_.insert(all_.begin(), later.begin(), later.end());
}

// Also saves the names of checkpoints that are to be deleted, here or in the mirror, because the process may end before
// the deletion.
void SavedList::visit_state(StateVisitor& visit, std::uint64_t weights, std::int64_t batch,
                            std::vector<std::string> undeleted) {
  std::vector<std::string> saved, by_hand, current;  // `current`: those with the weights that are saved with this list
  std::vector<double> values;
  std::vector<std::int64_t> batches;
  for (const Saved& one : visible()) {
    saved.push_back(one.name);
    values.push_back(one.value);
    batches.push_back(one.batch);
    if (one.by_hand) by_hand.push_back(one.name);
    if (weights != 0 && one.weights == weights) current.push_back(one.name);
  }
  const auto optional = [&](const char* name, auto& value) {  // checkpoints of earlier versions lack it
    if (!visit.is_loading() || visit.has(name)) visit(name, value);
  };
  visit("saved", saved);
  visit("values", values);
  std::vector<std::string> retired = this->retired();
  for (std::string& name : undeleted)
    if (!visit.is_loading() && !has_name(saved, name) && !has_name(retired, name)) retired.push_back(std::move(name));
  optional("retired", retired);
  optional("by_hand", by_hand);
  optional("batches", batches);
  if (visit.is_loading() && !visit.has("current") && !saved.empty() && !batches.empty() && batches.back() == batch)
    current.push_back(saved.back());
  optional("current", current);
  std::string metric = metric_.name();  // the metric of the values
  optional("metric", metric);
  std::int64_t number = plan_ ? plan_->number : number_;
  optional("number", number);
  std::optional<Better> better = metric_.better();
  visit("better", better);
  if (!visit.is_loading()) return;
  if (saved.size() != values.size()) throw CheckpointError("checkpoint: saver/values does not match saver/saved");
  number_ = std::max(number_, number);  // a damaged checkpoint that is newer may exist
  if (metric_.is_set() && !metric_.is_declared() && metric == metric_.name() && better) metric_.prefer(better);
  batches.resize(saved.size(), -1);
  plan_.reset();
  all_.clear();
  loaded_.clear();
  for (std::size_t i = 0; i < saved.size(); ++i)
    all_.push_back({.saved = {.name = saved[i],
                              .value = metric_.is_set() && metric != metric_.name() ? NAN : values[i],
                              .by_hand = has_name(by_hand, saved[i]),
                              .batch = batches[i],
                              .weights = has_name(current, saved[i]) ? weights : 0,
                              .ahead = batch >= 0 && batches[i] > batch}});
  retired_ = std::move(retired);
  std::erase_if(retired_, [&](const std::string& name) { return has_name(saved, name); });
}

void SavedList::compare(const std::string& name, const Manifest& there) {
  const auto found = std::ranges::find(all_, name, [](const Entry& one) { return one.saved.name; });
  if (!metric_.is_set() || found == all_.end() || there.time.batch != found->saved.batch) return;
  Saved& saved = found->saved;
  saved.id = there.id;
  const double noted = metric_.value_in(there.metrics);
  if (!saved.has_value())
    saved.value = noted;
  else if (std::isnan(noted))
    loaded_.push_back({.name = saved.name, .id = saved.id, .metrics = {{metric_.name(), saved.value}}});
}

}  // namespace composer::saving
