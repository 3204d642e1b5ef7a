#pragma once
#include <string>

#include "composer/loggers/background_logger.h"

namespace composer::loggers {

// Takes nothing: of the processes that train together, one writes.
class NoWriter final : public RecordWriter {
 public:
  std::string where() const override { return "nowhere"; }
  bool takes(const Record&) const override { return false; }

 private:
  void write(Records) override {}
};

}  // namespace composer::loggers
