#pragma once
#include "composer/core/entry.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

// The option `stream` of loggers that print.
template <class Options>
Option<Options> stream_option(TextStream Options::*member) {
  return {{"stream", "stderr or stdout", (Options{}.*member).name(), {}, {"stdin"}},
          [member](Options& options, const std::string& text) { options.*member = text; },
          [member](const Options& options) -> StateValue { return std::string((options.*member).name()); }};
}

}  // namespace composer::loggers
