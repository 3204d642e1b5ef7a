#include "composer/callbacks/oom_observer.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include "composer/callbacks/callback_files.h"
#include "composer/callbacks/memory_statistics.h"
#include "composer/callbacks/rank_name.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/core/run.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/device/allocator_history.h"
#include "composer/device/device_support.h"
#include "composer/util/absolute_format.h"
#include "composer/util/new_file.h"
#include "composer/util/out_of_memory.h"
#include "composer/util/text.h"
#include "composer/util/tune_process.h"

namespace composer::callbacks {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kListed = 20;

using NamedTensor = std::pair<std::string, at::Tensor>;

void collect(const StateDict& dict, const std::string& path, std::vector<NamedTensor>& found) {
  for (const auto& [name, value] : dict.entries()) {
    const std::string here = join(path, "/", name);
    if (const auto* tensor = std::get_if<at::Tensor>(&value); tensor && tensor->defined())
      found.emplace_back(here, *tensor);
    if (const auto* inner = std::get_if<StateDict>(&value)) collect(*inner, here, found);
  }
}

void describe_tensor(std::ostream& out, const std::string& name, const at::Tensor& tensor) {
  out << "  " << name << ": ";
  if (!tensor.defined()) {
    out << "undefined\n";
    return;
  }
  out << tensor.sizes() << " " << tensor.scalar_type() << " on " << tensor.device() << ", " << tensor.nbytes()
      << " bytes\n";
}

void write_process(std::ostream& out) {
  if (const auto memory = ProcessMemoryReader().read())
    out << "resident memory: " << memory->resident << " bytes, at its peak " << memory->peak_resident << "\n";
  const CpuMemory cpu = cpu_memory();
  if (cpu.used + cpu.cached > 0)
    out << "CPU caching allocator: " << cpu.used << " bytes in tensors, " << cpu.cached << " kept for later ones\n";
}

void write_device(std::ostream& out, c10::Device device) {
  c10::DeviceAllocator* const allocator = device_support(device.type()).allocator(device);
  if (allocator == nullptr) return;
  const auto stats = allocator->getDeviceStats(device.index());
  const auto value = [&](const char* name) { return DeviceStatistic(name).of(stats); };
  out << "memory of " << device << ": " << value("allocated_bytes.all.current") << " bytes in tensors, at their peak "
      << value("allocated_bytes.all.peak") << "; " << value("reserved_bytes.all.current") << " reserved\n";
}

void write_model(std::ostream& out, const State& state) {
  if (!state.model) return;
  std::size_t parameters = 0, gradients = 0;
  for (const at::Tensor& parameter : composer::parameters(as_module(*state.model))) {
    parameters += parameter.nbytes();
    if (parameter.grad().defined()) gradients += parameter.grad().nbytes();
  }
  out << "parameters: " << parameters << " bytes, gradients: " << gradients << "\n";
}

void write_largest(std::ostream& out, const State& state) {
  if (!state.run) return;
  const StateDict saved = state.run->snapshot(/*weights_only=*/false);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, value] : saved.entries())
    if (const auto* part = std::get_if<StateDict>(&value); part && (name == "model" || name == "optimizer"))
      collect(*part, name, tensors);
  std::ranges::stable_sort(tensors, std::greater<>(), [](const NamedTensor& one) { return one.second.nbytes(); });
  out << "largest tensors of model and optimizer:\n";
  std::size_t listed = 0;
  for (const auto& [name, tensor] : tensors)
    if (listed++ < kListed) describe_tensor(out, name, tensor);
}

std::string report(const std::exception_ptr& error, const State& state) {
  util::OutText out;
  out << "run " << state.run_name << ": out of memory on " << state.device << " in epoch " << state.timestamp.epoch
      << ", batch " << state.timestamp.batch << ", loader \"" << state.dataloader_label << "\"\n"
      << describe(error) << "\n\n";
  const std::int64_t size = state.device_train_microbatch_size;
  out << "device_train_microbatch_size: " << (size > 0 ? std::to_string(size) : "the whole batch") << "\nbatch:\n";
  for (const auto& [name, tensor] : state.batch) describe_tensor(out, name, tensor);
  // A part may fail, for example for lack of memory; the other parts are written all the same.
  const std::vector<std::function<void()>> parts = {
      [&] { write_process(out); }, [&] { write_device(out, state.device); }, [&] { write_model(out, state); },
      [&] { write_largest(out, state); }};
  for (const auto& part : parts) {
    try {
      part();
    } catch (const std::exception& failed) {
      out << "not available: " << describe(failed) << "\n";
    }
  }
  return std::move(out).str();
}

std::vector<Option<OOMObserverOptions>> oom_observer_options() {
  using O = OOMObserverOptions;
  return all_options(option("max_entries", &O::max_entries).at_least(1),
                     option("folder", &O::folder).not_empty().refuses({"{run_name"}),
                     option("filename", &O::filename).not_empty().refuses({"{rank"}),
                     option("remote_file_name", &O::remote_file_name).refuses({"{rank"}),
                     option("overwrite", &O::overwrite));
}

}  // namespace

struct OOMObserver::Impl {
  explicit Impl(OOMObserverOptions given)
      : options(checked("OOMObserver", std::move(given), oom_observer_options())), folder(options.folder) {
    check_file_names(
        "OOMObserver",
        {{"folder", options.folder}, {"filename", options.filename}, {"remote_file_name", options.remote_file_name}});
  }

  // The text between a file's name and its suffix: empty, or the first number without a report.
  std::string number(const fs::path& base) const {
    std::string text;
    for (int next = 2; !options.overwrite && fs::exists(base.string() + text + "_report.txt"); ++next)
      text = join("_", next);
    return text;
  }

  void write(const std::exception_ptr& error, const State& state, Logger& logger) {
    const auto named = [&](const std::string& format) { return saving::format_name(format, state, &state.timestamp); };
    const auto& [entries, given_folder, filename, remote_name, overwrite] = options;
    const fs::path base = join(named(folder), '/', named(filename), rank_suffix(state, {folder, filename}));
    std::string remote = named(remote_name);
    if (!remote.empty()) remote += rank_suffix(state, {remote_name});
    const std::string index = number(base);
    const auto put = [&](const std::string& suffix, const std::string& content) {
      const std::string path = base.string() + index + suffix;
      util::write_whole_file(path, content);
      if (remote.empty()) return;
      logger.upload_file({.path = path, .name = remote + index + suffix, .overwrite = overwrite});
    };
    put("_report.txt", report(error, state));
    if (recording) put("_snapshot.pickle", source->snapshot());
  }

  template <class Use>
  static void attempt(const char* what, const Use& use) {
    try {
      use();
    } catch (const std::exception& error) {
      warn(join("OOMObserver: ", what, ": ", describe(error)));
    }
  }

  OOMObserverOptions options;
  std::string folder;  // from INIT on: absolute, with placeholders replaced
  std::unique_ptr<AllocatorHistory> source;
  bool recording = false;
};

OOMObserver::OOMObserver(OOMObserverOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
OOMObserver::OOMObserver(OOMObserverOptions options, std::unique_ptr<AllocatorHistory> source)
    : OOMObserver(std::move(options)) {
  impl_->source = std::move(source);
}
OOMObserver::~OOMObserver() = default;
OOMObserver::OOMObserver(OOMObserver&&) noexcept = default;

void OOMObserver::init(const State& state, Logger&) {
  Impl& impl = *impl_;
  impl.folder = util::absolute_format(impl.options.folder);
  if (!impl.source) impl.source = device_support(state.device.type()).allocator_history();
  if (!impl.source) return;
  Impl::attempt("the allocator's history is not recorded", [&] {
    impl.source->start(impl.options.max_entries);
    impl.recording = true;
  });
}

void OOMObserver::run_fails(const std::exception_ptr& error, const State& state, Logger& logger) {
  if (is_out_of_memory(error)) Impl::attempt("the report is incomplete", [&] { impl_->write(error, state, logger); });
}

void OOMObserver::close(const State&, Logger&) {
  if (std::exchange(impl_->recording, false))
    Impl::attempt("the recording was not stopped", [this] { impl_->source->stop(); });
}

StateDict OOMObserver::local_hparams() const { return describe(impl_->options, oom_observer_options()); }

namespace entries {

Entry<Callbacks> oom_observer() {
  return entry<OOMObserver>("oom_observer", "Reports what takes the memory when it runs out", oom_observer_options());
}

}  // namespace entries
}  // namespace composer::callbacks
