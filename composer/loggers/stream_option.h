#pragma once
#include "composer/core/option.h"
#include "composer/loggers/text_stream.h"

namespace composer::loggers {

// The option `stream` of loggers that print.
template <class Options>
Field<Options, TextStream> stream_option(TextStream Options::*member) {
  return {{{"stream", "stderr or stdout", (Options{}.*member).name()},
           [member](Options& options, const std::string& text) { options.*member = text; },
           [member](const Options& options) -> StateValue { return std::string((options.*member).name()); }},
          member};
}

}  // namespace composer::loggers
