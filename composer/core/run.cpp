#include "composer/core/run.h"

#include "composer/core/error.h"

namespace composer {

Run::~Run() = default;
bool Run::is_resumable() const { return false; }
std::uint64_t Run::weights_version() const { return 0; }
bool Run::begins_again() const { return false; }
bool Run::pauses() const { return false; }
std::string Run::identity() const { return {}; }
std::string Run::claim_checkpoints(const void*, const char*, const std::string&, const std::string&, bool) const {
  return {};
}
void Run::keep_random() const {}
void Run::repeat_microbatch(bool) const { throw Error("state.run: this run cannot repeat a microbatch"); }
std::vector<std::int64_t> Run::sample_indices() const { return {}; }
void Run::with_model(WeightsUse, std::uint64_t, const std::function<void(Model&)>&) const {
  throw Error("state.run: this run has no model");
}

}  // namespace composer
