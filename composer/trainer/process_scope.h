#pragma once
#include <memory>
#include <optional>

namespace composer {

// What a trainer wants of the process while it runs. Unset: as it is.
struct ProcessSettings {
  std::optional<bool> allow_tf32;     // of libtorch on an NVIDIA GPU; of the process
  std::optional<bool> deterministic;  // likewise libtorch's deterministic algorithms
  std::optional<int> threads;         // of libtorch's operators, on the trainer's thread
  bool tunes_threads = false;         // the number of threads may change within a scope

  bool empty() const { return !allow_tf32 && !deterministic && !threads && !tunes_threads; }
};

// While it lives the settings are in force; afterwards the process is as before, unless the program has changed it
// meanwhile. Scopes nest on one thread. `settings` outlives the scope, and `threads` may change within it.
class ProcessScope {
 public:
  // Throws ConfigError if a scope or a claim of other settings, on another thread, needs the process otherwise.
  // `claimed`: a ProcessClaim of these settings is held. If they are empty, and no other scope is open whose settings
  // would have to be taken back meanwhile, there is nothing to do.
  explicit ProcessScope(const ProcessSettings& settings, bool claimed = false);
  ~ProcessScope();
  ProcessScope(const ProcessScope&) = delete;
  ProcessScope& operator=(const ProcessScope&) = delete;

 private:
  const ProcessSettings& settings_;
  bool active_;
  int threads_before_ = 0;
};

// That scopes of these settings are going to come on this thread, for a fit whose program owns the loop: between two
// scopes the process is as it was, and who disagrees on another thread is told all the same.
class ProcessClaim {
 public:
  explicit ProcessClaim(const ProcessSettings& settings);  // throws as ProcessScope does
  ProcessClaim(ProcessClaim&&) noexcept = default;
  ProcessClaim& operator=(ProcessClaim&&) noexcept = default;
  ~ProcessClaim() = default;
  void move_here();  // from now on the scopes come on the calling thread

 private:
  struct Release {
    void operator()(const ProcessSettings* settings) const;
  };
  std::unique_ptr<const ProcessSettings, Release> settings_;
};

}  // namespace composer
