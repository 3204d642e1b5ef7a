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
// again where it fits.
class Copier {
 public:
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
  parent_ = resumed.name;
  try {
    folder_.remove_leftovers();
  } catch (const FileError& error) {
    warn(join("checkpoint: what a killed process has left stays: ", error.what()));
  }
}

// Those to be deleted once the checkpoint is there are named in it, too: the process may end between the two.
void Saver::visit_state(StateVisitor& visit) {
  visit("saved", saved_);
  visit("values", values_);
  if (!visit.is_loading() || visit.has("retired")) visit("retired", retired_);
  if (!visit.is_loading()) return;
  for (const std::string& name : std::exchange(retired_, {})) try {
      if (std::ranges::find(saved_, name) == saved_.end()) folder_.remove(name);
    } catch (const FileError& error) {
      warn(join("checkpoint: ", name, " should have been deleted, and stays: ", error.what()));
    }
}

// Those to delete: the oldest, or with the worst metric; never the newest.
void Saver::retire() {
  while (options_.keep > 0 && saved_.size() > static_cast<std::size_t>(options_.keep)) {
    std::size_t victim = 0;
    if (options_.best) {
      const double sign = options_.best->better == Better::HIGHER ? 1 : -1;
      const auto worth = [&](std::size_t i) { return std::isnan(values_[i]) ? -HUGE_VAL : sign * values_[i]; };
      for (std::size_t i = 1; i + 1 < saved_.size(); ++i)
        if (worth(i) < worth(victim)) victim = i;
    }
    const auto at = static_cast<std::ptrdiff_t>(victim);
    retired_.push_back(std::move(saved_[victim]));
    saved_.erase(saved_.begin() + at);
    values_.erase(values_.begin() + at);
  }
}

void Saver::plan(const std::string& name, const std::map<std::string, double>& metrics) {
  if (options_.keep == 0) return;
  if (const auto it = std::ranges::find(saved_, name); it != saved_.end()) {  // it will be replaced
    values_.erase(values_.begin() + (it - saved_.begin()));
    saved_.erase(it);
  }
  double value = 0;
  if (options_.best) {
    const auto found = metrics.find(options_.best->metric);
    if (found == metrics.end())
      throw ConfigError("save_best: no metric ", options_.best->metric, " has been reported by the time of ", name);
    value = found->second;
  }
  saved_.push_back(name);
  values_.push_back(value);
  retire();
}

void Saver::save(Manifest manifest, const StateDict& state) {
  if (options_.keep == 0) return;
  wait();
  Copier copier;
  copier.copy(state, *copy_);
  copier.record();
  manifest.id = new_id();
  manifest.run_id = options_.run_id;
  manifest.parent = std::exchange(parent_, manifest.name);
  Job job{std::move(manifest), copy_.get(), {}, std::move(copier.events)};
  job.retired = std::exchange(retired_, {});
  if (!options_.asynchronous) return try_write(job);
  auto shared = std::make_shared<Job>(std::move(job));
  writing_ = std::async(std::launch::async, [this, shared] { try_write(*shared); });
}

void Saver::try_write(const Job& job) {
  for (std::size_t attempt = 0;; ++attempt) {
    try {
      return write(job);
    } catch (const FileError& error) {
      if (options_.on_failure == OnFailure::CONTINUE)
        return warn(join("checkpoint: ", job.manifest.name, " was not written: ", error.what()));
      if (options_.on_failure == OnFailure::FAIL || attempt == kPauses.size())
        std::throw_with_nested(CheckpointError("checkpoint: ", job.manifest.name, " was not written"));
    }
    std::this_thread::sleep_for(kPauses[attempt]);
  }
}

void Saver::write(const Job& job) {
  for (const c10::Event& event : job.events) event.synchronize();
  const std::string& id = job.manifest.id;
  std::vector<NewFile> files;
  StateDict rest;
  for (const auto& [name, value] : job.state->entries()) {
    if (name != kModel)
      rest[name] = value;
    else
      files.push_back({kModelFile, [&id, weights = &std::get<StateDict>(value)](const Sink& sink) {
                         write_weights(*weights, id, sink);
                       }});
  }
  if (!rest.empty()) files.push_back({kStateFile, [&id, &rest](const Sink& sink) { write_state(rest, id, sink); }});
  folder_.write(job.manifest, files, options_.latest, options_.overwrite);
  for (const std::string& name : job.retired) folder_.remove(name);
}

StateDict load(const Found& checkpoint) {
  const auto& [path, manifest] = checkpoint;
  StateDict state;
  if (manifest.find(kStateFile)) state = read_state(path / kStateFile, manifest.id);
  if (!manifest.find(kModelFile)) throw CheckpointError(path.string(), ": has no ", kModelFile);
  state[kModel] = read_weights(path / kModelFile, manifest.id);
  return state;
}

}  // namespace composer::saving
