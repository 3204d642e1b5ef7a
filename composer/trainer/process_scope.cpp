#include "composer/trainer/process_scope.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "composer/core/error.h"
#include "composer/device/device_support.h"
#include "composer/util/threads_here.h"

namespace composer {
namespace {

// The settings that belong to the whole process, not to each thread.
struct Shared {
  struct Tf32 {
    std::array<at::Float32Precision, 3> of{};
    bool operator==(const Tf32&) const = default;
  };
  bool deterministic = false, warn_only = false;
  Tf32 tf32;
  bool operator==(const Shared&) const = default;
};

constexpr std::array kTf32Ops = {at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN};

// The accelerator of this process, or the CPU if there is none.
const DeviceSupport& accelerator() { return device_support(available_accelerator().value_or(at::kCPU)); }

Shared read_shared() {
  const at::Context& context = at::globalContext();
  Shared now{.deterministic = context.deterministicAlgorithms(),
             .warn_only = context.deterministicAlgorithmsWarnOnly()};
  const auto backend = accelerator().tf32_backend();
  for (std::size_t i = 0; backend && i < kTf32Ops.size(); ++i)
    now.tf32.of[i] = context.float32Precision(*backend, kTf32Ops[i]);
  return now;
}

void write(const Shared& wanted) {
  at::Context& context = at::globalContext();
  const Shared now = read_shared();
  if (wanted.deterministic && !now.deterministic) accelerator().prepare_determinism();
  if (now.deterministic != wanted.deterministic || now.warn_only != wanted.warn_only)
    context.setDeterministicAlgorithms(wanted.deterministic, wanted.warn_only);
  const auto backend = accelerator().tf32_backend();
  for (std::size_t i = 0; backend && i < kTf32Ops.size(); ++i)
    if (now.tf32.of[i] != wanted.tf32.of[i]) context.setFloat32Precision(*backend, kTf32Ops[i], wanted.tf32.of[i]);
}

Shared with(Shared base, const ProcessSettings& settings) {
  if (settings.deterministic) {
    base.deterministic = *settings.deterministic;
    base.warn_only = false;
  }
  if (settings.allow_tf32)
    base.tf32.of.fill(*settings.allow_tf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE);
  return base;
}

// Counts the scopes of all trainers.
class Process {
 public:
  static Process& instance() {
    static auto* const the_one = new Process;  // never destroyed: a trainer may be a global, which ends later
    return *the_one;
  }

  void claim(const ProcessSettings& settings) {
    const std::lock_guard lock(mutex_);
    check(settings);
    claims_.push_back({&settings, std::this_thread::get_id()});
  }
  void release(const ProcessSettings& settings) {
    const std::lock_guard lock(mutex_);
    remove_last(claims_, settings);
  }

  void move_here(const ProcessSettings& settings) {
    const std::lock_guard lock(mutex_);
    const auto it = std::ranges::find(claims_.rbegin(), claims_.rend(), &settings, &Entry::settings);
    if (it != claims_.rend()) it->thread = std::this_thread::get_id();
  }

  bool has_scopes() const { return open_ > 0; }
  void enter(const ProcessSettings& settings) {
    const std::lock_guard lock(mutex_);
    check(settings);
    if (scopes_.empty()) base_ = read_shared();
    scopes_.push_back({&settings, std::this_thread::get_id()});
    open_ = static_cast<int>(scopes_.size());
    write(with(base_, settings));
  }
  void leave(const ProcessSettings& settings) {
    const std::lock_guard lock(mutex_);
    remove_last(scopes_, settings);
    open_ = static_cast<int>(scopes_.size());
    if (read_shared() != with(base_, settings)) return;  // the program has changed the settings meanwhile
    write(scopes_.empty() ? base_ : with(base_, *scopes_.back().settings));
  }

 private:
  struct Entry {
    const ProcessSettings* settings;
    std::thread::id thread;
  };

  static void remove_last(std::vector<Entry>& entries, const ProcessSettings& settings) {
    const auto it = std::ranges::find(entries.rbegin(), entries.rend(), &settings, &Entry::settings);
    if (it != entries.rend()) entries.erase(std::next(it).base());
  }

  void check(const ProcessSettings& settings) const {
    const Shared base = scopes_.empty() ? read_shared() : base_;
    const Shared mine = with(base, settings);
    for (const auto* entries : {&scopes_, &claims_})
      for (const auto& [other, thread] : *entries) {
        if (other == &settings || thread == std::this_thread::get_id()) continue;
        const Shared its = with(base, *other);
        if (its.deterministic != mine.deterministic) disagree("deterministic_mode", mine.deterministic);
        if (its.tf32 != mine.tf32) disagree("allow_tf32", settings.allow_tf32.value_or(false));
      }
  }

  [[noreturn]] static void disagree(const char* option, bool mine) {
    throw ConfigError(option, ": is ", mine ? "true" : "false",
                      " here, and otherwise for a trainer that runs on another thread; libtorch has one such setting ",
                      "for the whole process, so set it alike in both, or run them one after the other");
  }

  std::mutex mutex_;  // guards the following
  std::vector<Entry> scopes_, claims_;
  Shared base_;  // the settings before the first scope

  std::atomic<int> open_ = 0;  // number of open scopes
};

}  // namespace

ProcessScope::ProcessScope(const ProcessSettings& settings, bool claimed)
    : settings_(settings), active_(!claimed || !settings.empty() || Process::instance().has_scopes()) {
  if (!active_) return;
  threads_before_ = at::get_num_threads();
  Process::instance().enter(settings);
  if (settings.threads && *settings.threads != threads_before_) use_threads_here(*settings.threads);
}

ProcessScope::~ProcessScope() {
  if (!active_) return;
  Process::instance().leave(settings_);
  const int threads = at::get_num_threads();
  if (threads != threads_before_ && (settings_.tunes_threads || threads == settings_.threads))
    use_threads_here(threads_before_);
}

ProcessClaim::ProcessClaim(const ProcessSettings& settings) {
  Process::instance().claim(settings);
  settings_.reset(&settings);
}

void ProcessClaim::move_here() { Process::instance().move_here(*settings_); }

void ProcessClaim::Release::operator()(const ProcessSettings* settings) const {
  Process::instance().release(*settings);
}

}  // namespace composer
