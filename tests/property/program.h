#pragma once
// A program: what it trains with, and what its user does one thing after another. One line of text, so that a failure
// can be run again: "samples=8 batch=2 save=1 a.begin.0 a.step.3@stop:batch_end:2 a.end a.kill a.fit.0".
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "composer/core/event.h"

namespace composer::property {

// Where something can happen in the middle of an operation: at an event, or in the user's own code.
enum class Site : std::uint8_t { FORWARD = kEventCount, LOSS, LOADER, METRIC_UPDATE, METRIC_COMPUTE, LOG, COUNT };
constexpr Site site_of(Event event) { return static_cast<Site>(event); }
std::string to_string(Site site);

// What happens there. DIE ends the process: only programs that the search runs in processes of their own have it.
enum class Action : std::uint8_t { NONE, THROW, STOP, SIGINT_, SIGTERM_, DIE, COUNT };

struct Plan {
  Action action = Action::NONE;
  Site site = Site::FORWARD;
  int nth = 1;  // the how manieth time this operation comes there
};

enum class Kind : std::uint8_t {
  FIT,         // number: batches; 0: to max_duration
  FIT_EPOCHS,  // number: epochs
  FIT_ITER,    // for an iteration, of which nobody has said how long it is
  FIT_TOKENS,  // for tokens, though batches have none
  BEGIN,       // number: batches; 0: to max_duration, if there is one
  STEP,        // number: how often
  GIVE,        // step(batch); number: how often
  END,
  EVAL,     // number: batches of each evaluator; 0: all
  PREDICT,  // number: 1: with the loader of training
  SAVE,     // number: 0: named as the periodic ones
  STOP,     // asked between two steps
  SIGINT_,  // likewise
  SIGTERM_,
  KILL,   // destroyed without a word, and built again
  CLOSE,  // closed, and built again
  COUNT
};

struct Op {
  Kind kind = Kind::FIT;
  int trainer = 0, number = 0;
  Plan plan = {};
};

// The simplest is 0 or as written here: shrinking tries that.
struct Setup {
  int samples = 4, batch = 2, shuffle = 0, prefetch = 0, unknown_length = 0;
  int loader = 1;      // 0: none, batches are given
  int microbatch = 0;  // samples
  int masked = 0;      // the first microbatch of each batch has no weight
  int draws = 0;       // the model draws random numbers while it trains
  int momentum = 0;
  int trainers = 1, shared = 0;          // shared: one loader for both
  int epochs = 2, batches = 0;           // max_duration, in one or the other; neither: none
  int evaluators = 0, eval_batches = 0;  // evaluated every so many batches; 0: every epoch
  int eval_trains = 0;                   // the first evaluator has the loader of training
  int swaps = 0;                         // an algorithm that evaluates with other weights
  int train_metrics = 0, logs = 0;
  int signals = 0;                 // how many of the trainers handle them
  int save = 0, save_batches = 0;  // every so many batches; 0: every epoch
  int keep = 0, save_async = 0;    // keep: 0: all
  int closer = 0;                  // a callback that takes a snapshot when it is closed
};

// With what does not go together set right.
Setup consistent(Setup setup);

struct Program {
  Setup setup;
  std::vector<Op> ops;
};

std::string to_string(const Program& program);
Program parse(const std::string& text);  // throws std::invalid_argument

struct SetupField {
  const char* name;
  int Setup::*value;
};
const std::vector<SetupField>& setup_fields();

// The same seed and number give the same program.
enum class Style : std::uint8_t { QUICK, WITH_KILLS, IN_THREADS };
Program generate(std::uint64_t seed, std::uint64_t number, Style style);

}  // namespace composer::property
