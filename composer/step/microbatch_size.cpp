#include "composer/step/microbatch_size.h"

#include "composer/core/error.h"

namespace composer {

MicrobatchSize MicrobatchSize::parse(std::string_view text) {
  if (text != "auto")
    throw ConfigError("device_train_microbatch_size: must be a number of samples or \"auto\", got \"", text, '"');
  MicrobatchSize size;
  size.auto_ = true;
  return size;
}

}  // namespace composer
