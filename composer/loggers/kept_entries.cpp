#include "composer/loggers/kept_entries.h"

#include <chrono>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/shared_copy.h"
#include "composer/core/state.h"
#include "composer/loggers/scalar.h"

namespace composer {
namespace {

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

LogValue on_host(const LogValue& value) {
  return std::visit([](auto held) -> LogValue { return held; }, loggers::read_scalar(value));
}

}  // namespace

std::shared_ptr<KeptEntries> KeptEntries::of(std::span<const LogEntry> entries, const State& state) {
  std::shared_ptr<KeptEntries>* const shared = shared_copy(entries);
  if (shared != nullptr && *shared != nullptr) return *shared;
  auto made = std::make_shared<KeptEntries>(entries, state);
  if (shared != nullptr) *shared = made;
  return made;
}

KeptEntries::KeptEntries(std::span<const LogEntry> entries, const State& state)
    : epoch(state.timestamp.epoch),
      batch(state.timestamp.batch),
      time(state.timestamp.total_wct.count()),
      wall_time(seconds_since_1970()) {
  std::size_t length = 0;
  for (const LogEntry& entry : entries) length += entry.key.size();
  keys_.reserve(length);  // so that views of it stay valid
  fields_.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    const std::string_view kept(keys_.data() + keys_.size(), key.size());
    keys_ += key;
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor != nullptr) loggers::check_scalar(key, *tensor);
    if (tensor != nullptr && !tensor->is_cpu()) {
      streams_.add(*tensor);
      fields_.push_back({kept, tensor->detach()});
    } else {
      fields_.push_back({kept, on_host(value)});
    }
  }
}

std::span<const KeptEntries::Field> KeptEntries::read() {
  if (streams_.empty()) return fields_;
  std::call_once(was_read_, [this] {
    const at::NoGradGuard no_grad;
    const loggers::TensorStreams::Scope on_streams(streams_);
    for (Field& field : fields_)
      if (std::holds_alternative<at::Tensor>(field.value)) field.value = on_host(field.value);
  });
  return fields_;
}

}  // namespace composer
