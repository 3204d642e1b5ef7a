#include "composer/trainer/stopping.h"

#include <csignal>
#include <optional>

#include "composer/core/logger.h"
#include "composer/step/train_step.h"
#include "composer/trainer/fit_history.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/training_time.h"
#include "tests/support/doctest.h"

namespace composer::test::stopping_test {
namespace {

// One rank, whose fits may last ten batches.
struct Alone {
  Alone() { state.max_duration = "10ba"; }

  State state;
  Logger logger{state, {}};
  Ranks ranks{nullptr, {}};
  TrainStep step{state, logger, /*weigh_by_tokens=*/false};
  ReplicaCheck replicas{ranks, state, step};
  LearningRates rates;
  FitHistory fits;
  std::optional<Fit> fit;
  TrainingTime time{state, logger, ranks, rates, fits, fit};
  Stopping stopping{ranks, state, time, replicas};
};

TEST_CASE("Where there is no fit, none is over, and a signal changes nothing") {
  Alone run;
  run.stopping.note_signal(SIGTERM);
  CHECK_FALSE(run.stopping.look_for_signal());
  CHECK_FALSE(run.stopping.interrupted());
  CHECK_FALSE(run.stopping.over());
  CHECK_FALSE(run.stopping.pauses());
  CHECK(run.stopping.signal() == 0);
  CHECK_FALSE(run.state.stop.asked());
}

TEST_CASE("A request ends the fit at the next step, and is asked of this process before") {
  Alone run;
  run.stopping.begin_fit(/*handle_signals=*/false);
  CHECK_FALSE(run.stopping.decide_with_ranks(false));
  CHECK_FALSE(run.stopping.is_asked_here());
  run.state.stop.ask("enough");
  CHECK(run.stopping.is_asked_here());
  CHECK_FALSE(run.stopping.over());
  CHECK(run.stopping.decide_with_ranks(false));
  CHECK(run.stopping.over());
  run.state.stop.clear();
  CHECK_FALSE(run.stopping.decide_with_ranks(false));
  CHECK(run.stopping.decide_with_ranks(/*limit_reached=*/true));
}

TEST_CASE("A signal of a fit is a request to stop, and is remembered when the fit has ended") {
  Alone run;
  run.stopping.begin_fit(/*handle_signals=*/true);
  std::raise(SIGINT);
  CHECK(run.stopping.pending_signal() == SIGINT);
  CHECK(run.stopping.is_asked_here());
  CHECK_FALSE(run.stopping.interrupted());  // nobody has looked
  CHECK(run.stopping.look_for_signal());
  CHECK(run.stopping.signal() == SIGINT);
  CHECK(run.state.stop.why() == "interrupted (SIGINT)");
  CHECK(run.stopping.decide_with_ranks(false));
  run.stopping.end_fit();
  CHECK_FALSE(run.stopping.interrupted());
  CHECK(run.stopping.signals()->pending() == SIGINT);
  run.stopping.begin_fit(/*handle_signals=*/true);
  CHECK(run.stopping.pending_signal() == 0);
}

TEST_CASE("A fit pauses that a request ends before its limit, unless the run is finished") {
  struct Row {
    const char* what;
    bool asked;
    Stop::Kind kind;
    std::int64_t batch;
    bool pauses;
  };
  for (const auto& [what, asked, kind, batch, pauses] : {
           Row{"nobody has asked", false, Stop::PAUSED, 4, false},
           Row{"somebody has asked", true, Stop::PAUSED, 4, true},
           Row{"the run is finished", true, Stop::FINISHED, 4, false},
           Row{"asked at the limit", true, Stop::PAUSED, 10, false},
       }) {
    CAPTURE(what);
    Alone run;
    run.state.timestamp.batch = batch;
    run.stopping.begin_fit(/*handle_signals=*/false);
    if (asked) run.state.stop.ask("enough", kind);
    run.stopping.decide_with_ranks(false);
    CHECK_FALSE(run.stopping.pauses());  // it has not ended
    run.stopping.decide_last_with_ranks();
    CHECK(run.stopping.pauses() == pauses);
  }
}

}  // namespace
}  // namespace composer::test::stopping_test
