#include "tests/replay/schedule_walk.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/time.h"
#include "tests/replay/errors.h"
#include "tests/replay/program.h"

namespace composer::replay {
namespace {

class Walk {
 public:
  Walk(const Json& c, Rates rates)
      : c_(c),
        lags_(rates == Rates::COMPOSER),
        size_(c["train"]["size"]),
        batch_(c["train"]["batch_size"]),
        rates_(base_rates(c)) {
    if (c["train"].value("drop_last", false)) size_ -= size_ % batch_;
  }

  Json run() {
    result_ = {{"rows", Json::array()}, {"max_duration_after_each_fit", Json::array()}, {"error", nullptr}};
    try {
      construct();
      row("after_load");
      for (const Json& call : c_["fit_calls"]) fit(call);
    } catch (const Error& error) {
      result_["error"] = error_result(error, c_)["error"];
    }
    return result_;
  }

 private:
  void construct() {
    const Json& arguments = c_["trainer"];
    if (const Json max = arguments.value("max_duration", Json()); !max.is_null()) max_ = time_of(max);
    set_schedulers(c_["schedulers"], arguments);
    if (lags_) {
      if (!schedulers_.empty() && !max_) throw ConfigError("schedules need a max_duration");
      set_rates();  // the scaled max_duration comes later
    }
    if (ratio_ != 1) scale();
  }

  void set_schedulers(const Json& recorded, const Json& arguments) {
    schedulers_ = schedulers_of(recorded);
    ratio_ = arguments.value("scale_schedule_ratio", 1.0);
    every_batch_ = arguments.value("step_schedulers_every_batch", true);
  }

  void scale() {
    if (schedulers_.empty()) throw ConfigError("scale_schedule_ratio needs schedules");
    max_ = *max_ * ratio_;
    if (*max_ <= 0) throw ConfigError("the scaled max_duration is 0");
  }

  void fit(const Json& call) {
    if (call.value("reset_time", false)) now_ = {};
    if (call.contains("duration")) {
      const Time duration = time_of(call["duration"]);
      max_ = duration + now_.get(duration.unit());
    }
    if (!max_ || now_.reached(*max_)) throw ConfigError("nothing to train");
    const auto whole = max_;
    if (call.contains("schedulers")) set_schedulers(call["schedulers"], call);
    if (call.value("scale_schedule_ratio", 1.0) != 1) scale();
    if (lags_ && call.contains("schedulers")) set_rates();
    train();
    if (!lags_) max_ = whole;
    result_["max_duration_after_each_fit"].push_back(to_string(*max_));
  }

  void train() {
    const std::int64_t len = (size_ + batch_ - 1) / batch_;
    row("fit_start");
    while (!now_.reached(*max_)) {
      row("batch_start");
      const std::int64_t count = std::min(batch_, size_ - now_.sample_in_epoch);
      if (lags_ && every_batch_) set_rates();
      now_ = now_.to_next_batch(count, count * c_["train"].value("tokens_per_sample", 0));
      row("batch_end");
      if (now_.batch_in_epoch < len) continue;
      if (lags_ && !every_batch_) set_rates();
      now_ = now_.to_next_epoch();
      row("epoch_end");
    }
    row("fit_end");
  }

  void set_rates() {
    if (!max_ || schedulers_.empty()) return;
    optim::ScheduleContext at{.timestamp = now_, .max_duration = *max_, .scale_schedule_ratio = ratio_};
    if (c_["train"].value("sized", true)) at.dataloader_len = (size_ + batch_ - 1) / batch_;
    Timestamp& t = at.timestamp;
    if (!lags_ && !every_batch_)
      t.batch -= t.batch_in_epoch, t.sample -= t.sample_in_epoch, t.token -= t.token_in_epoch;
    double factor = 1;
    for (const auto& scheduler : schedulers_) factor = lags_ ? scheduler(at) : factor * scheduler(at);
    rates_ = base_rates(c_);
    for (double& rate : rates_) rate *= factor;
  }

  void row(const char* event) {
    if (!lags_) set_rates();
    result_["rows"].push_back({event, now_.epoch, now_.batch, rates_});
  }

  const Json& c_;
  bool lags_;
  std::int64_t size_, batch_;
  std::vector<double> rates_;
  std::vector<optim::Scheduler> schedulers_;
  double ratio_ = 1;
  bool every_batch_ = true;
  OptionalTime max_;
  Timestamp now_;
  Json result_;
};

}  // namespace

std::vector<double> base_rates(const Json& c) {
  if (c["group_lrs"].is_null()) return {c["initial_lr"].get<double>()};
  return c["group_lrs"].get<std::vector<double>>();
}

std::vector<double> schedule_factors(const Json& config, std::int64_t samples, std::int64_t batch_size, Rates rates) {
  const Json c = {
      {"train",
       {{"size", samples}, {"batch_size", batch_size}, {"tokens_per_sample", config.value("tokens_per_sample", 0)}}},
      {"schedulers", config.value("schedulers", Json::array())},
      {"trainer",
       {{"max_duration", config.value("max_duration", Json("30ba"))},
        {"step_schedulers_every_batch", config.value("step_schedulers_every_batch", true)}}},
      {"initial_lr", 1.0},
      {"group_lrs", nullptr},
      {"fit_calls", {Json::object()}},
      {"error", nullptr}};
  const Json walked = walk_schedules(c, rates);
  if (!walked["error"].is_null()) throw std::runtime_error("the schedules fail: " + walked["error"].dump());
  std::vector<double> factors;
  for (const Json& row : walked["rows"])
    if (row[0] == "batch_start" || row[0] == "fit_end") factors.push_back(row[3][0]);
  return factors;
}

optim::Scheduler schedule_table(std::vector<double> factors) {
  return [factors = std::move(factors)](const optim::ScheduleContext& now) {
    return factors.at(static_cast<std::size_t>(now.timestamp.batch));
  };
}

Json walk_schedules(const Json& c, Rates rates) { return Walk(c, rates).run(); }

}  // namespace composer::replay
