#include "composer/util/random_state.h"

#include <mutex>

#include "composer/util/own_random.h"

namespace composer {

RandomState::RandomState() { keep(current_generator(at::kCPU)); }

void RandomState::add(at::Device device) {
  if (!device.is_cpu()) keep(current_generator(device));
}

void RandomState::keep(at::Generator generator) {
  for (const auto& [kept, state] : states_)
    if (kept == generator) return;
  const std::lock_guard lock(generator.mutex());
  states_.emplace_back(generator, generator.get_state());
}

void RandomState::restore() const {
  for (auto [generator, state] : states_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

}  // namespace composer
