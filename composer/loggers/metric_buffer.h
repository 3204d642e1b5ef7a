#pragma once
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/logger.h"
#include "composer/core/scalar.h"
#include "composer/loggers/string_map.h"

namespace composer::loggers {

// The last value of each key since clear(), in the order in which the keys were first set. Numbers in host memory are
// read immediately; other tensors are kept. Setting a key that existed before clear() allocates nothing.
class MetricBuffer {
 public:
  struct Entry {
    std::string key;
    LogValue value;
    bool present = false;
  };

  void set(std::string_view key, const LogValue& value) {
    Entry& entry = entries_[key];
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor != nullptr && tensor->defined() && tensor->is_cpu() && tensor->numel() == 1 && !tensor->is_complex())
      entry.value = std::visit([](const auto& held) -> LogValue { return held; }, read_scalar(*tensor));
    else if (tensor != nullptr && tensor->defined())
      entry.value = tensor->detach();
    else
      entry.value = value;
    if (entry.present) return;
    if (entry.key.empty()) entry.key = key;
    entry.present = true;
    order_.push_back(&entry);
  }
  void clear() {
    for (Entry* entry : order_) entry->present = false;
    order_.clear();
  }
  const std::vector<Entry*>& entries() const { return order_; }

 private:
  SequenceMap<Entry> entries_;
  std::vector<Entry*> order_;
};

}  // namespace composer::loggers
