#include "composer/callbacks/profiler.h"

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "composer/callbacks/background_files.h"
#include "composer/callbacks/callback_files.h"
#include "composer/callbacks/rank_name.h"
#include "composer/callbacks/system_sampler.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/device/device_support.h"
#include "composer/profiler/operators.h"
#include "composer/profiler/report.h"
#include "composer/profiler/schedule.h"
#include "composer/profiler/span_recorder.h"
#include "composer/profiler/trace.h"
#include "composer/util/new_file.h"

namespace composer::callbacks {
namespace {

namespace fs = std::filesystem;
using profiler::Action, profiler::Trace, profiler::now_ns;

// Returns "trace-2.json" for "trace.json" and "-2". Text after another dot, as in "lr0.1", is part of the name.
fs::path ending_in(const fs::path& file, const std::string& ending) {
  const bool is_json = file.extension() == ".json";
  const std::string name = (is_json ? file.stem() : file.filename()).string();
  return file.parent_path() / join(name, ending, is_json ? ".json" : "");
}

std::vector<Option<ProfilerOptions>> profiler_options() {
  using O = ProfilerOptions;
  constexpr double kMost = 1e12;  // avoids overflow in sums and products of two values
  return all_options(
      option("skip_first", &O::skip_first).from_to(0, kMost), option("wait", &O::wait).from_to(0, kMost),
      option("warmup", &O::warmup).from_to(0, kMost), option("active", &O::active).from_to(1, 1'000'000),
      option("repeat", &O::repeat).from_to(0, 1'000'000), option("operators", &O::operators),
      option("record_shapes", &O::record_shapes), option("sys_prof_cpu", &O::sys_prof_cpu),
      option("sys_prof_memory", &O::sys_prof_memory), option("sys_prof_disk", &O::sys_prof_disk),
      option("sys_prof_net", &O::sys_prof_net),
      option("sys_prof_stats_thread_interval", &O::sys_prof_stats_thread_interval).from_to(0.001, 86'400, "seconds"),
      option("folder", &O::folder).not_empty().refuses({"{run_name"}),
      option("filename", &O::filename).not_empty().refuses({"{epoch"}), option("overwrite", &O::overwrite),
      option("num_traces_to_keep", &O::num_traces_to_keep).at_least(-1), option("print", &O::print));
}

}  // namespace

// Writes the files of finished traces and keeps the report of the last one, on a background thread.
class TraceWriter {
 public:
  explicit TraceWriter(std::int64_t keep)
      : keep_(keep),
        files_(2, [](const std::string& path) { return join("Profiler: the trace ", path, " is lost"); }) {}

  void send(Trace trace, fs::path path, int rank) {
    files_.send(std::move(path), [this, rank, trace = std::move(trace)](fs::path& file) {
      report_ = profiler::report(trace);
      file = unused(file);
      util::write_whole_file(file, profiler::chrome_json(trace, join("rank ", rank, " training"), rank));
      written_.push_back(file);
      while (keep_ >= 0 && std::cmp_greater(written_.size(), keep_)) {
        fs::remove(written_.front());
        written_.pop_front();
      }
    });
  }
  std::string report() {
    files_.wait();
    return report_;
  }

 private:
  // Returns "trace-2.json" if this run has written "trace.json", because a filename may lack counts.
  fs::path unused(const fs::path& path) const {
    fs::path other = path;
    for (int i = 2; std::ranges::find(written_, other) != written_.end(); ++i) other = ending_in(path, join('-', i));
    return other;
  }

  const std::int64_t keep_;
  std::string report_;  // used by the thread, and by others after wait()
  std::deque<fs::path> written_;
  BackgroundFiles files_;  // declared last, because its thread uses the other members
};

struct Profiler::Impl {
  explicit Impl(ProfilerOptions given) : options(checked("Profiler", std::move(given), profiler_options())) {
    const auto& [skip_first, wait, warmup, active, repeat, operators, shapes, cpu, memory, disk, net, sample_interval,
                 path, filename, overwrite, keep, print] = options;
    system = {cpu, memory, disk, net, sample_interval};
    schedule = {skip_first, wait, warmup, active, repeat};
    check_file_names("Profiler", {{"folder", path}, {"filename", filename}});
    for (int i = 0; i < kEventCount; ++i) {
      const auto event = static_cast<Event>(i);
      events.at(static_cast<std::size_t>(i)) = spans.name_of("event/", canonical_name(event), "");
    }
  }

  void begin(const State& state) {
    trace = {};
    trace.begin_ns = now_ns();
    if (!recorder && options.operators)
      recorder.emplace(options.record_shapes, device_support(state.device.type()).kernel_activity());
    record_operators([](profiler::OperatorRecorder& operators) { operators.start(); });
    if (system.cpu || system.memory || system.disk || system.net) sampler.emplace(system);
    spans.start(trace.begin_ns);
  }

  void end(const State& state) {
    trace.end_ns = now_ns();
    spans.stop(trace.end_ns);
    record_operators([this](profiler::OperatorRecorder& operators) {
      if (operators.started()) trace.operators = operators.stop();
    });
    if (sampler) trace.counters = sampler->stop();
    sampler.reset();
    if (trace.batches == 0) return;
    spans.move_to(trace);
    try {
      fs::path file = folder / saving::format_name(options.filename, state, &state.timestamp);
      file = ending_in(file, rank_suffix(state, {options.folder, options.filename}));
      if (writer) writer->send(std::move(trace), file, state.rank);
      has_recorded = true;
    } catch (const std::exception& error) {
      warn(join("Profiler: a trace is lost: ", describe(error)));
    }
  }

  // Records without operators if libtorch's profiler cannot be started, for example because it is already in use.
  template <class Use>
  void record_operators(const Use& use) {
    if (!recorder || operators_failed) return;
    try {
      use(*recorder);
    } catch (const std::exception& error) {
      operators_failed = true;
      warn(join("Profiler: no operators are recorded: ", describe(error)));
    }
  }

  void decide(const State& state) {
    const std::int64_t batch = state.timestamp.batch_in_epoch;
    const bool is_over = state.dataloader_len && batch >= *state.dataloader_len;
    longest_epoch = std::max(longest_epoch, is_over ? batch : batch + 1);
    const bool last = state.dataloader_len && batch + 1 == *state.dataloader_len;
    action = is_over ? Action::SKIP : profiler::action_at(schedule, batch, resumed_at, last);
    if (action == Action::WARMUP && options.operators) {
      if (!recorder) recorder.emplace(options.record_shapes, device_support(state.device.type()).kernel_activity());
      record_operators([](profiler::OperatorRecorder& operators) { operators.prepare(); });
    }
    const bool is_active = action == Action::ACTIVE || action == Action::ACTIVE_AND_SAVE;
    if (is_active && !spans.is_recording()) begin(state);
  }

  std::uint32_t name_of(Event event) const { return events[static_cast<std::size_t>(event)]; }

  ProfilerOptions options;
  profiler::Schedule schedule;
  fs::path folder;
  std::int64_t resumed_at = 0;  // number of batches of an epoch
  Action action = Action::SKIP;
  bool operators_failed = false;
  bool has_recorded = false;       // whether a trace was recorded since INIT
  std::int64_t longest_epoch = 0;  // largest number of batches begun in an epoch since INIT
  Trace trace;
  profiler::SpanRecorder spans;
  std::array<std::uint32_t, kEventCount> events{};  // numbers of the names of their spans, which begin and end share
  std::optional<profiler::OperatorRecorder> recorder;
  SystemSamplerOptions system;
  std::optional<SystemSampler> sampler;  // set during a recording
  std::unique_ptr<TraceWriter> writer;
};

Profiler::Profiler(ProfilerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Profiler::~Profiler() = default;
Profiler::Profiler(Profiler&&) noexcept = default;

std::string Profiler::report() const { return impl_->writer ? impl_->writer->report() : std::string(); }

void Profiler::init(const State& state, Logger&) {
  Impl& impl = *impl_;
  impl.folder = fs::absolute(saving::format_name(impl.options.folder, state, nullptr));
  if (!impl.options.overwrite) refuse_files_of_another_run("Profiler", impl.folder, ".json", "traces", state);
  impl.writer = std::make_unique<TraceWriter>(impl.options.num_traces_to_keep);
  impl.resumed_at = 0;
  impl.operators_failed = impl.has_recorded = false;
  impl.longest_epoch = 0;
}

void Profiler::after_load(const State& state, Logger&) { impl_->resumed_at = state.timestamp.batch_in_epoch; }

void Profiler::close(const State& state, Logger&) {
  Impl& impl = *impl_;
  if (impl.spans.is_recording()) impl.end(state);
  impl.spans.forget_events();
  if (const auto& [skip_first, wait, warmup, active, repeat] = impl.schedule;
      !impl.has_recorded && impl.longest_epoch > 0)
    warn(join("Profiler: nothing was recorded: the first batch of an epoch to be recorded is ",
              skip_first + wait + warmup, " (skip_first + wait + warmup), and no epoch had more than ",
              impl.longest_epoch, " batches"));
  const std::string text = report();
  if (impl.options.print && state.rank == 0) std::cerr << text << std::flush;
}

void Profiler::event_begins(Event event, const State& state) {
  Impl& impl = *impl_;
  if (is_after_event(event)) impl.spans.end_event(impl.name_of(event));
  if (event == Event::BEFORE_DATALOADER) impl.decide(state);
  if ((event == Event::EPOCH_END || event == Event::FIT_END) && impl.spans.is_recording()) impl.end(state);
}

void Profiler::event_ends(Event event, const State& state) {
  Impl& impl = *impl_;
  if (event == Event::BATCH_END && impl.spans.is_recording()) {
    ++impl.trace.batches;
    if (impl.action == Action::ACTIVE_AND_SAVE) impl.end(state);
  }
  if (is_before_event(event)) impl.spans.begin_event(impl.name_of(event), state.timestamp.epoch, state.timestamp.batch);
}

// Names the span, for example, "callback/LRMonitor/event/batch_end".
void Profiler::call_begins(Event event, Kind kind, const std::string& who) {
  profiler::SpanRecorder& spans = impl_->spans;
  const char* const begin = kind == Kind::ALGORITHM ? "algorithm/" : "callback/";
  spans.begin_call(spans.is_recording() ? spans.name_of(begin, who, join("/event/", to_string(event))) : 0);
}

void Profiler::call_ends() { impl_->spans.end_call(); }

StateDict Profiler::local_hparams() const { return describe(impl_->options, profiler_options()); }

namespace entries {

Entry<Callbacks> profiler() {
  return entry<Profiler>("profiler", "Records where the time goes, for Perfetto and as a table", profiler_options());
}

}  // namespace entries
}  // namespace composer::callbacks
