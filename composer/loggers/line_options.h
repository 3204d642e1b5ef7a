#pragma once
#include "composer/loggers/line_file_logger.h"

namespace composer::loggers {

// The LineFileOptions in the options of a logger that writes lines.
template <class Options>
LineFileOptions line_options(const Options& options) {
  return {options.path,
          options.append,
          options.overwrite,
          {.when_full = options.when_full, .flush_interval = options.flush_interval, .on_failure = options.on_failure}};
}

}  // namespace composer::loggers
