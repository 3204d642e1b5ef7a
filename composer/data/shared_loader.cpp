#include "composer/data/shared_loader.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "composer/core/error.h"

namespace composer::data {

struct ReadingPosition {
  std::int64_t epoch, batch;
  bool operator==(const ReadingPosition&) const = default;
};

struct SharedLoader::Readers {
  std::atomic<bool> busy = false;  // a thread is using the loader
  // Position and seed of the loader, used by the thread that is inside; unset: unknown.
  std::optional<ReadingPosition> position;
  std::optional<std::uint64_t> seed;

  std::mutex mutex;  // guards the members below
  std::vector<std::thread::id> leased;
};

// The time during which one thread uses the loader.
class SharedLoader::Call {
 public:
  Call(Readers& readers, const std::string& label) : readers_(readers) {
    if (!enter(readers))
      throw ConfigError(label, " loader: two threads read it at the same time; give each trainer a loader of its own");
  }
  explicit Call(Readers& readers) : readers_(readers) {}  // enter() has returned true
  static bool enter(Readers& readers) { return !readers.busy.exchange(true, std::memory_order_acquire); }
  ~Call() { readers_.busy.store(false, std::memory_order_release); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Readers& readers_;
};

SharedLoader::SharedLoader(std::shared_ptr<Loader> loader) : loader_(std::move(loader)) {
  if (!loader_) return;
  static std::mutex mutex;
  static std::unordered_map<const Loader*, std::weak_ptr<Readers>> all;
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Readers>& known = all[loader_.get()];
  readers_ = known.lock();
  if (!readers_) known = readers_ = std::make_shared<Readers>();
}

void SharedLoader::set_default_seed(std::uint64_t seed) {
  seed_ = seed;
  if (!loader_ || !Call::enter(*readers_)) return;  // if it is in use, the next read() sets the seed
  const Call call(*readers_);
  adopt_seed();
}

void SharedLoader::adopt_seed() const {
  if (!seed_ || readers_->seed == seed_) return;
  readers_->position.reset();
  readers_->seed.reset();
  loader_->set_default_seed(*seed_);
  readers_->seed = seed_;
}

void SharedLoader::seek(const std::string& label, std::int64_t epoch, std::int64_t batch) const {
  const Call call(*readers_, label);
  adopt_seed();
  readers_->position.reset();
  loader_->seek(epoch, batch);
  readers_->position = {epoch, batch};
}

std::optional<Batch> SharedLoader::read(const std::string& label, std::int64_t epoch, std::int64_t batch) const {
  const Call call(*readers_, label);
  adopt_seed();
  if (const ReadingPosition wanted{epoch, batch}; readers_->position != wanted) {
    readers_->position.reset();
    loader_->seek(epoch, batch);
    readers_->position = wanted;
  }
  std::optional<Batch> read = loader_->next();  // if it throws, a reader that continues gets the following batch
  readers_->position = {epoch, batch + (read ? 1 : 0)};
  return read;
}

struct LoaderLease::Entry {
  std::shared_ptr<SharedLoader::Readers> readers;
  std::thread::id thread;
};

LoaderLease::LoaderLease(const SharedLoader& loader, const std::string& label) {
  if (!loader.readers_) return;
  SharedLoader::Readers& readers = *loader.readers_;
  const std::thread::id here = std::this_thread::get_id();
  const std::lock_guard lock(readers.mutex);
  if (std::ranges::any_of(readers.leased, [&](const std::thread::id& other) { return other != here; }))
    throw ConfigError(label,
                      " loader: a trainer on another thread is reading it; give each trainer a loader of its own, or ",
                      "run them one after the other");
  entry_ = std::make_unique<Entry>(Entry{loader.readers_, here});
  readers.leased.push_back(here);
}

LoaderLease::LoaderLease() noexcept = default;
LoaderLease::LoaderLease(LoaderLease&&) noexcept = default;

LoaderLease& LoaderLease::operator=(LoaderLease&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

void LoaderLease::move_here() {
  if (!entry_) return;
  const std::lock_guard lock(entry_->readers->mutex);
  auto& leased = entry_->readers->leased;
  *std::ranges::find(leased, entry_->thread) = std::this_thread::get_id();
  entry_->thread = std::this_thread::get_id();
}

LoaderLease::~LoaderLease() {
  if (!entry_) return;
  const std::lock_guard lock(entry_->readers->mutex);
  auto& leased = entry_->readers->leased;
  leased.erase(std::ranges::find(leased, entry_->thread));
}

}  // namespace composer::data
