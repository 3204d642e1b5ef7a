#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/loader.h"

namespace composer::data {

// A loader as one of its readers sees it. Each reader names the batch that it wants, and the loader is moved if another
// reader has moved it, or given it another seed, meanwhile: two trainers that take turns on one loader both get every
// batch, each in its own order. Copies are the same reader.
class COMPOSER_EXPORT SharedLoader {
 public:
  SharedLoader() = default;  // of no loader
  explicit SharedLoader(std::shared_ptr<Loader> loader);

  Loader* get() const { return loader_.get(); }
  // The seed of this reader's order, where the loader's options name none: each reader has its own.
  void set_default_seed(std::uint64_t seed);
  // Both throw ConfigError while another thread is inside one of them; `label` names the loader in it.
  void seek(const std::string& label, std::int64_t epoch, std::int64_t batch) const;
  std::optional<Batch> read(const std::string& label, std::int64_t epoch, std::int64_t batch) const;

 private:
  friend class LoaderLease;
  struct Readers;
  class Call;
  void adopt_seed() const;
  std::shared_ptr<Loader> loader_;
  std::optional<std::uint64_t> seed_;  // unset: whatever the loader has
  std::shared_ptr<Readers> readers_;   // one for each loader, found by its address
};

// The right to read a loader for as long as this lives, say for a fit. Any number of readers may have it on one thread.
class COMPOSER_EXPORT LoaderLease {
 public:
  LoaderLease() noexcept;  // of no loader
  // Throws ConfigError if somebody has leased the loader on another thread.
  LoaderLease(const SharedLoader& loader, const std::string& label);
  LoaderLease(LoaderLease&& other) noexcept;
  LoaderLease& operator=(LoaderLease&& other) noexcept;
  ~LoaderLease();

 private:
  struct Entry;
  std::unique_ptr<Entry> entry_;
};

}  // namespace composer::data
