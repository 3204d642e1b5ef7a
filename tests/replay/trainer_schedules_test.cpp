#include "tests/replay/trainer_schedules.h"

#include "tests/support/doctest.h"

namespace composer::replay::trainer_schedules_test {
namespace {

// A case as schedulers.json has them.
Json case_of(const Json& schedulers, const Json& trainer, const Json& calls, const Json& groups = nullptr) {
  return {{"id", "made"},
          {"kind", "trainer"},
          {"schedulers", schedulers},
          {"torch_scheduler", nullptr},
          {"trainer", trainer},
          {"train", {{"size", 10}, {"batch_size", 4}, {"tokens_per_sample", 2}}},
          {"initial_lr", 0.4},
          {"group_lrs", groups},
          {"fit_calls", calls},
          {"error", nullptr}};
}

const Json kLinear = {{"class", "LinearScheduler"}};
const Json kConstant = {{"class", "ConstantScheduler"}, {"alpha", 0.5}};
const Json kWarm = {{"class", "LinearWithWarmupScheduler"}, {"t_warmup", "8sp"}};

TEST_CASE("The rates of a run are the product of all schedules at the timestamp, at every event") {
  const Json fit = Json::array({Json::object()});
  const Json cases = {case_of(Json::array({kLinear, kConstant}), {{"max_duration", "7ba"}}, fit),
                      case_of(Json::array({kWarm}), {{"max_duration", "24sp"}}, fit, {0.1, 0.02}),
                      case_of(Json::array({kConstant, kLinear}),
                              {{"max_duration", "3ep"}, {"step_schedulers_every_batch", false}}, fit),
                      case_of(Json::array({kLinear}), {{"max_duration", "2ep"}},
                              Json::array({Json::object(), {{"reset_time", true}, {"duration", "5ba"}}})),
                      case_of(Json::array(), {{"max_duration", "4ep"}},
                              Json::array({{{"schedulers", Json::array({kLinear})}, {"scale_schedule_ratio", 0.5}}})),
                      case_of(Json::array({kLinear}), {{"max_duration", "40tok"}}, fit)};
  for (const Json& c : cases) {
    CAPTURE(c.dump());
    Json due, rates = Json::array();
    const Json got = replay_schedule(c, due);
    CHECK(got["error"].is_null());
    for (const Json& row : got["rows"]) rates.push_back(row[3]);
    CHECK(rates.size() > 10);
    CHECK(first_difference(due, rates).value_or("") == "");
  }
}

}  // namespace
}  // namespace composer::replay::trainer_schedules_test
