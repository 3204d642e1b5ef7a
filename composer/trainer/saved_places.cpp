#include "composer/trainer/saved_places.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <ranges>
#include <set>
#include <utility>

namespace composer {
namespace {

using Places = std::vector<SavedPlace>;

// Searches from the newest position, which trainers have in common most often.
bool has(const Places& all, const SavedPlace& place) {
  const auto from_newest = all | std::views::reverse;
  return std::ranges::find(from_newest, place) != from_newest.end();
}

bool share_one(std::span<const Places> all) {
  return std::ranges::any_of(all.front() | std::views::reverse, [&](const SavedPlace& place) {
    return std::ranges::all_of(all.subspan(1), [&](const Places& other) { return has(other, place); });
  });
}

// A trainer may have saved more than once at one position.
std::size_t count_since_common(const Places& own, const Places& other) {
  std::set<SavedPlace> since;
  for (const SavedPlace& place : own | std::views::reverse) {
    if (has(other, place)) break;
    since.insert(place);
  }
  return since.size();
}

}  // namespace

SavedPlaces SavedPlaces::with(const SavedPlace& next, std::int64_t keep) const {
  SavedPlaces after = *this;
  after.settle();
  const auto stay = static_cast<std::size_t>(std::max<std::int64_t>(0, keep - 1));
  if (keep >= 0 && after.kept_.size() > stay)
    after.kept_.erase(after.kept_.begin(), after.kept_.end() - static_cast<std::ptrdiff_t>(stay));
  after.coming_ = next;
  after.written_ = {};
  return after;
}

void SavedPlaces::settle() {
  if (!coming_ || !written_.valid() || written_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  try {
    if (written_.get()) kept_.push_back(*coming_);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it was never begun, and its trainer gets the error
  }
  coming_.reset();
  written_ = {};
}

std::vector<SavedPlace> SavedPlaces::all() const {
  std::vector<SavedPlace> all = kept_;
  if (coming_) all.push_back(*coming_);
  return all;
}

bool SavedPlaces::have_way_back(std::span<const SavedPlaces* const> all) {
  // `first`: for a trainer without a certain checkpoint, the one that may or may not get written.
  std::vector<Places> certain, first;
  for (const SavedPlaces* one : all) {
    certain.push_back(one->kept_);
    first.push_back(one->kept_.empty() ? one->all() : one->kept_);
  }
  if (share_one(certain)) return true;
  std::erase_if(first, [](const Places& places) { return places.empty(); });
  const auto is_beginning = [](const SavedPlaces* one) { return one->all().size() <= kMostOfBeginning; };
  return std::ranges::all_of(all, is_beginning) && (first.empty() || share_one(first));
}

bool SavedPlaces::differ(const SavedPlaces& a, const SavedPlaces& b) {
  const Places of_a = a.all(), of_b = b.all();
  return std::min(count_since_common(of_a, of_b), count_since_common(of_b, of_a)) > 1;
}

}  // namespace composer
