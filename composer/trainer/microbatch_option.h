#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "composer/core/option.h"
#include "composer/step/microbatch_size.h"

namespace composer {

// Describes the number of samples that are trained at once, an option of TrainerOptions and FitOptions.
template <class Options, class T>
Field<Options, T> microbatch_option(std::string name, T Options::*member) {
  const auto value = [](const T& given) -> StateValue {
    const MicrobatchSize* size = detail::held(given);
    if (!size) return std::string();
    return size->is_auto() ? StateValue(std::string("auto")) : StateValue(size->samples());
  };
  const auto read = [](const std::string& text) {
    if (text == "auto") return MicrobatchSize(text);
    std::int64_t samples = 0;
    detail::read_text(text, samples);
    return MicrobatchSize(samples);
  };
  return part(std::move(name), member, "whole number or auto")
      .unit("samples")
      .must("be >= 1, 0 for whole batches, or \"auto\"", [](MicrobatchSize size) { return size.samples() >= 0; })
      .shown(value)
      .read_by(read);
}

}  // namespace composer
