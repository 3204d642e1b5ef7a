#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/state.h"
#include "composer/kernels/products.h"
#include "composer/step/feed.h"
#include "composer/step/train_step.h"
#include "composer/tuning/trials.h"
#include "composer/tuning/tune_cache.h"

namespace composer {

// A choice: "threads", "1", "12.1 ms a step (2: 13 ms)".
struct TuningChoice {
  std::string setting, chosen, reason;
};
COMPOSER_EXPORT std::string to_string(const TuningChoice& choice);  // as one line

std::int64_t elements_of(const Batch& batch);  // number of elements of all its tensors

// Further results of a Tuner, beside the way to train.
struct TuningResult {
  std::vector<TuningChoice> choices;
  std::string key;            // the way's key in the cache
  std::int64_t elements = 0;  // in the microbatch that was tried
  bool disturbed = false;     // other programs disturbed all trials, so the way is not in the cache
};

// Searches for the fastest way to train this model on this machine: channels-last weights (of convolutions), autocast
// or fp32 where the user allows autocast, fewer threads, matrix products by our own kernels. Times forward, loss and
// backward of one real batch in every combination, without algorithms and without the optimizer's step. Afterwards
// buffers, gradients, RNG state and the fields of the state are as before.
class Tuner {
 public:
  struct Choices {
    bool ways = true;                           // layout, precision and threads
    kernels::ProductTable* products = nullptr;  // table of the innermost ProductScope; nullptr: products are not chosen
    std::function<bool()> stops = [] { return false; };  // called before each step; true: give up
  };
  Tuner(State& state, TrainStep& step, const Feed& feed, Choices choices)
      : state_(state),
        step_(step),
        feed_(feed),
        ways_(choices.ways),
        products_(choices.products),
        stops_(std::move(choices.stops)) {}

  // `batch` is used for the trials. Leaves the fastest way in use and in `chosen`. If `chosen` has a way already, such
  // as that of a resumed run's checkpoint, uses it without trials. If it gives up, everything is as before.
  TuningResult run(Batch batch, const std::filesystem::path& cache_file, std::optional<Tuned>& chosen);
  // Tries only the current number of threads and `other`. Leaves the faster number in use and in `chosen`.
  TuningResult run_threads(Batch batch, int other, Tuned& chosen);

 private:
  using Shapes = std::map<kernels::ProductShape, std::int64_t>;
  struct Way {
    bool channels_last = false, autocast = false;
    int threads = 1;
    bool own_products = false;
    bool operator==(const Way&) const = default;
  };

  std::string key(const Batch& batch) const;
  std::string shapes_key() const;
  void use(const Tuned& tuned);
  void use(const Way& way);
  bool fits(const Tuned& tuned) const;  // whether this machine can use it
  Tuned find_or_measure(Batch batch, const TuneCache& cache, bool resumes);
  Tuned measure();
  void go_on_unless_stopped() const;  // throws Stopped, which run() catches
  void look_at_step();                // throws Stopped, too
  Shapes shapes_of_step();
  void set_channels_last(bool on);
  void set_autocast(bool on);
  void set_products(const kernels::ProductTable& table);
  void race(const std::vector<Way>& ways);
  std::vector<Way> all_ways() const;  // the first is the current way
  bool has_convolutions() const;
  void step();
  double time_steps(int steps);  // seconds for each step
  Verdict fastest(const std::vector<Way>& ways, const std::function<void(const Way&)>& use_way);
  void say(const std::vector<Way>& ways, const Verdict& verdict);

  State& state_;
  TrainStep& step_;
  const Feed& feed_;
  bool ways_;
  kernels::ProductTable* products_;
  std::function<bool()> stops_;
  std::optional<std::string> kept_products_;  // products of the resumed run
  Precision allowed_ = Precision::FP32;
  bool layouts_ = false;                         // whether there are weights that could be channels last
  std::optional<Shapes> shapes_;                 // of the products of a step
  std::map<int, kernels::ProductTable> tables_;  // by number of threads: the products for which our kernels are faster
  double patience_ = 0;                          // seconds for which disturbed trials are repeated
  TuningResult result_;
};

}  // namespace composer
