#pragma once
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "composer/core/logger.h"
#include "composer/loggers/format.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

// Writes texts to a stream in their order. A text with values on a device is held until their copies have arrived on
// the host. Later texts are then held as well, so that training does not wait.
class HeldLines {
 public:
  struct Part {
    std::string text;
    LogValue value;  // follows the text
  };

  explicit HeldLines(TextStream stream) : stream_(std::move(stream)) {}

  // Adds a line that consists of the parts, followed by `end`.
  void hold(std::vector<Part> parts, std::string end) {
    std::optional<at::Device> device;  // all values of a run are on its device
    for (Part& part : parts) {
      auto* tensor = std::get_if<at::Tensor>(&part.value);
      if (tensor == nullptr || !tensor->defined() || tensor->is_cpu() || tensor->numel() != 1) continue;
      device = tensor->device();
      *tensor = tensor->to(at::kCPU, /*non_blocking=*/true);
    }
    Held& held = held_.emplace_back(std::move(parts), std::move(end) + '\n');
    if (device) {
      held.copied.emplace(device->type());
      held.copied->record(c10::impl::VirtualGuardImpl(device->type()).getStream(*device));
    }
    write_arrived();
  }
  // Writes the lines whose values have arrived. Does not wait.
  void write_arrived() {
    while (!held_.empty() && (!held_.front().copied || held_.front().copied->query())) write_first();
  }
  // Writes all held lines. Waits for their values.
  void write_held() {
    while (!held_.empty()) {
      if (held_.front().copied) held_.front().copied->synchronize();
      write_first();
    }
  }
  // Writes the text after all held lines.
  void write(std::string_view text) {
    write_held();
    stream_.write(text);
  }

 private:
  struct Held {
    std::vector<Part> parts;
    std::string end;
    std::optional<c10::Event> copied = std::nullopt;  // unset: no value was on a device
  };
  void write_first() {
    const Held first = std::move(held_.front());
    held_.pop_front();
    std::string text;
    for (const Part& part : first.parts) (text += part.text) += format_log_value(part.value);
    stream_.write(text += first.end);
  }

  TextStream stream_;
  std::deque<Held> held_;
};

}  // namespace composer::loggers
