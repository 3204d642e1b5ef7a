#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "composer/core/tensors.h"
#include "composer/data/loader.h"

namespace composer::data {

// One reader of a loader that may have several readers. Each reader names the batch to read. If another reader has
// moved the loader or given it another seed, the loader is repositioned, so two trainers that use one loader in turns
// both get every batch, each in its own order. Copies are the same reader.
class SharedLoader {
 public:
  SharedLoader() = default;  // without a loader
  explicit SharedLoader(std::shared_ptr<Loader> loader);

  Loader* get() const { return loader_.get(); }
  // The seed of this reader's order, for loaders whose options set none.
  void set_default_seed(std::uint64_t seed);
  // Both throw ConfigError, with `label`, while another thread is inside one of them.
  void seek(const std::string& label, std::int64_t epoch, std::int64_t batch) const;
  std::optional<Batch> read(const std::string& label, std::int64_t epoch, std::int64_t batch) const;

 private:
  friend class LoaderLease;
  struct Readers;
  class Call;
  void adopt_seed() const;
  std::shared_ptr<Loader> loader_;
  std::optional<std::uint64_t> seed_;  // unset: the loader keeps its seed
  std::shared_ptr<Readers> readers_;   // shared by all readers of this loader; found by its address
};

// Reserves a loader for the calling thread while this object lives, e.g. for a fit. One thread may have several leases.
// A lease moves to another thread together with the trainer that owns it.
class LoaderLease {
 public:
  LoaderLease() noexcept;  // without a loader
  // Throws ConfigError if the loader is leased on another thread.
  LoaderLease(const SharedLoader& loader, const std::string& label);
  LoaderLease(LoaderLease&& other) noexcept;
  LoaderLease& operator=(LoaderLease&& other) noexcept;
  ~LoaderLease();
  void move_here();  // makes the calling thread the owner of the lease

 private:
  struct Entry;
  std::unique_ptr<Entry> entry_;
};

}  // namespace composer::data
