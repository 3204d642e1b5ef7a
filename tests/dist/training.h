#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/cli/launch_policy.h"
#include "composer/core/stop.h"
#include "composer/trainer/ending.h"
#include "composer/trainer/votes.h"
#include "tests/dist/simulation.h"

// Ranks that train step by step, agree on when to stop, and are watched by a launcher; on the clock, network and store
// of Simulation. Time and what processes do is simulated. The decisions are those of FailureDetector, votes.h, Ending
// and EndPolicy.
namespace composer::dist::simulation {

// Something that a rank is asked for while it trains.
struct Request {
  enum Kind { PAUSE, FINISH, SIGNAL } kind = PAUSE;
  int rank = 0;
  Time at{0};
  int signal = 0;
};

struct TrainingRules {
  std::int64_t batches = 10, eval_every = 0, save_every = 2;  // eval_every 0: no evaluations
  Time computing{100};                                        // the longest time between two collectives
  int slow = 0;                                               // percent of them that take a hundred times as long
  Time grace{30000};                                          // of the launcher
};

// One start of all ranks.
struct Attempt {
  Schedule schedule;
  std::vector<Request> requests;
  std::optional<Time> asked_to_end;  // the launcher gets SIGTERM
};

class Training final : public Simulation {
 public:
  // Goes on from batch `from`.
  Training(const Attempt& attempt, const TrainingRules& training, const DetectorRules& rules, std::int64_t from);

  struct Result {
    std::string disagreement;  // empty: the ranks did the same, and those that finished ended alike
    bool over = false;         // all processes have ended
    Time at{0};                // when
    int code = 0;              // the launcher's
    bool interrupted = false;  // the launcher was asked to end
    std::optional<int> culprit;
    std::int64_t saved = 0;  // the batch of the newest checkpoint
    std::string outcome;     // of those that finished
    std::vector<End> ends;
  };
  Result result(Time limit);

 private:
  struct Rank {
    std::int64_t batch = 0;
    int signal = 0;
    Stop stop;
    Ending ending;
    std::size_t meetings = 0;
    std::string outcome;
  };
  // A collective: what it is for, what the ranks bring, and what they do afterwards.
  struct Meeting {
    std::string what, text;
    std::vector<std::int64_t> largest, sum;
    std::vector<std::pair<int, std::function<void()>>> waiting;
  };
  using Then = std::function<void(const Meeting&)>;

  void work(int rank) override;
  void has_ended(int rank) override;
  void meet(int rank, const std::string& what, std::vector<std::int64_t> values, const std::string& text, Then then);
  void compute(int rank, std::function<void()> then);

  void head(int rank);
  void step(int rank, const Decision& decision, const std::string& why);
  void evaluate(int rank, std::int64_t batch);
  void checkpoint(int rank);
  void finish(int rank);
  void note(int rank, int signal);

  void launch();  // what the launcher does next
  void disagree(const std::string& what);

  const TrainingRules& training_;
  std::deque<Rank> ranks_;
  std::vector<std::shared_ptr<Meeting>> meetings_;
  cli::EndPolicy policy_;
  Result result_;
};

}  // namespace composer::dist::simulation
