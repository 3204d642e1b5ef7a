#include "composer/surgery/surgery_algorithm.h"

#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/logger.h"
#include "composer/core/model.h"
#include "composer/core/state.h"

namespace composer {
namespace {

constexpr std::size_t kNamed = 5;  // number of modules named in a warning

}  // namespace

SurgeryAlgorithm::SurgeryAlgorithm(std::string name) : name_(std::move(name)) {}

SurgeryAlgorithm::~SurgeryAlgorithm() = default;

bool SurgeryAlgorithm::match(Event event, const State&) const { return event == Event::INIT || batches_left_ > 0; }

void SurgeryAlgorithm::apply(Event event, State& state, Logger& logger) {
  if (event == Event::INIT) {
    operate_on(state, logger);
  } else {
    watch();
  }
}

void SurgeryAlgorithm::operate_on(State& state, Logger& logger) {
  done_ = operate(state);
  if (!done_.out_of_reach.empty())
    warn(join(name_, ": could not replace ", listed(done_.out_of_reach, {}, kNamed),
              ": declare these modules as composer::Layer or as entries of a torch::nn::Sequential"));
  if (done_.made.empty()) warn(join(name_, ": no module was replaced: there is ", nothing_found()));
  log(done_, logger);
  if (done_.made.empty()) return;
  LogTable table{.columns = {"module", "before", "after"}, .rows = {}};
  for (const Replacement& one : done_.made) table.rows.push_back({one.name, one.before, one.after});
  logger.log_table("surgery/" + name_, table);
  batches_left_ = kWatchedBatches;
}

void SurgeryAlgorithm::watch() {
  if (--batches_left_ > 0) return;
  const std::vector<std::string> names = done_.never_called();
  if (!names.empty())
    warn(join(name_, ": ", listed(names, {}, kNamed), " of the replaced modules were not called in ", kWatchedBatches,
              " batches: does the model call the modules before them through pointers of its own?"));
  done_ = {};
}

}  // namespace composer
