#pragma once
// Random numbers that belong to one owner, whatever else runs in the process.
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
  OwnRandom() = default;  // none: a scope changes nothing
  // Without a seed, the CPU's numbers continue those of libtorch's default generator, which is seeded anew with a
  // number drawn from it, so that nobody else draws the same ones; the other device is seeded with that number, too.
  OwnRandom(at::Device device, std::optional<std::uint64_t> seed);

  void seed(std::uint64_t seed) const;
  const at::Generator* find(at::Device device) const;  // nullptr: there is none for that device
  explicit operator bool() const { return generators_ != nullptr; }

  // For checkpoints: the state of each generator under the name of its device. restore() warns of one that is missing.
  StateDict state() const;
  void restore(const StateDict& state) const;

 private:
  std::shared_ptr<const std::vector<at::Generator>> generators_;  // the CPU's first
};

// While it lives, this thread draws from `own`. Scopes nest. Threads that are started meanwhile are not affected.
class COMPOSER_EXPORT RandomScope {
 public:
  explicit RandomScope(const OwnRandom& own);  // `own` outlives the scope
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  const OwnRandom* before_;
  c10::impl::IncludeDispatchKeyGuard on_;
};

// What operators of this thread draw from: those of the innermost scope, none without one.
COMPOSER_EXPORT OwnRandom current_random();
// The generator of it for this device, libtorch's default generator if there is none.
COMPOSER_EXPORT at::Generator current_generator(at::Device device);

// While the result lives, no trainer's numbers stand in for those of libtorch's default generators.
std::unique_lock<std::mutex> hold_default_generators();

// While it lives, this thread records the work of a device, which will be repeated without what the host does. So
// decides_on_host() throws, and if it is not the CPU that records, drawing from a generator of the CPU does.
class COMPOSER_EXPORT RecordingScope {
 public:
  explicit RecordingScope(at::Device device);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  std::optional<at::Device> before_;
};

// For what chooses on the host, at random, which work is queued. `what` is the beginning of the error's sentence: "a
// block is dropped or kept by a random number of the host". Throws Error within a RecordingScope of this thread.
COMPOSER_EXPORT void decides_on_host(std::string_view what);
COMPOSER_EXPORT bool is_recording();  // within one

}  // namespace composer
