#pragma once
// Random numbers that belong to one owner, independent of everything else that runs in the process.
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer {

// One generator for the CPU and one for another device. Within a RandomScope, libtorch's operators draw from them where
// they would draw from libtorch's default generators. Copies share the generators.
class COMPOSER_EXPORT OwnRandom {
 public:
  OwnRandom() = default;  // no generators: a scope changes nothing
  // Without a seed, the CPU's generator continues libtorch's default generator, which is then seeded with a number
  // drawn from it, so that nobody else draws the same numbers. The other device is seeded with that number as well.
  OwnRandom(at::Device device, std::optional<std::uint64_t> seed);

  void seed(std::uint64_t seed) const;
  const at::Generator* find(at::Device device) const;  // nullptr: there is none for that device
  explicit operator bool() const { return generators_ != nullptr; }

  // The state of each generator, under the name of its device, for checkpoints. restore() warns of one that is missing.
  StateDict state() const;
  void restore(const StateDict& state) const;

 private:
  std::shared_ptr<const std::vector<at::Generator>> generators_;  // the CPU's first
};

// While it lives, this thread draws from `own`. Scopes may be nested. Threads started meanwhile are not affected.
class COMPOSER_EXPORT RandomScope {
 public:
  explicit RandomScope(const OwnRandom& own);  // `own` must outlive the scope
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  const OwnRandom* before_;
  c10::impl::IncludeDispatchKeyGuard on_;
};

// The generators of the innermost scope of this thread; none outside of scopes.
COMPOSER_EXPORT OwnRandom current_random();
// The generator of current_random() for this device, or libtorch's default generator if there is none.
COMPOSER_EXPORT at::Generator current_generator(at::Device device);

// While the result lives, no OwnRandom replaces the state of libtorch's default generators.
std::unique_lock<std::mutex> hold_default_generators();

// While it lives, this thread records the work of a device, to be repeated without the host. Therefore
// decides_on_host() throws and, if the device is not the CPU, drawing from a CPU generator throws, too.
class COMPOSER_EXPORT RecordingScope {
 public:
  explicit RecordingScope(at::Device device);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  std::optional<at::Device> before_;
};

// To be called by code that chooses the queued work by a random number on the host. Throws Error within a
// RecordingScope of this thread. `what` begins the message, as in "a block is dropped or kept by a random number of the
// host".
COMPOSER_EXPORT void decides_on_host(std::string_view what);
COMPOSER_EXPORT bool is_recording();  // within a RecordingScope of this thread

}  // namespace composer
