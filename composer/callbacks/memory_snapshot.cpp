#include "composer/callbacks/memory_snapshot.h"

#include <optional>
#include <utility>
#include <vector>

#include "composer/callbacks/callback_files.h"
#include "composer/callbacks/rank_name.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/device/allocator_history.h"
#include "composer/device/device_support.h"
#include "composer/util/absolute_format.h"
#include "composer/util/new_file.h"

namespace composer::callbacks {

namespace {

std::vector<Option<MemorySnapshotOptions>> memory_snapshot_options() {
  using O = MemorySnapshotOptions;
  const auto is_length = [](Time time) { return time.unit() != TimeUnit::DURATION && time > 0; };
  return all_options(
      option("skip_batches", &O::skip_batches).at_least(0),
      option("interval", &O::interval).must("be > 0 and not in dur", is_length).refuses({"0ba", "0.1dur"}),
      option("max_entries", &O::max_entries).at_least(1),
      option("folder", &O::folder).not_empty().refuses({"{run_name"}),
      option("filename", &O::filename).not_empty().refuses({"{batch"}),
      option("remote_file_name", &O::remote_file_name).refuses({"{run_name"}), option("overwrite", &O::overwrite));
}

}  // namespace

struct MemorySnapshot::Impl {
  explicit Impl(MemorySnapshotOptions given)
      : options(checked("MemorySnapshot", std::move(given), memory_snapshot_options())) {
    check_file_names(
        "MemorySnapshot",
        {{"folder", options.folder}, {"filename", options.filename}, {"remote_file_name", options.remote_file_name}});
  }

  template <class Use>
  void attempt(const Use& use) {
    try {
      use();
    } catch (const std::exception& error) {
      done = true;
      warn(join("MemorySnapshot: no snapshot is written: ", describe(error)));
    }
  }

  void stop() {
    if (std::exchange(recording, false)) source->stop();
  }

  void write(const State& state, Logger& logger) {
    const auto named = [&](const std::string& format) { return saving::format_name(format, state, &state.timestamp); };
    const auto file_in = [&](const std::string& where) {
      return join(named(where), '/', named(options.filename), rank_suffix(state, {where, options.filename}), ".pickle");
    };
    const std::string path = file_in(folder);
    util::write_whole_file(path, source->snapshot());
    if (options.remote_file_name.empty()) return;
    logger.upload_file({.path = path, .name = file_in(options.remote_file_name), .overwrite = options.overwrite});
  }

  MemorySnapshotOptions options;
  std::string folder;  // absolute, with placeholders replaced
  std::unique_ptr<AllocatorHistory> source;
  std::int64_t skipped = 0;
  bool recording = false, done = false;
  Timestamp started;
};

MemorySnapshot::MemorySnapshot(MemorySnapshotOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
MemorySnapshot::MemorySnapshot(MemorySnapshotOptions options, std::unique_ptr<AllocatorHistory> source)
    : MemorySnapshot(std::move(options)) {
  impl_->source = std::move(source);
}
MemorySnapshot::~MemorySnapshot() = default;
MemorySnapshot::MemorySnapshot(MemorySnapshot&&) noexcept = default;

void MemorySnapshot::init(const State& state, Logger&) {
  Impl& impl = *impl_;
  impl.folder = util::absolute_format(impl.options.folder);
  if (!impl.source) impl.source = device_support(state.device.type()).allocator_history();
  if (!impl.source) {
    warn(join("MemorySnapshot: the allocator of ", state.device, " keeps no history, so nothing is recorded"));
    return;
  }
  if (impl.options.overwrite) return;
  const std::string folder = saving::format_name(impl.folder, state, &state.timestamp);
  refuse_files_of_another_run("MemorySnapshot", folder, ".pickle", "snapshots", state);
}

void MemorySnapshot::batch_start(const State& state, Logger&) {
  Impl& impl = *impl_;
  if (!impl.source || impl.done || impl.recording || impl.skipped < impl.options.skip_batches) return;
  impl.attempt([&] {
    impl.source->start(impl.options.max_entries);
    impl.recording = true;
    impl.started = state.timestamp;
  });
}

void MemorySnapshot::batch_end(const State& state, Logger& logger) {
  Impl& impl = *impl_;
  if (!impl.source || impl.done) return;
  if (!impl.recording) {
    ++impl.skipped;
    return;
  }
  const TimeUnit unit = impl.options.interval.unit();
  if (state.timestamp.get(unit) - impl.started.get(unit) < impl.options.interval) return;
  impl.done = true;
  impl.attempt([&] { impl.write(state, logger); });
  impl.attempt([&] { impl.stop(); });
}

void MemorySnapshot::close(const State&, Logger&) {
  impl_->attempt([this] { impl_->stop(); });
}

StateDict MemorySnapshot::local_hparams() const { return describe(impl_->options, memory_snapshot_options()); }

namespace entries {

Entry<Callbacks> memory_snapshot() {
  return entry<MemorySnapshot>("memory_snapshot", "Records what the CUDA allocator does in a few batches",
                               memory_snapshot_options());
}

}  // namespace entries
}  // namespace composer::callbacks
