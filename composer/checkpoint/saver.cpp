#include "composer/checkpoint/saver.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"

namespace composer::saving {
namespace {

constexpr const char* kModel = "model";
constexpr std::array kPauses = {std::chrono::seconds(1), std::chrono::seconds(2), std::chrono::seconds(4)};

std::string new_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 16; ++i) id += "0123456789abcdef"[random() & 15];
  return id;
}

SaverOptions with_run_id(SaverOptions options) {
  if (options.run_id.empty()) options.run_id = new_id();
  return options;
}

// Copies tensors to the host: those on a device to pinned memory, without waiting. Memory of the last time is used
// again where it fits. Those that are on the host may be taken as they are, for who writes them at once.
class Copier {
 public:
  explicit Copier(bool copies_host) : copies_host_(copies_host) {}

  void copy(const StateDict& from, StateDict& to) {
    StateDict before = std::exchange(to, StateDict());
    for (const auto& [name, value] : from.entries()) {
      const StateValue* old = before.find(name);
      if (const auto* dict = std::get_if<StateDict>(&value)) {
        StateDict inner;
        if (const auto* old_dict = old ? std::get_if<StateDict>(old) : nullptr) inner = *old_dict;
        copy(*dict, inner);
        to[name] = std::move(inner);
      } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
        to[name] = copy(*tensor, old ? std::get_if<at::Tensor>(old) : nullptr);
      } else {
        to[name] = value;
      }
    }
  }

  std::vector<c10::Event> events;  // when they have come, the copies are complete

 private:
  at::Tensor copy(const at::Tensor& from, const at::Tensor* old) {
    const bool device = !from.is_cpu();
    if (!device && !copies_host_) return from;
    at::Tensor to;
    if (old && old->sizes() == from.sizes() && old->strides() == from.strides() &&
        old->scalar_type() == from.scalar_type())
      to = *old;
    else
      to = at::empty_like(from, at::TensorOptions().device(at::kCPU).pinned_memory(device));
    to.copy_(from, /*non_blocking=*/device);
    if (device && std::ranges::find(devices_, from.device()) == devices_.end()) devices_.push_back(from.device());
    return to;
  }

 public:
  void record() {
    for (const at::Device& device : devices_) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      events.emplace_back(device.type()).record(guard.getStream(device));
    }
  }

 private:
  bool copies_host_;
  std::vector<at::Device> devices_;
};

}  // namespace

struct Saver::Job {
  Manifest manifest;
  const StateDict* state;
  std::vector<std::string> retired;
  std::vector<c10::Event> events;
};

Saver::Saver(SaverOptions options, std::shared_ptr<FileSystem> files)
    : options_(with_run_id(std::move(options))),
      files_(std::move(files)),
      folder_(options_.folder, options_.run_id, *files_),
      copy_(std::make_unique<StateDict>()) {
  saving::check(options_);
}

void check(const SaverOptions& options) {
  if (options.keep < -1)
    throw ConfigError("save_num_checkpoints_to_keep: must be >= 0, or -1 for all, got ", options.keep);
  if (options.best && options.keep < 1)
    throw ConfigError("save_best: needs save_num_checkpoints_to_keep >= 1, got ", options.keep);
}

Saver::~Saver() {
  try {
    wait();
  } catch (const std::exception& error) {
    warn(join("checkpoint: ", describe(error)));
  }
}

void Saver::check() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) writing_.get();
}

void Saver::wait() {
  if (writing_.valid()) writing_.get();
}

void Saver::adopt(const Manifest& resumed) {
  list_.parent = resumed.name;
  remove_leftovers();
}

void Saver::remove_leftovers() {
  if (std::exchange(cleaned_, true)) return;
  try {
    folder_.remove_leftovers();
  } catch (const FileError& error) {
    warn(join("checkpoint: what a killed process has left stays: ", error.what()));
  }
}

// Those to be deleted once the checkpoint is there are named in it, too: the process may end between the two.
void Saver::visit_state(StateVisitor& visit) {
  auto& [saved, values, retired, parent] = list_;
  visit("saved", saved);
  visit("values", values);
  if (!visit.is_loading() || visit.has("retired")) visit("retired", retired);
  if (!visit.is_loading()) return;
  wait();
  std::erase_if(retired, [&](const std::string& name) { return std::ranges::find(saved, name) != saved.end(); });
  retired = folder_.remove(retired);
}

// Those to delete: the oldest, or with the worst metric; never the newest.
void Saver::retire() {
  auto& [saved, values, retired, parent] = list_;
  while (options_.keep > 0 && saved.size() > static_cast<std::size_t>(options_.keep)) {
    std::size_t victim = 0;
    if (options_.best) {
      const double sign = options_.best->better == Better::HIGHER ? 1 : -1;
      const auto worth = [&](std::size_t i) { return std::isnan(values[i]) ? -HUGE_VAL : sign * values[i]; };
      for (std::size_t i = 1; i + 1 < saved.size(); ++i)
        if (worth(i) < worth(victim)) victim = i;
    }
    const auto at = static_cast<std::ptrdiff_t>(victim);
    retired.push_back(std::move(saved[victim]));
    saved.erase(saved.begin() + at);
    values.erase(values.begin() + at);
  }
}

// Takes in how writing has ended. One that failed was never planned; what the disk did not let go is deleted next time.
void Saver::settle() {
  wait();
  if (std::exchange(failed_, false)) list_ = before_;
  for (std::string& name : std::exchange(undeleted_, {})) list_.retired.push_back(std::move(name));
}

void Saver::plan(const std::string& name, const std::map<std::string, double>& metrics) {
  if (options_.keep == 0) return;
  settle();
  double value = 0;
  if (options_.best) {
    const auto found = metrics.find(options_.best->metric);
    if (found == metrics.end())
      throw ConfigError("save_best: no metric ", options_.best->metric, " has been reported by the time of ", name);
    value = found->second;
  }
  before_ = list_;
  auto& [saved, values, retired, parent] = list_;
  if (const auto it = std::ranges::find(saved, name); it != saved.end()) {  // it will be replaced
    values.erase(values.begin() + (it - saved.begin()));
    saved.erase(it);
  }
  std::erase(retired, name);
  saved.push_back(name);
  values.push_back(value);
  retire();
}

void Saver::plan_unlisted(const std::string& name) {
  settle();
  std::erase(list_.retired, name);
  before_ = list_;
}

void Saver::save(Manifest manifest, const StateDict& state) {
  if (options_.keep == 0) return;
  wait();
  StateDict taken;
  StateDict& copy = options_.asynchronous ? *copy_ : taken;
  Copier copier(options_.asynchronous);
  copier.copy(state, copy);
  copier.record();
  manifest.id = new_id();
  manifest.run_id = options_.run_id;
  manifest.parent = std::exchange(list_.parent, manifest.name);
  Job job{std::move(manifest), &copy, std::exchange(list_.retired, {}), std::move(copier.events)};
  if (!options_.asynchronous) try_write(job);
  auto shared = std::make_shared<Job>(std::move(job));
  if (options_.asynchronous || (!failed_ && !shared->retired.empty()))
    writing_ = std::async(std::launch::async, [this, shared] {
      if (options_.asynchronous) try_write(*shared);
      if (!failed_) undeleted_ = folder_.remove(shared->retired);  // takes as long as a third of the writing
    });
}

void Saver::try_write(const Job& job) {
  failed_ = true;  // until it is there
  for (std::size_t attempt = 0;; ++attempt) try {
      const auto start = std::chrono::steady_clock::now();
      write(job);
      write_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      failed_ = false;
      return;
    } catch (const FileError& error) {
      if (options_.on_failure == OnFailure::CONTINUE)
        return warn(join("checkpoint: ", job.manifest.name, " was not written: ", error.what()));
      const bool again = options_.on_failure == OnFailure::RETRY && attempt < kPauses.size() && pause(kPauses[attempt]);
      if (!again) std::throw_with_nested(CheckpointError("checkpoint: ", job.manifest.name, " was not written"));
    }
}

// False if there is no time left for another write; it does not wait where that would take the time away.
bool Saver::pause(std::chrono::steady_clock::duration pause) const {
  using Clock = std::chrono::steady_clock;
  constexpr Clock::duration kLook = std::chrono::milliseconds(50);
  const Clock::time_point until = Clock::now() + pause;
  for (;;) {
    const Clock::duration rest = until - Clock::now();
    if (const auto left = options_.time_left ? options_.time_left() : std::nullopt) {
      const auto spare = *left - std::chrono::duration_cast<Clock::duration>(last_write_time());
      if (spare <= Clock::duration::zero()) return false;
      if (spare < rest) return true;
    }
    if (rest <= Clock::duration::zero()) return true;
    std::this_thread::sleep_for(std::min(rest, kLook));
  }
}

void Saver::write(const Job& job) {
  for (const c10::Event& event : job.events) event.synchronize();
  remove_leftovers();
  const std::string& id = job.manifest.id;
  std::vector<NewFile> files;
  StateDict rest;
  for (const auto& [name, value] : job.state->entries()) {
    if (name != kModel)
      rest[name] = value;
    else
      files.push_back({kModelFile, [&id, weights = &std::get<StateDict>(value)](const PlacedSink& sink) {
                         return write_weights(*weights, id, sink);
                       }});
  }
  if (!rest.empty())
    files.push_back({kStateFile, [&id, &rest](const PlacedSink& sink) { return write_state(rest, id, sink); }});
  folder_.write(job.manifest, files, options_.latest, options_.overwrite);
}

StateDict load(const Found& checkpoint) {
  StateDict state;
  if (checkpoint.manifest.find(kStateFile)) state = read_state(checkpoint, kStateFile);
  state[kModel] = read_weights(checkpoint, kModelFile);
  return state;
}

}  // namespace composer::saving
