// The learning rates of a run with schedules, computed without a trainer.
#pragma once
#include <cstdint>
#include <vector>

#include "composer/optim/schedule.h"
#include "tests/replay/compare.h"

namespace composer::replay {

// COMPOSER: each schedule overwrites the rate of the one before, and they are stepped before the batch is counted, so
// batch k trains with the rate of batch k-1. OURS: the product of all schedules at the timestamp.
enum class Rates : std::uint8_t { COMPOSER, OURS };

// The rows, max_duration after each fit, and the error of a case of kind "trainer".
Json walk_schedules(const Json& c, Rates rates);

// The factors of the learning rates for each batch of a run, and after the last one. `config` has "schedulers",
// "max_duration" (default 30ba) and "step_schedulers_every_batch". Throws what a schedule throws.
std::vector<double> schedule_factors(const Json& config, std::int64_t samples, std::int64_t batch_size, Rates rates);
// A schedule that looks its factor up by the number of the batch.
optim::Scheduler schedule_table(std::vector<double> factors);

// The initial rate of each parameter group.
std::vector<double> base_rates(const Json& c);

}  // namespace composer::replay
