#include "tests/replay/trainer_schedules.h"

#include <stdexcept>
#include <string>

#include "tests/replay/schedule_walk.h"
#include "tests/support/doctest.h"

namespace composer::replay::trainer_schedules_test {
namespace {

// A case as schedulers.json has them, with the rows that Composer's rates give.
Json case_of(const Json& schedulers, const Json& trainer, const Json& calls, const Json& groups = nullptr) {
  Json c = {{"id", "made"},
            {"kind", "trainer"},
            {"schedulers", schedulers},
            {"torch_scheduler", nullptr},
            {"trainer", trainer},
            {"train", {{"size", 10}, {"batch_size", 4}, {"tokens_per_sample", 2}}},
            {"initial_lr", 0.4},
            {"group_lrs", groups},
            {"fit_calls", calls},
            {"error", nullptr}};
  c.update(walk_schedules(c, Rates::COMPOSER));
  return c;
}

Json rates_at(const Json& c, const std::string& event) {
  Json rates = Json::array();
  for (const Json& row : c["rows"])
    if (row[0] == event) rates.push_back(row[3][0].get<double>() / 0.4);
  return rates;
}

void check_rates(const Json& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i].get<double>() == doctest::Approx(want[i]).epsilon(1e-4));
}

const Json kLinear = {{"class", "LinearScheduler"}};

TEST_CASE("The walk with Composer's rates gives the rates that Composer is known for") {
  const Json one = Json::array({kLinear});
  // batches of 2 of 6 samples
  const auto rates = [&](const Json& schedulers, Json trainer, Json calls) {
    Json c = case_of(schedulers, trainer, calls);
    c["train"] = {{"size", 6}, {"batch_size", 2}};
    c.update(walk_schedules(c, Rates::COMPOSER));
    return rates_at(c, "batch_start");
  };
  const Json fit = Json::array({Json::object()});
  check_rates(rates(one, {{"max_duration", "4ep"}, {"scale_schedule_ratio", 0.5}}, fit),
              {1, 1, .83333, .66667, .5, .33333});
  check_rates(rates(one, {{"max_duration", "3ep"}, {"scale_schedule_ratio", 0.5}}, fit), {1, 1, .66667});
  check_rates(rates(one, {{"max_duration", "6sp"}}, fit), {1, 1, .66667});
  const Json restarts = {{"class", "CosineAnnealingWarmRestartsScheduler"}, {"t_0", "2ba"}, {"t_mult", 1.5}};
  check_rates(rates(Json::array({restarts}), {{"max_duration", "9ba"}}, fit), {1, 1, .5, 1, .75, .25, 1, .85355, .5});
  const Json again = Json::array({Json::object(), {{"reset_time", true}}});
  check_rates(rates(one, {{"max_duration", "1ep"}}, again), {1, 1, .66667, .33333, 1, .66667});
  const Json further = Json::array({Json::object(), {{"duration", "1ep"}}});
  check_rates(rates(one, {{"max_duration", "1ep"}}, further), {1, 1, .66667, .33333, .5, .33333});
}

const Json kConstant = {{"class", "ConstantScheduler"}, {"alpha", 0.5}};
const Json kWarm = {{"class", "LinearWithWarmupScheduler"}, {"t_warmup", "2ba"}};

TEST_CASE("Runs with schedules come out as recorded or as the rule says, whatever the rows") {
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
    const Outcome found = run_trainer_schedule(c);
    CHECK_MESSAGE((found.verdict == Verdict::DIFFERENT || found.verdict == Verdict::EQUAL), found.text);
  }
}

TEST_CASE("A recording with schedules that Composer's rates do not give is wrong") {
  Json c = case_of(Json::array({kLinear}), {{"max_duration", "7ba"}}, Json::array({Json::object()}));
  c["rows"][7][3][0] = c["rows"][7][3][0].get<double>() * 1.01;
  CHECK_THROWS_AS(run_trainer_schedule(c), std::runtime_error);
}

}  // namespace
}  // namespace composer::replay::trainer_schedules_test
