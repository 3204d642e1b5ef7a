#pragma once
#include <string>

#include "composer/loggers/background_logger.h"

namespace composer::loggers {

// Takes no records. Used by processes that do not write, because only one of the processes that train together does.
class NoWriter final : public RecordWriter {
 public:
  std::string where() const override { return "nowhere"; }
  bool takes(const Record&) const override { return false; }

 private:
  void write(Records) override {}
};

}  // namespace composer::loggers
