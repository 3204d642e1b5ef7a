// Where our traces of events differ from Composer's, and how.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "composer/core/event.h"
#include "tests/replay/events.h"
#include "tests/replay/program.h"
#include "tests/replay/rates.h"

namespace composer::replay {
namespace {

bool is(const Json& row, const char* event) { return row.at(EVENT) == event; }

bool calls(const Json& c, const char* fn, std::size_t at_least = 1) {
  std::size_t count = 0;
  for (const Json& call : c["config"]["calls"])
    if (call["fn"] == fn) ++count;
  return count >= at_least;
}

Json trainer_argument(const Json& c, const char* name) {
  return c["config"].value("trainer", Json::object()).value(name, Json());
}

// Runs on every row of every call, with the call it belongs to.
template <class F>
void for_each_row(Json& result, F&& visit) {
  for (Json& call : result)
    for (Json& row : call["trace"]) visit(row, call);
}

Rule skipped_batches() {
  return {.name = "skipped_batches_are_not_fetched",
          .applies_to = "A `fit()` that begins in the middle of an epoch",
          .composer_does =
              "Fetches the batches that have been trained already and drops them; `BEFORE_DATALOADER` fires "
              "for each.",
          .we_do = "Places the loader before the next batch in one call of `seek`; `BEFORE_DATALOADER` fires once.",
          .why = "Resuming must not take time that grows with the epoch.",
          .matches = [](const Json& c) { return calls(c, "fit", 2) || c["config"].contains("checkpoint_from"); },
          .ours =
              [](Json& result, const Json&) {
                for (Json& call : result) {
                  Json kept = Json::array();
                  for (const Json& row : call["trace"]) {
                    if (!kept.empty() && is(row, "before_dataloader") && is(kept.back(), "before_dataloader")) continue;
                    kept.push_back(row);
                  }
                  call["trace"] = kept;
                }
              }};
}

// Leaves out the batches of an epoch that are trained again, and counts without them.
void go_on_at_next_batch(Json& result, const Json&) {
  const Json at = result[0]["final"];
  const std::int64_t batches = at["batch_in_epoch"], samples = at["sample_in_epoch"], tokens = at["token_in_epoch"];
  const auto less = [](Json& number, std::int64_t by) { number = number.get<std::int64_t>() - by; };
  if (batches == 0) return;
  std::int64_t fetched = 0;
  for (Json& call : result) {
    Json kept = Json::array();
    for (Json row : call["trace"]) {
      if (is(row, "before_dataloader") && ++fetched == batches + 1) row[BATCH_NUM_SAMPLES] = nullptr;
      if (fetched > batches) {
        less(row[BATCH], batches), less(row[SAMPLE], samples), less(row[TOKEN], tokens);
        less(row[TOKEN_IN_ITERATION], tokens);
        if (row[EPOCH] == at["epoch"])
          less(row[BATCH_IN_EPOCH], batches), less(row[SAMPLE_IN_EPOCH], samples), less(row[TOKEN_IN_EPOCH], tokens);
      }
      if (fetched == 0 || fetched > batches) kept.push_back(row);
    }
    call["trace"] = kept;
    if (fetched > batches)
      less(call["final"]["batch"], batches), less(call["final"]["sample"], samples),
          less(call["final"]["token"], tokens);
  }
}

Rule always_placed() {
  return {.name = "no_batch_is_trained_twice",
          .applies_to = "`spin_dataloaders` off, in a run that goes on in the middle of an epoch",
          .composer_does = "Trains the whole epoch again, and counts on.",
          .we_do = "Goes on at the next batch; there is no such option, because placing a loader costs nothing.",
          .why = "An epoch is every sample once.",
          .matches =
              [](const Json& c) {
                return c["config"].contains("checkpoint_from") && trainer_argument(c, "spin_dataloaders") == false;
              },
          .ours = go_on_at_next_batch};
}

Rule batch_after_evaluation() {
  return {.name = "batch_is_restored_after_evaluation",
          .applies_to = "Evaluation and prediction",
          .composer_does =
              "Leaves the last evaluated (micro)batch in `state.batch`, where `BATCH_CHECKPOINT`, "
              "`EPOCH_CHECKPOINT` and others then see it.",
          .we_do = "`state.batch` is what it was before.",
          .why = "A callback at these events expects the training batch.",
          .matches =
              [](const Json& c) {
                return !c["config"].value("eval", Json()).is_null() || calls(c, "eval") || calls(c, "predict") ||
                       calls(c, "fit");
              },
          .ours =
              [](Json& result, const Json&) {
                Json training;  // what state.batch held outside of evaluation and prediction
                bool stale = false;
                for_each_row(result, [&](Json& row, const Json&) {
                  const std::string event = row[EVENT];
                  const bool aside = event == "eval_start" || event == "eval_end" || event.starts_with("eval_batch") ||
                                     event == "eval_before_forward" || event == "eval_after_forward" ||
                                     (event.starts_with("predict"));
                  if (event == "after_dataloader") stale = false;
                  if (event == "eval_start" || event == "predict_start") {
                    row[BATCH_NUM_SAMPLES] = training;
                    stale = true;
                  } else if (!aside) {
                    if (stale)
                      row[BATCH_NUM_SAMPLES] = training;
                    else
                      training = row[BATCH_NUM_SAMPLES];
                  }
                });
              }};
}

Rule stop_keeps_max_duration() {
  return {
      .name = "stop_keeps_max_duration",
      .applies_to = "A run that somebody asks to stop",
      .composer_does = "`stop_training()` sets `max_duration` to where training is (in batches if it was in epochs).",
      .we_do =
          "`state.stop.ask(why)` leaves `max_duration` alone; the run ends after the same batch, and the next "
          "`fit()` goes on.",
      .why = "A request with its reason can be told from the end of the run, and comes from any thread.",
      .matches =
          [](const Json& c) {
            for (const Json& hook : c["config"].value("hooks", Json::array()))
              if (hook["action"] == "stop_training") return true;
            return false;
          },
      .ours =
          [](Json& result, const Json&) {
            Json asked;
            for (Json& call : result) {
              for (Json& row : call["trace"]) {
                if (call["fn"] == "construct" || is(row, "fit_start")) asked = row[MAX_DURATION];
                row[MAX_DURATION] = asked;
              }
              call["final"]["max_duration"] = asked;
            }
          }};
}

std::int64_t batches_of(const Json& data, const Json& subset) {
  const std::int64_t size = data["size"], batch = data["batch_size"];
  const std::int64_t all = data.value("drop_last", false) ? size / batch : (size + batch - 1) / batch;
  return subset.is_number_integer() && subset.get<std::int64_t>() >= 0 ? std::min<std::int64_t>(all, subset) : all;
}

Rule no_lag() {
  return {.name = "schedules_do_not_lag",
          .applies_to = "Schedules that are applied every batch",
          .composer_does =
              "Trains batch k with the learning rate of batch k-1 (k >= 1): the scheduler is stepped before "
              "the batch is counted.",
          .we_do = "The learning rate in force is always that of `state.timestamp`.",
          .why = "A schedule applies to the batch it is computed for; a linear one ends where it should.",
          .matches =
              [](const Json& c) {
                return !trainer_argument(c, "schedulers").is_null() &&
                       trainer_argument(c, "step_schedulers_every_batch") != false;
              },
          .ours =
              [](Json& result, const Json& c) {
                const auto schedulers = schedulers_of(trainer_argument(c, "schedulers"));
                const Json ratio = trainer_argument(c, "scale_schedule_ratio");
                for_each_row(result, [&](Json& row, const Json&) {
                  if (is(row, "init") || row[MAX_DURATION].is_null()) return;
                  optim::ScheduleContext at{.max_duration = time_of(row[MAX_DURATION]),
                                            .scale_schedule_ratio = ratio.is_null() ? 1.0 : ratio.get<double>()};
                  Timestamp& t = at.timestamp;
                  t.iteration = row[ITERATION], t.epoch = row[EPOCH], t.batch = row[BATCH], t.sample = row[SAMPLE];
                  t.token = row[TOKEN], t.batch_in_epoch = row[BATCH_IN_EPOCH];
                  at.dataloader_len = batches_of(c["config"]["train"], trainer_argument(c, "train_subset_num_batches"));
                  row[LR] = 0.1 * factor_at(schedulers, at);
                });
              }};
}

Rule options_first() {
  return {.name = "options_are_checked_before_init",
          .applies_to = "A `max_duration` in shares",
          .composer_does = "Fires `INIT`, then fails.",
          .we_do = "Fails before any event.",
          .why = "Bad input gets its error before any work.",
          .matches =
              [](const Json& c) {
                const Json max = trainer_argument(c, "max_duration");
                if (!max.is_string()) return false;
                return time_of(max).unit() == TimeUnit::DURATION;
              },
          .ours = [](Json& result, const Json&) { result[0]["trace"] = Json::array(); }};
}

Rule empty_loader() {
  return {.name = "empty_training_loader",
          .applies_to = "A training loader without a single batch",
          .composer_does = "Counts empty epochs: it warns if the duration is in epochs, and never ends otherwise.",
          .we_do = "`DataError` at the first fetch.",
          .why = "A run that trains nothing is a mistake.",
          .matches =
              [](const Json& c) {
                const Json train = c["config"].value("train", Json());
                return train.is_object() && batches_of(train, Json()) == 0;
              },
          .ours =
              [](Json& result, const Json&) {
                Json first, end;
                for (Json& call : result) {
                  if (call["fn"] == "fit") {
                    call["error"] = {{"type", "ValueError"}};
                    Json kept = Json::array();
                    for (const Json& row : call["trace"]) {
                      kept.push_back(row);
                      if (is(row, "before_dataloader")) break;
                    }
                    call["trace"] = kept;
                    first = kept.back();
                    for (const char* key : {"epoch", "batch", "iteration"}) call["final"][key] = 0;
                    end = call["final"];
                  } else if (!first.is_null()) {
                    call["final"] = end;
                    for (Json& row : call["trace"]) {
                      const Json event = row[EVENT];
                      row = first;
                      row[EVENT] = event;
                    }
                  }
                }
              }};
}

Rule eval_without_evaluators() {
  return {.name = "eval_without_evaluators",
          .applies_to = "`eval()` when there is nothing to evaluate on",
          .composer_does = "Fires `EVAL_STANDALONE_START`, then fails.",
          .we_do = "Fails before any event.",
          .why = "Bad input gets its error before any work.",
          .matches =
              [](const Json& c) {
                for (const Json& call : c["config"]["calls"])
                  if (call["fn"] == "eval" && !call.contains("eval_dataloader") &&
                      c["config"].value("eval", Json()).is_null())
                    return true;
                return false;
              },
          .ours =
              [](Json& result, const Json&) {
                for (Json& call : result)
                  if (call["fn"] == "eval" && !call["error"].is_null()) call["trace"] = Json::array();
              }};
}

Rule dur_interval_first() {
  return {.name = "share_intervals_are_checked_first",
          .applies_to = "An evaluation interval in shares of the run, with a training loader of unknown length",
          .composer_does = "Fails after the first batch.",
          .we_do = "Fails before `FIT_START`.",
          .why = "Bad input gets its error before any work.",
          .matches =
              [](const Json& c) {
                const Json interval = trainer_argument(c, "eval_interval"), train = c["config"].value("train", Json());
                return train.is_object() && !train.value("sized", true) && interval.is_string() &&
                       trainer_argument(c, "train_subset_num_batches").is_null() &&
                       time_of(interval).unit() == TimeUnit::DURATION;
              },
          .ours =
              [](Json& result, const Json&) {
                Json before;
                for (Json& call : result) {
                  if (call["fn"] == "fit") {
                    call["trace"] = Json::array();
                    call["final"] = before;
                  } else if (call["fn"] == "close") {
                    for (Json& row : call["trace"]) {
                      for (std::size_t i = ITERATION; i <= TOKEN_IN_EPOCH; ++i) row[i] = 0;
                      row[BATCH_NUM_SAMPLES] = nullptr;
                    }
                    call["final"] = before;
                  }
                  before = call["final"];
                }
              }};
}

// What a fit fires that finds out at the end of each epoch how long it was. `row` is one of before it.
Json trace_of_epochs(const Json& train, std::int64_t epochs, Json row) {
  const std::int64_t size = train["size"], batch_size = train["batch_size"];
  Json trace = Json::array();
  const auto fire = [&](const char* event) {
    row[EVENT] = event;
    trace.push_back(row);
  };
  const auto count = [&](Column column, std::int64_t by) { row[column] = row[column].get<std::int64_t>() + by; };
  fire("fit_start");
  fire("iteration_start");
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    fire("epoch_start");
    for (std::int64_t first = 0; first < size; first += batch_size) {
      const std::int64_t samples = std::min(batch_size, size - first);
      fire("before_dataloader");
      row[BATCH_NUM_SAMPLES] = samples;
      for (const char* event :
           {"after_dataloader", "batch_start", "before_train_batch", "before_forward", "after_forward", "before_loss",
            "after_loss", "before_backward", "after_backward", "after_train_batch"})
        fire(event);
      count(BATCH, 1), count(BATCH_IN_EPOCH, 1), count(SAMPLE, samples), count(SAMPLE_IN_EPOCH, samples);
      fire("batch_end");
      fire("batch_checkpoint");
    }
    fire("before_dataloader");
    count(EPOCH, 1), count(EPOCH_IN_ITERATION, 1);
    row[BATCH_IN_EPOCH] = row[SAMPLE_IN_EPOCH] = 0;
    fire("epoch_end");
    fire("epoch_checkpoint");
  }
  fire("fit_end");
  return trace;
}

Rule epochs_of_unknown_length() {
  return {.name = "epochs_of_unknown_length",
          .applies_to = "A `max_duration` in epochs, with a training loader of unknown length",
          .composer_does = "Raises `ValueError`.",
          .we_do = "Trains, and fires what it fires for a loader whose length is known.",
          .why = "The loader says itself when an epoch is over.",
          .matches =
              [](const Json& c) {
                const Json duration = trainer_argument(c, "max_duration"), train = c["config"].value("train", Json());
                return train.is_object() && !train.value("sized", true) && duration.is_string() &&
                       trainer_argument(c, "train_subset_num_batches").is_null() &&
                       trainer_argument(c, "eval_interval").is_null() && time_of(duration).unit() == TimeUnit::EPOCH;
              },
          .ours =
              [](Json& result, const Json& c) {
                const std::int64_t epochs = time_of(trainer_argument(c, "max_duration")).count();
                Json row;  // of the event before
                for (Json& call : result) {
                  if (call["fn"] == "fit") {
                    call["error"] = nullptr;
                    call["trace"] = trace_of_epochs(c["config"]["train"], epochs, row);
                    const Json& last = call["trace"].back();
                    call["final"]["epoch"] = last[EPOCH];
                    call["final"]["batch"] = last[BATCH];
                    call["final"]["sample"] = last[SAMPLE];
                  }
                  if (!call["trace"].empty()) row = call["trace"].back();
                }
              }};
}

// The rows of the last evaluation, cut out of `trace`.
Json cut_last_round(Json& trace) {
  Json before = Json::array(), round = Json::array();
  bool inside = false;
  for (const Json& row : trace) {
    if (is(row, "eval_before_all")) inside = true;
    (inside ? round : before).push_back(row);
    if (is(row, "eval_after_all")) inside = false;
  }
  trace = before;
  return round;
}

Rule eval_at_iterations() {
  return {.name = "evaluation_every_iteration",
          .applies_to = "An evaluation interval in iterations",
          .composer_does = "Never asks evaluators at `ITERATION_END`, so there is the final evaluation only.",
          .we_do = "Evaluates after `ITERATION_END`, before `ITERATION_CHECKPOINT`.",
          .why = "The interval means what it says.",
          .matches =
              [](const Json& c) {
                const Json interval = trainer_argument(c, "eval_interval");
                return interval.is_string() && time_of(interval).unit() == TimeUnit::ITERATION;
              },
          .ours =
              [](Json& result, const Json& c) {
                const std::int64_t every = time_of(trainer_argument(c, "eval_interval")).count();
                for (Json& call : result) {
                  const Json final_round = cut_last_round(call["trace"]);
                  if (final_round.empty()) continue;
                  Json trace = Json::array(), last_batch;
                  std::vector<Json> phase;  // of the evaluation before
                  for (const Json& row : call["trace"]) {
                    trace.push_back(row);
                    const bool due = is(row, "iteration_end") && row[ITERATION].get<std::int64_t>() % every == 0;
                    if (!due && !(is(row, "fit_end") && last_batch != row[BATCH])) continue;
                    last_batch = row[BATCH];
                    for (Json evaluated : final_round) {
                      for (std::size_t i = ITERATION; i <= TOKEN_IN_EPOCH; ++i) evaluated[i] = row[i];
                      if (is(evaluated, "eval_before_all"))
                        for (std::size_t i = 0; i < phase.size(); ++i) evaluated[PHASE_BATCH + i] = phase[i];
                      if (is(evaluated, "eval_after_all"))
                        phase = {evaluated[PHASE_BATCH], evaluated[PHASE_SAMPLE], evaluated[PHASE_TOKEN]};
                      trace.push_back(evaluated);
                    }
                  }
                  call["trace"] = trace;
                }
              }};
}

// Whether a row is of a pass over a batch.
bool is_in_pass(const Json& row) {
  const auto event = parse_event(row.at(EVENT).get<std::string>());
  return event >= Event::BEFORE_TRAIN_BATCH && event <= Event::AFTER_TRAIN_BATCH;
}

Rule silent_pass() {
  return {.name = "sam_fires_once",
          .applies_to = "The events of a batch that is trained with SAM",
          .composer_does = "Fires the events from `BEFORE_TRAIN_BATCH` to `AFTER_TRAIN_BATCH` for both passes.",
          .we_do =
              "Fires them to callbacks and loggers for the second pass, which gives the gradients of the step; "
              "algorithms see the events of the first one too, but for `AFTER_TRAIN_BATCH`.",
          .why = "What is measured and logged per batch is the same with and without SAM.",
          .matches = [](const Json& c) { return !trainer_argument(c, "algorithms").is_null(); },
          .ours =
              [](Json& result, const Json&) {
                for (Json& call : result) {
                  Json kept = Json::array();
                  for (const Json& row : call["trace"]) {
                    if (is(row, "before_train_batch"))
                      while (is_in_pass(kept.back())) kept.erase(kept.size() - 1);
                    kept.push_back(row);
                  }
                  call["trace"] = kept;
                }
              }};
}

}  // namespace

Rules events_rules() {
  return {options_first(),
          silent_pass(),
          empty_loader(),
          epochs_of_unknown_length(),
          eval_without_evaluators(),
          dur_interval_first(),
          eval_at_iterations(),
          always_placed(),
          skipped_batches(),
          stop_keeps_max_duration(),
          batch_after_evaluation(),
          no_lag()};
}

}  // namespace composer::replay
