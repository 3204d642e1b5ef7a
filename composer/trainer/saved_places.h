#pragma once
// The positions at which trainers that resume together were saved, and whether the program could be resumed from them
// after a kill.
#include <compare>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <span>
#include <vector>

namespace composer {

// A moment of the program. It includes the number of the fit, because time may be reset between fits.
struct SavedPlace {
  std::int64_t fit = 0, batch = 0;
  auto operator<=>(const SavedPlace&) const = default;
};

// The positions of a trainer's checkpoints.
class SavedPlaces {
 public:
  // The program may begin again as long as one trainer has no checkpoint, and no trainer has more than this number.
  static constexpr std::size_t kMostOfBeginning = 2;

  SavedPlaces() = default;
  explicit SavedPlaces(std::vector<SavedPlace> there) : kept_(std::move(there)) {}

  // These positions with `next`, which is not written yet. All earlier checkpoints must be on disk, or have failed.
  // Only the newest `keep` - 1 of them stay, because `keep` checkpoints are kept in all (-1: all).
  SavedPlaces with(const SavedPlace& next, std::int64_t keep) const;
  // The newest checkpoint is being written. `written` becomes true once it is on disk, and false if the write fails.
  void begin_writing(std::shared_future<bool> written) { written_ = std::move(written); }
  void settle();  // adds the newest checkpoint if it has been written
  // Whether the newest checkpoint got to the disk. Not valid: no write is pending.
  const std::shared_future<bool>& written() const { return written_; }
  std::vector<SavedPlace> all() const;  // oldest first, with the one being written

  // Whether trainers of a program that is killed now can all resume or begin again, whichever of the pending
  // checkpoints have been written by then.
  static bool have_way_back(std::span<const SavedPlaces* const> all);
  // Whether two trainers have both saved more than once since the newest position that they have in common, at
  // different positions: they do not take equal turns. A single save may be due to a stop.
  static bool differ(const SavedPlaces& a, const SavedPlaces& b);

 private:
  std::vector<SavedPlace> kept_;      // oldest first; on disk, and not deleted once the newest is there
  std::optional<SavedPlace> coming_;  // the newest, until it is on disk
  std::shared_future<bool> written_;  // whether the newest checkpoint got to the disk
};

}  // namespace composer
