#include "composer/util/random_state.h"

#include <mutex>
#include <optional>

#include <ATen/CPUGeneratorImpl.h>

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

struct RandomMark::Kept {
  at::Generator cpu, other;
  at::mt19937 engine;
  std::optional<float> next_float;
  std::optional<double> next_double;
  at::Tensor state;  // of `other`
};

RandomMark::RandomMark() : kept_(std::make_unique<Kept>()) {}
RandomMark::~RandomMark() = default;
bool RandomMark::is_set() const { return kept_->cpu.defined(); }

void RandomMark::set(at::Device device) {
  kept_->cpu = current_generator(at::kCPU);
  {
    const std::lock_guard lock(kept_->cpu.mutex());
    auto* generator = at::check_generator<at::CPUGeneratorImpl>(kept_->cpu);
    kept_->engine = generator->engine();
    kept_->next_float = generator->next_float_normal_sample();
    kept_->next_double = generator->next_double_normal_sample();
  }
  if (device.is_cpu()) return;
  kept_->other = current_generator(device);
  const std::lock_guard lock(kept_->other.mutex());
  kept_->state = kept_->other.get_state();
}

void RandomMark::restore() const {
  {
    const std::lock_guard lock(kept_->cpu.mutex());
    auto* generator = at::check_generator<at::CPUGeneratorImpl>(kept_->cpu);
    generator->set_engine(kept_->engine);
    generator->set_next_float_normal_sample(kept_->next_float);
    generator->set_next_double_normal_sample(kept_->next_double);
  }
  if (!kept_->other.defined()) return;
  const std::lock_guard lock(kept_->other.mutex());
  kept_->other.set_state(kept_->state);
}

}  // namespace composer
