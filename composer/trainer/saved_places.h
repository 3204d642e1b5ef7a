#pragma once
// What trainers that resume together have saved, and whether they could go on from it after a kill.
#include <compare>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <vector>

namespace composer {

// A moment of the program: a batch of a fit, because time may be reset from one fit to the next.
struct SavedPlace {
  std::int64_t fit = 0, batch = 0;
  auto operator<=>(const SavedPlace&) const = default;
};

// Where a trainer has checkpoints.
class SavedPlaces {
 public:
  // As long as no trainer has more than these and one has none, the program may begin again.
  static constexpr std::size_t kMostOfBeginning = 2;

  SavedPlaces() = default;
  explicit SavedPlaces(std::vector<SavedPlace> there) : kept_(std::move(there)) {}

  // With one more, which is not written yet. What was saved before must be on disk, or have failed; of this, what the
  // new one leaves of `keep` checkpoints stays (-1: all).
  SavedPlaces with(const SavedPlace& next, std::int64_t keep) const;
  // The newest is being written: `written` is true once it is on disk, and false if it will not be.
  void begin_writing(std::shared_future<bool> written) { written_ = std::move(written); }
  void settle();                                                        // takes in whether it is written
  const std::shared_future<bool>& written() const { return written_; }  // of the newest; not valid: it is not awaited
  std::vector<SavedPlace> all() const;                                  // oldest first, with the one to come

  // Whether trainers of a program that is killed now can go on together or begin again, whatever is written by then.
  static bool have_way_back(std::span<const SavedPlaces* const> all);
  // Whether two trainers have saved more than once since the newest place that both have, and at different places: they
  // do not take equal turns. Once may be a stop.
  static bool differ(const SavedPlaces& a, const SavedPlaces& b);

 private:
  std::vector<SavedPlace> kept_;      // oldest first; on disk, and not deleted when the newest is there
  std::optional<SavedPlace> coming_;  // the newest, until it is on disk
  std::shared_future<bool> written_;  // whether it has come to be on disk
};

}  // namespace composer
