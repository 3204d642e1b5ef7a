#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "composer/data/mds/mds_shard.h"
#include "composer/net/remote_store.h"

namespace composer::data::detail {

struct ShardStoreSetup {
  std::string remote;              // URI; empty: all is in `local`
  std::filesystem::path local;     // folder of index.json and shards
  std::string validate_hash = {};  // empty: sizes alone are checked
  std::uint64_t cache_limit = 0;   // bytes; 0: none
  std::int64_t download_threads = 2;
  bool keep_zip = false;
  net::StoreOptions http = {};
};

// The shards of a data set: their files in a local folder, which are fetched and decompressed when they are needed, and
// deleted again when there are too many. Several processes may use one folder. Thread-safe. Errors are DataErrors.
class ShardStore {
 public:
  // Reads index.json, or fetches it.
  explicit ShardStore(ShardStoreSetup setup);
  ~ShardStore();
  ShardStore(const ShardStore&) = delete;
  ShardStore& operator=(const ShardStore&) = delete;

  const std::vector<MdsShardInfo>& shards() const { return shards_; }
  std::string index_name() const { return (setup_.local / kMdsIndex).string(); }

  // Whether a shard may have to be fetched or decompressed.
  bool fetches() const { return fetches_; }
  // Waits until the shard is there.
  std::shared_ptr<const MdsShard> open(std::size_t shard);
  // Begins to fetch these shards, in this order, instead of those of the last call that are still waiting; of more than
  // the cache holds, the first ones.
  void ahead(const std::vector<std::size_t>& shards);
  // Waits until the shards are there, or are no longer wanted. Throws if one of them cannot be had.
  void wait_for(const std::vector<std::size_t>& shards, const std::function<bool()>& wanted);

 private:
  struct Entry {
    std::shared_ptr<const MdsShard> open = {};
    std::uint64_t used = 0;  // by `uses_`, when it was last used here
    // Only with a cache_limit: when it was last used here, and when others were told so.
    std::filesystem::file_time_type used_at = std::filesystem::file_time_type::min();
    std::optional<std::chrono::steady_clock::time_point> touched = {};
    std::size_t needed = 0;    // its number in the last list of ahead(), from 1; 0: it is not there
    bool is_verified = false;  // its hash was right when this process fetched it, or saw it first
    bool is_queued = false, is_busy = false;
    std::uint64_t failures = 0;
    std::exception_ptr failure = {};
  };

  std::filesystem::path raw_path(std::size_t shard) const { return setup_.local / shards_[shard].raw.name; }
  std::filesystem::path lock_file(const std::string& name) const;
  std::filesystem::path temporary(const std::string& name) const;
  void remove_leftovers(const std::vector<std::string>& names) const;
  bool may_fetch(std::size_t shard) const;
  bool is_there(std::size_t shard) const;
  void read_index();
  std::shared_ptr<const MdsShard> opened(std::size_t shard, bool verify);
  void discard(std::size_t shard, bool verify);
  void remember(Entry& entry, std::size_t shard);
  void touch(Entry& entry, std::size_t shard) const;
  static void close(Entry& entry);

  void start_threads();
  void run();
  bool fetch(std::size_t shard);
  void fetch_locked(std::size_t shard);
  void put_in_place(const std::filesystem::path& fresh, const std::filesystem::path& to, std::uint64_t bytes) const;
  void download(const MdsFile& file, const std::filesystem::path& to);
  void check_file(const std::filesystem::path& path, const MdsFile& file, const char* remedy) const;
  void make_room(std::size_t shard);

  ShardStoreSetup setup_;
  std::vector<MdsShardInfo> shards_;
  bool fetches_ = false;
  const pid_t process_;
  std::stop_source stop_;

  struct Threads {  // leaked in a forked process, which does not have them
    std::condition_variable work, done;
    std::vector<std::thread> all;
  };

  std::mutex mutex_;  // guards the members below
  std::unique_ptr<Threads> threads_ = std::make_unique<Threads>();
  std::vector<Entry> entries_;
  std::deque<std::size_t> queue_;
  std::vector<std::size_t> ahead_;  // the last list of ahead(), as far as the cache holds it
  std::uint64_t uses_ = 0;
  std::vector<std::unique_ptr<net::RemoteStore>> idle_;  // each is used by one thread at a time
};

}  // namespace composer::data::detail
