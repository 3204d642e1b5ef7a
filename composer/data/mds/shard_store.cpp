#include "composer/data/mds/shard_store.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "composer/core/error.h"
#include "composer/data/mds/mds_compression.h"
#include "composer/data/mds/mds_hash.h"
#include "composer/util/own_descriptor.h"
#include "composer/util/random_text.h"

namespace composer::data::detail {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* kScratch = ".download";  // folder of what is not complete yet, and of locks
constexpr const char* kCacheLock = "%cache.lock";
constexpr const char* kTemporary = "%t";  // in names there, which do not have it otherwise
constexpr std::size_t kMostOpen = 128;    // files of this process, but for one of each data set
constexpr int kMostTries = 4;             // to open a shard that other processes delete, or that is damaged
constexpr auto kPoll = 20ms;              // between looks at what another process does
constexpr auto kTouch = 5s;               // how exactly other processes know when a shard was used last

std::atomic<std::size_t> open_files = 0;

// Excludes other processes, and other objects of this one, while it lives.
class FolderLock {
 public:
  FolderLock(const fs::path& file, const std::stop_token& stop) {
    fs::create_directories(file.parent_path());
    if (!descriptor_.open(file, O_RDWR | O_CREAT))
      throw DataError(file.string(), ": cannot be created: ", std::strerror(errno));
    while (!descriptor_.try_lock()) {
      if (errno != EWOULDBLOCK) return;
      if (stop.stop_requested()) throw net::Cancelled("the data set was closed");
      std::this_thread::sleep_for(kPoll);
    }
    holds_ = true;
  }
  // False: the file system has no locks, so a shard may be fetched twice, and others may be at it now.
  bool holds() const { return holds_; }

 private:
  util::OwnDescriptor descriptor_;
  bool holds_ = false;
};

std::uint64_t bytes_of(const fs::path& file) {
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(file, error);
  return error ? 0 : bytes;
}

// A name of a file below the folder as that of a file in it, one for each. After a "%" there is 2.
std::string flat(const std::string& name) {
  std::string text;
  for (const char c : name) text += c == '/' ? "%2F" : c == '%' ? "%25" : std::string(1, c);
  return text;
}

std::string content_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw DataError(file.string(), ": cannot be opened: ", std::strerror(errno));
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

ShardStore::ShardStore(ShardStoreSetup setup) : setup_(std::move(setup)), process_(::getpid()) {
  read_index();
  entries_.resize(shards_.size());
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const MdsShardInfo& shard = shards_[i];
    fetches_ |= may_fetch(i);
    const std::string who = join(index_name(), ": shard ", i, ": ");
    if (shard.zip) parse_mds_compression(who, shard.compression);
    const MdsFile& stored = shard.zip ? *shard.zip : shard.raw;
    if (setup_.validate_hash.empty() || stored.hash(setup_.validate_hash)) continue;
    std::string known;
    for (const auto& [algorithm, digest] : stored.hashes) known += (known.empty() ? "" : ", ") + algorithm;
    throw ConfigError(who, "has no ", setup_.validate_hash, " for validate_hash; there ",
                      known.empty() ? "is no hash" : "are ", known);
  }
}

ShardStore::~ShardStore() {
  if (::getpid() != process_) {
    [[maybe_unused]] const Threads* leaked = threads_.release();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_.request_stop();
  }
  threads_->work.notify_all();
  for (std::thread& thread : threads_->all) thread.join();
  for (const Entry& entry : entries_) open_files -= entry.open ? 1 : 0;
}

fs::path ShardStore::lock_file(const std::string& name) const {
  return setup_.local / kScratch / (flat(name) + ".lock");
}

// A new name each time, because other machines may be at the same file where there are no locks. It ends as the file's,
// because that tells gzip.
fs::path ShardStore::temporary(const std::string& name) const {
  const std::string ending = fs::path(name).extension().string();
  return setup_.local / kScratch / join(kTemporary, flat(name), kTemporary, util::random_text(16), ending);
}

// Removes what killed processes have left of these files. The caller has the lock, so nobody else is at them. What
// RemoteStore::get() downloads has a dot before the name.
void ShardStore::remove_leftovers(const std::vector<std::string>& names) const {
  for (const auto& left : fs::directory_iterator(setup_.local / kScratch)) {
    const std::string name = left.path().filename().string();
    for (const std::string& of : names) {
      const std::string begin = join(kTemporary, flat(of), kTemporary);
      std::error_code ignored;
      if (name.starts_with(begin) || name.starts_with('.' + begin)) fs::remove(left.path(), ignored);
    }
  }
}

// It is read before it gets its name, so that an error page of a server does not become the index for good.
void ShardStore::read_index() {
  const fs::path path = setup_.local / kMdsIndex;
  std::error_code error;
  if (!fs::exists(path, error) && !setup_.remote.empty()) {
    try {
      const FolderLock lock(lock_file(kMdsIndex), {});
      if (!fs::exists(path, error)) {
        if (lock.holds()) remove_leftovers({kMdsIndex});
        const fs::path fresh = temporary(kMdsIndex);
        net::open_store(setup_.remote, setup_.http)->get(kMdsIndex, fresh);
        try {
          read_mds_index(content_of(fresh), join(net::shown_url(setup_.remote), '/', kMdsIndex));
        } catch (...) {
          fs::remove(fresh, error);
          throw;
        }
        fs::rename(fresh, path);
      }
    } catch (const ConfigError&) {
      throw;
    } catch (const DataError&) {
      throw;
    } catch (const std::exception&) {
      throw_nested<DataError>("the ", kMdsIndex, " of ", net::shown_url(setup_.remote), " cannot be fetched");
    }
  }
  if (!fs::exists(path, error))
    throw DataError(path.string(), ": is missing; name the folder of an MDS data set, or a remote one");
  shards_ = read_mds_index(content_of(path), path.string());
}

bool ShardStore::may_fetch(std::size_t shard) const { return !setup_.remote.empty() || shards_[shard].zip; }

bool ShardStore::is_there(std::size_t shard) const {
  std::error_code error;
  return fs::file_size(raw_path(shard), error) == shards_[shard].raw.bytes && !error;
}

void ShardStore::check_file(const fs::path& path, const MdsFile& file, const char* remedy) const {
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(path, error);
  if (error) throw DataError(path.string(), ": cannot be read: ", error.message(), remedy);
  if (bytes != file.bytes)
    throw ShardDamage(path.string(), ": has ", bytes, " bytes, and ", file.bytes, " by ", kMdsIndex, remedy);
  const std::string* hash = setup_.validate_hash.empty() ? nullptr : file.hash(setup_.validate_hash);
  if (hash && mds_hash_of_file(setup_.validate_hash, path) != *hash)
    throw ShardDamage(path.string(), ": its ", setup_.validate_hash, " is not ", *hash, remedy);
}

std::shared_ptr<const MdsShard> ShardStore::opened(std::size_t shard, bool verify) {
  const fs::path path = raw_path(shard);
  if (verify) check_file(path, shards_[shard].raw, "; it is damaged");
  return open_mds_shard(path, shards_[shard]);
}

// Deletes a damaged shard, so that it is fetched again; but not one that another process has put there meanwhile.
void ShardStore::discard(std::size_t shard, bool verify) {
  const FolderLock lock(lock_file(shards_[shard].raw.name), stop_.get_token());
  try {
    opened(shard, verify);
  } catch (const ShardDamage&) {
    std::error_code ignored;
    fs::remove(raw_path(shard), ignored);
  } catch (const DataError&) {  // NOLINT(bugprone-empty-catch)
    // It is deleted by now, or cannot be opened, as open() will find.
  }
}

void ShardStore::close(Entry& entry) {
  entry.open.reset();
  --open_files;
}

void ShardStore::touch(Entry& entry, std::size_t shard) const {
  if (setup_.cache_limit == 0) return;
  entry.used_at = fs::file_time_type::clock::now();
  const auto now = std::chrono::steady_clock::now();  // the other clock may be set back
  if (entry.touched && now - *entry.touched < kTouch) return;
  std::error_code ignored;
  fs::last_write_time(raw_path(shard), entry.used_at, ignored);
  entry.touched = now;
}

// Closes what was not used for the longest time.
void ShardStore::remember(Entry& entry, std::size_t shard) {
  entry.used = ++uses_;
  touch(entry, shard);
  if (open_files <= kMostOpen) return;
  Entry* oldest = nullptr;
  for (Entry& other : entries_)
    if (other.open && &other != &entry && (!oldest || other.used < oldest->used)) oldest = &other;
  if (oldest) close(*oldest);
}

std::shared_ptr<const MdsShard> ShardStore::open(std::size_t shard) {
  for (int tries = 0;; ++tries) {  // another process may delete it between the looks
    bool verify = false;
    {
      const std::lock_guard lock(mutex_);
      Entry& entry = entries_[shard];
      if (entry.open) {
        remember(entry, shard);
        return entry.open;
      }
      verify = !setup_.validate_hash.empty() && !entry.is_verified && shards_[shard].raw.hash(setup_.validate_hash);
    }
    const bool there = is_there(shard);
    if (there || !may_fetch(shard) || tries == kMostTries) {
      std::shared_ptr<const MdsShard> made;
      try {
        made = opened(shard, verify);
      } catch (const ShardDamage&) {
        if (setup_.remote.empty() || tries == kMostTries) throw;
        discard(shard, verify);  // and again from the remote folder
        continue;
      } catch (const DataError&) {  // it is deleted by now, or cannot be opened
        if (setup_.remote.empty() || tries == kMostTries || is_there(shard)) throw;
        continue;
      }
      const std::lock_guard lock(mutex_);
      Entry& entry = entries_[shard];
      entry.is_verified |= verify;
      if (!entry.open) {
        entry.open = std::move(made);
        ++open_files;
      }
      const auto found = entry.open;
      remember(entry, shard);
      return found;
    }
    wait_for({shard}, [] { return true; });
  }
}

void ShardStore::start_threads() {
  if (::getpid() != process_)
    throw ConfigError(
        "StreamingDataset: was opened before a fork(), so its downloads do not go on in this process; open it here");
  while (threads_->all.size() < static_cast<std::size_t>(setup_.download_threads))
    threads_->all.emplace_back([this] { run(); });
}

void ShardStore::ahead(const std::vector<std::size_t>& shards) {
  std::vector<std::size_t> missing;
  {
    std::uint64_t bytes = 0;
    const std::lock_guard lock(mutex_);
    for (const std::size_t shard : std::exchange(ahead_, {})) entries_[shard].needed = 0;
    for (const std::size_t shard : shards) {
      const MdsShardInfo& info = shards_[shard];
      Entry& entry = entries_[shard];
      bytes += info.raw.bytes + (info.zip ? info.zip->bytes : 0);
      if (setup_.cache_limit > 0 && bytes > setup_.cache_limit) break;
      ahead_.push_back(shard);
      entry.needed = ahead_.size();
      if (may_fetch(shard) && !entry.open) missing.push_back(shard);
    }
    for (auto shard = ahead_.rbegin(); shard != ahead_.rend(); ++shard) touch(entries_[*shard], *shard);
  }
  std::erase_if(missing, [this](std::size_t shard) { return is_there(shard); });
  const std::lock_guard lock(mutex_);
  for (const std::size_t shard : queue_) entries_[shard].is_queued = false;
  queue_.clear();
  for (const std::size_t shard : missing) {
    Entry& entry = entries_[shard];
    if (entry.is_busy || entry.is_queued) continue;
    entry.is_queued = true;
    queue_.push_back(shard);
  }
  if (queue_.empty()) return;
  start_threads();
  threads_->work.notify_all();
}

void ShardStore::wait_for(const std::vector<std::size_t>& shards, const std::function<bool()>& wanted) {
  for (const std::size_t shard : shards) {
    if (!may_fetch(shard)) continue;
    std::unique_lock lock(mutex_);
    Entry& entry = entries_[shard];
    const std::uint64_t failures = entry.failures;
    while (wanted() && !entry.open) {
      lock.unlock();
      const bool there = is_there(shard);
      lock.lock();
      if (there) break;
      if (entry.failures > failures) std::rethrow_exception(entry.failure);
      if (!entry.is_busy) {
        start_threads();
        if (!entry.is_queued || queue_.front() != shard) {
          if (entry.is_queued) std::erase(queue_, shard);
          queue_.push_front(shard);
          entry.is_queued = true;
        }
        threads_->work.notify_all();
      }
      threads_->done.wait_for(lock, kPoll);
    }
  }
}

void ShardStore::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    threads_->work.wait(lock, [this] { return stop_.stop_requested() || !queue_.empty(); });
    if (stop_.stop_requested()) return;
    const std::size_t shard = queue_.front();
    queue_.pop_front();
    Entry& entry = entries_[shard];
    entry.is_queued = false;
    entry.is_busy = true;
    lock.unlock();
    std::exception_ptr failure;
    bool is_verified = false;  // not if another process has fetched it, which may not compare hashes
    try {
      is_verified = fetch(shard);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    entry.is_busy = false;
    if (failure) {
      ++entry.failures;
      entry.failure = std::move(failure);
    } else {
      entry.is_verified |= is_verified;
    }
    threads_->done.notify_all();
  }
}

// Returns false if another process has fetched it meanwhile.
bool ShardStore::fetch(std::size_t shard) {
  try {
    const MdsShardInfo& info = shards_[shard];
    const FolderLock lock(lock_file(info.raw.name), stop_.get_token());
    if (is_there(shard)) return false;
    if (lock.holds()) remove_leftovers({info.raw.name, info.zip ? info.zip->name : info.raw.name});
    fetch_locked(shard);
    return true;
  } catch (const std::exception&) {
    const MdsFile& stored = shards_[shard].zip ? *shards_[shard].zip : shards_[shard].raw;
    const std::string from = setup_.remote.empty() ? setup_.local.string() : std::string(net::shown_url(setup_.remote));
    throw_nested<DataError>("shard ", shard, ", ", stored.name, ", of ", from, ": cannot be had");
  }
}

void ShardStore::fetch_locked(std::size_t shard) {
  const MdsShardInfo& info = shards_[shard];
  const bool has_remote = !setup_.remote.empty();
  if (setup_.cache_limit > 0) make_room(shard);
  const fs::path raw = raw_path(shard);
  fs::create_directories(raw.parent_path());
  if (!info.zip) {
    const fs::path fresh = temporary(info.raw.name);
    download(info.raw, fresh);
    put_in_place(fresh, raw, info.raw.bytes);
    return;
  }
  const fs::path kept = setup_.local / info.zip->name;
  const bool has_kept = bytes_of(kept) == info.zip->bytes;
  if (!has_kept && !has_remote) check_file(kept, *info.zip, "; it is missing or damaged");
  const fs::path zip = has_kept ? kept : temporary(info.zip->name);
  if (has_kept)
    check_file(zip, *info.zip, has_remote ? "; delete it to fetch it again" : "; it is damaged");
  else
    download(*info.zip, zip);
  const fs::path fresh = temporary(info.raw.name);
  try {
    mds_decompress(parse_mds_compression(zip.string() + ": ", info.compression), zip, fresh, info.raw.bytes);
    check_file(fresh, info.raw, "; its compressed file is damaged");
  } catch (...) {
    std::error_code ignored;
    if (!has_kept) fs::remove(zip, ignored);
    fs::remove(fresh, ignored);
    throw;
  }
  put_in_place(fresh, raw, info.raw.bytes);
  if (!has_remote) return;
  if (!has_kept && setup_.keep_zip) {
    fs::create_directories(kept.parent_path());
    put_in_place(zip, kept, info.zip->bytes);
  } else if (!setup_.keep_zip) {
    fs::remove(zip);
  }
}

// Where a machine has no locks and another one has them, that one may take the file for a leftover, and fetches it.
void ShardStore::put_in_place(const fs::path& fresh, const fs::path& to, std::uint64_t bytes) const {
  std::error_code error;
  fs::rename(fresh, to, error);
  if (!error || (error == std::errc::no_such_file_or_directory && bytes_of(to) == bytes)) return;
  throw DataError(to.string(), ": cannot be put in place: ", error.message());
}

void ShardStore::download(const MdsFile& file, const fs::path& to) {
  std::unique_ptr<net::RemoteStore> store;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      store = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!store) store = net::open_store(setup_.remote, setup_.http);
  for (int tries = setup_.http.http.retry.attempts;; --tries) {
    store->get(file.name, to, stop_.get_token());
    try {
      check_file(to, file, "; the remote file is damaged, or not that of this index.json");
      break;
    } catch (const DataError&) {
      fs::remove(to);
      if (tries <= 1) throw;
    }
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(store));
}

// Deletes the shards that were not used for the longest time, by this process or others, until another one fits; those
// that ahead() has asked for only after all others, and of them the one that is needed last. A shard that is being read
// in another process stays readable there until it is closed.
void ShardStore::make_room(std::size_t shard) {
  const FolderLock one_at_a_time(setup_.local / kScratch / kCacheLock, stop_.get_token());
  std::vector<fs::file_time_type> used_here;
  std::vector<std::size_t> needed;
  {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      used_here.push_back(entry.used_at);
      needed.push_back(entry.needed);
    }
  }
  struct Candidate {
    std::size_t needed;  // as in Entry
    fs::file_time_type used;
    std::size_t shard;
    std::uint64_t bytes;
  };
  std::vector<Candidate> candidates;
  std::uint64_t all = shards_[shard].raw.bytes + (shards_[shard].zip ? shards_[shard].zip->bytes : 0);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    const std::uint64_t zip = shards_[i].zip ? bytes_of(setup_.local / shards_[i].zip->name) : 0;
    const std::uint64_t bytes = bytes_of(raw_path(i)) + zip;
    if (bytes == 0 || i == shard) continue;
    all += bytes;
    std::error_code error;
    candidates.push_back({needed[i], std::max(fs::last_write_time(raw_path(i), error), used_here[i]), i, bytes});
  }
  if (all <= setup_.cache_limit) return;
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    if ((a.needed == 0) != (b.needed == 0)) return a.needed == 0;
    return std::tuple(b.needed, a.used, a.shard) < std::tuple(a.needed, b.used, b.shard);
  });
  const std::lock_guard lock(mutex_);
  for (const Candidate& candidate : candidates) {
    if (all <= setup_.cache_limit) break;
    Entry& entry = entries_[candidate.shard];
    if (entry.is_busy || entry.open.use_count() > 1) continue;
    if (entry.open) close(entry);
    entry.is_verified = false;
    std::error_code ignored;
    fs::remove(raw_path(candidate.shard), ignored);
    if (shards_[candidate.shard].zip) fs::remove(setup_.local / shards_[candidate.shard].zip->name, ignored);
    all -= candidate.bytes;
  }
  // Those that other processes have deleted keep their space while they are open.
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (Entry& entry = entries_[i]; (entry.open || entry.is_verified) && !is_there(i)) {
      entry.is_verified = false;
      if (entry.open.use_count() == 1) close(entry);
    }
}

}  // namespace composer::data::detail
