#include "composer/core/run.h"

#include "composer/core/error.h"

namespace composer {

Run::~Run() = default;
bool Run::is_resumable() const { return false; }
void Run::with_model(WeightsUse, std::uint64_t, const std::function<void(Model&)>&) const {
  throw Error("state.run: this run has no model");
}

}  // namespace composer
