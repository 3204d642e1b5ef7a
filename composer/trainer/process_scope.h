#pragma once
#include <memory>
#include <optional>

namespace composer {

// The settings of the process that a trainer needs while it runs. Unset fields are left as they are.
struct ProcessSettings {
  std::optional<bool> allow_tf32;     // for libtorch on an NVIDIA GPU; a setting of the whole process
  std::optional<bool> deterministic;  // libtorch's deterministic algorithms; also a setting of the whole process
  std::optional<int> threads;         // for libtorch's operators on the trainer's thread
  bool tunes_threads = false;         // the number of threads may change within a scope

  bool empty() const { return !allow_tf32 && !deterministic && !threads && !tunes_threads; }
};

// Applies the settings for its lifetime, then restores those of the process, unless the program has changed them
// meanwhile. Scopes nest on one thread. `settings` must outlive the scope; `threads` may change within it.
class ProcessScope {
 public:
  // Throws ConfigError if a scope or a claim on another thread has conflicting settings. `claimed`: a ProcessClaim of
  // these settings is held. With empty settings nothing is done, unless another scope is open whose settings would have
  // to be undone for the duration of this one.
  explicit ProcessScope(const ProcessSettings& settings, bool claimed = false);
  ~ProcessScope();
  ProcessScope(const ProcessScope&) = delete;
  ProcessScope& operator=(const ProcessScope&) = delete;

 private:
  const ProcessSettings& settings_;
  bool active_;
  int threads_before_ = 0;
};

// Reserves settings on this thread for a fit whose program owns the loop. Between two scopes of the fit the process has
// its own settings, but conflicting settings on another thread are an error all the same.
class ProcessClaim {
 public:
  explicit ProcessClaim(const ProcessSettings& settings);  // throws like ProcessScope
  ProcessClaim(ProcessClaim&&) noexcept = default;
  ProcessClaim& operator=(ProcessClaim&&) noexcept = default;
  ~ProcessClaim() = default;
  void move_here();  // later scopes are opened on the calling thread

 private:
  struct Release {
    void operator()(const ProcessSettings* settings) const;
  };
  std::unique_ptr<const ProcessSettings, Release> settings_;
};

}  // namespace composer
