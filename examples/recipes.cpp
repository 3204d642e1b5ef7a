// Measures what algorithms and recipes do on Fashion-MNIST: trains the network of scripts/train once for each row and
// seed, and prints the accuracy, the time, and the time until the accuracy of the plain run is reached. scripts/recipes
// runs this program.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/util/tune_process.h"
#include "examples/fashion_mnist_job.h"

namespace {

using namespace composer;
using examples::Job;

struct Row {
  std::string name;
  std::vector<std::string> options;  // options of scripts/train
};

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Row alone(const std::string& algorithm, const std::vector<std::string>& options = {}) {
  Row row{algorithm, {"--algorithm=" + algorithm}};
  for (const std::string& option : options) row.options.push_back(join("--algorithm=", algorithm, '.', option));
  return row;
}

// All algorithms that can change how this convolutional network is trained, with options that suit 28 x 28 pixels, 16
// to 64 channels and 6 epochs.
std::vector<Row> all_rows() {
  std::vector<Row> rows = {{"plain", {}}};
  for (const examples::Recipe& recipe : examples::recipes()) rows.push_back({"recipe " + recipe.name, recipe.options});
  for (Row row : {
           Row{"3 epochs", {"--epochs=3"}},
           Row{"muon", {"--optimizer=muon", "--lr=0.04", "--weight-decay=0.05"}},
           alone("augmix"),
           alone("blurpool"),
           alone("colout"),
           alone("cutmix", {"alpha=0.2"}),
           alone("cutout"),
           alone("ema", {"half_life=100ba"}),
           alone("factorize", {"min_channels=32"}),
           alone("ghost_batchnorm"),
           alone("gradient_clipping", {"clipping_threshold=1"}),
           alone("label_smoothing", {"smoothing=0.05"}),
           alone("layer_freezing"),
           alone("mixup"),
           alone("progressive_resizing"),
           alone("randaugment", {"severity=3"}),
           alone("sam"),
           alone("selective_backprop"),
           alone("squeeze_excite", {"min_channels=32"}),
           alone("stochastic_depth"),
           alone("swa"),
           alone("weight_standardization"),
       })
    rows.push_back(std::move(row));
  return rows;
}

// Wall time and CPU time of all threads, in seconds.
struct Spent {
  double wall = 0, cpu = 0;
};

Spent now() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
  return {wall.count(), seconds(used.ru_utime) + seconds(used.ru_stime)};
}

struct Epoch {
  double accuracy = 0;
  Spent trained;  // since the beginning of the run
};

// Measures the time of training, without evaluations.
class TrainingClock final : public Callback {
 public:
  explicit TrainingClock(std::vector<Epoch>& epochs) : epochs_(&epochs) {}
  void epoch_start(const State&, Logger&) override { start_ = now(); }
  void eval_start(const State&, Logger&) override { add(); }
  void eval_end(const State& state, Logger&) override {
    epochs_->push_back({state.metrics.at("eval", "MulticlassAccuracy"), trained_});
    start_ = now();
  }

 private:
  void add() {
    const Spent end = now();
    trained_.wall += end.wall - start_.wall;
    trained_.cpu += end.cpu - start_.cpu;
  }

  std::vector<Epoch>* epochs_;
  Spent start_, trained_;
};

struct Trained {
  std::string row, options;
  std::uint64_t seed = 0;
  std::vector<Epoch> epochs;
};

nlohmann::ordered_json to_json(const Trained& run) {
  nlohmann::ordered_json line = {{"row", run.row}, {"options", run.options}, {"seed", run.seed}};
  for (const Epoch& epoch : run.epochs) {
    line["accuracy"].push_back(epoch.accuracy);
    line["seconds"].push_back(epoch.trained.wall);
    line["cpu_seconds"].push_back(epoch.trained.cpu);
  }
  return line;
}

Trained from_json(const nlohmann::json& line) {
  Trained run{line.at("row"), line.at("options"), line.at("seed"), {}};
  for (std::size_t i = 0; i < line.at("accuracy").size(); ++i)
    run.epochs.push_back({line["accuracy"][i], {line.at("seconds")[i], line.at("cpu_seconds")[i]}});
  return run;
}

// Reads the runs that the file already has, with which an interrupted comparison continues.
std::vector<Trained> read_runs(const std::string& path) {
  std::vector<Trained> runs;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) runs.push_back(from_json(nlohmann::json::parse(line)));
  return runs;
}

// A row of this comparison.
struct Compared {
  std::string name, options;  // options: all of them, as one text
  Job job;

  bool has(const Trained& run) const { return run.row == name && run.options == options; }
};

// Returns nothing if a signal ended the run.
std::optional<Trained> train(const Compared& row, std::uint64_t seed) {
  Job job = row.job;
  job.seed = seed;
  if (job.threads > 0) at::set_num_threads(job.threads);
  Trained run{row.name, row.options, seed, {}};
  TrainerOptions trainer_options = examples::trainer_options(job);
  trainer_options.callbacks.add(TrainingClock(run.epochs));
  Trainer trainer(std::move(trainer_options));
  trainer.fit();
  if (trainer.interrupted_by()) return std::nullopt;
  return run;
}

struct Summary {
  std::size_t runs = 0, reached = 0;  // all runs, and those that reach the accuracy
  double mean = 0, lowest = 1, highest = 0;
  Spent trained, until;  // means; until: the time at which the accuracy is reached
};

Summary summarize(const std::vector<Trained>& runs, const Compared& row, double accuracy) {
  Summary sum;
  const auto add = [](Spent& to, const Spent& one) { to = {to.wall + one.wall, to.cpu + one.cpu}; };
  const auto divide = [](Spent& by, std::size_t n) {
    if (n) by = {by.wall / static_cast<double>(n), by.cpu / static_cast<double>(n)};
  };
  for (const Trained& run : runs) {
    if (!row.has(run) || run.epochs.empty()) continue;
    const Epoch& last = run.epochs.back();
    ++sum.runs;
    sum.mean += last.accuracy;
    sum.lowest = std::min(sum.lowest, last.accuracy);
    sum.highest = std::max(sum.highest, last.accuracy);
    add(sum.trained, last.trained);
    const auto at = std::find_if(run.epochs.begin(), run.epochs.end(),
                                 [&](const Epoch& epoch) { return epoch.accuracy >= accuracy; });
    if (at == run.epochs.end()) continue;
    ++sum.reached;
    add(sum.until, at->trained);
  }
  if (sum.runs) sum.mean /= static_cast<double>(sum.runs);
  divide(sum.trained, sum.runs);
  divide(sum.until, sum.reached);
  return sum;
}

void print(const std::vector<Compared>& rows, const std::vector<Trained>& runs) {
  const Summary plain = summarize(runs, rows[0], 2);
  std::puts("Times are of training alone, relative to plain: by the clock, and of the processors.\n");
  std::puts(
      "| | runs | accuracy, % | lowest, highest | seconds | time | CPU time | time to plain's accuracy | CPU time |");
  std::puts("|---|---|---|---|---|---|---|---|---|");
  for (const Compared& compared : rows) {
    const Summary row = summarize(runs, compared, plain.mean);
    if (row.runs == 0) continue;
    std::printf("| %s | %zu | %.2f | %.2f, %.2f | %.1f |", compared.name.c_str(), row.runs, 100 * row.mean,
                100 * row.lowest, 100 * row.highest, row.trained.wall);
    if (plain.runs == 0)
      std::printf(" | | | |\n");
    else if (row.reached == 0)
      std::printf(" %.2f | %.2f | not reached | |\n", row.trained.wall / plain.trained.wall,
                  row.trained.cpu / plain.trained.cpu);
    else
      std::printf(" %.2f | %.2f | %.2f (%zu of %zu) | %.2f |\n", row.trained.wall / plain.trained.wall,
                  row.trained.cpu / plain.trained.cpu, row.until.wall / plain.trained.wall, row.reached, row.runs,
                  row.until.cpu / plain.trained.cpu);
  }
  std::fflush(stdout);
}

bool matches(const std::string& name, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return true;
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return name.find(pattern) != std::string::npos; });
}

struct Options {
  std::vector<std::string> patterns, own;
  std::string base = "--precision=fp32", out = "runs/recipes.jsonl";
  std::uint64_t seeds = 3, first_seed = 17;
  double minutes = 25;
  bool list = false, only_table = false;
};

Row parse_row(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) throw ConfigError("--row: expected \"NAME: OPTIONS\", got ", text);
  return {text.substr(0, colon), words_of(text.substr(colon + 1))};
}

// Returns the plain row, the rows that were requested, and the user's own.
std::vector<Compared> rows_of(const Options& options) {
  std::vector<Row> rows = all_rows();
  for (const std::string& pattern : options.patterns)
    if (std::none_of(rows.begin(), rows.end(), [&](const Row& row) { return matches(row.name, {pattern}); }))
      throw ConfigError("--rows: no row has \"", pattern, "\" in its name; --list shows them all");
  std::erase_if(rows, [&](const Row& row) { return row.name != "plain" && !matches(row.name, options.patterns); });
  for (const std::string& text : options.own) rows.push_back(parse_row(text));
  std::vector<Compared> compared;
  for (const Row& row : rows) {
    std::vector<std::string> words = words_of(options.base);
    words.insert(words.end(), row.options.begin(), row.options.end());
    Compared& one = compared.emplace_back(Compared{row.name, "", {}});
    for (const std::string& word : words) one.options += (one.options.empty() ? "" : " ") + word;
    CLI::App app;
    examples::add_job_options(app, one.job);
    examples::parse(app, one.job, words);
  }
  return compared;
}

// Trains the rows that `runs` lacks, and adds them to `runs` and to the file. Returns false if a signal ended it.
bool train_missing(const std::vector<Compared>& rows, const Options& options, std::vector<Trained>& runs) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(60 * options.minutes);
  std::ofstream file(options.out, std::ios::app);
  for (std::uint64_t seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed)
    for (const Compared& row : rows) {
      const auto is_same = [&](const Trained& run) { return row.has(run) && run.seed == seed; };
      if (std::any_of(runs.begin(), runs.end(), is_same)) continue;
      if (std::chrono::steady_clock::now() > deadline) return true;
      const std::optional<Trained> run = train(row, seed);
      if (!run) return false;
      runs.push_back(*run);
      file << to_json(*run).dump() << '\n' << std::flush;
      const Epoch& last = run->epochs.back();
      std::fprintf(stderr, "%s, seed %llu: %.2f %% in %.1f s (%.1f s of the processors)\n", run->row.c_str(),
                   static_cast<unsigned long long>(seed), 100 * last.accuracy, last.trained.wall, last.trained.cpu);
    }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  tune_process();
  Options options;
  CLI::App app{"Compares algorithms and recipes on Fashion-MNIST: what scripts/train makes of them"};
  app.add_option("--rows", options.patterns,
                 "those whose name contains one of these texts, and plain; all if none is given");
  app.add_option("--row", options.own, "a row of your own: \"NAME: OPTIONS\", with options of scripts/train");
  app.add_option("--base", options.base, "options of every row")->capture_default_str();
  app.add_option("--seeds", options.seeds, "runs of each row")->capture_default_str();
  app.add_option("--first-seed", options.first_seed, "the others follow")->capture_default_str();
  app.add_option("--minutes", options.minutes, "after these no run is started; start again, and it goes on")
      ->capture_default_str();
  app.add_option("--out", options.out, "file of the finished runs, one a line; they are not repeated")
      ->capture_default_str();
  app.add_flag("--list", options.list, "print the rows and their options");
  app.add_flag("--table", options.only_table, "print the table of the finished runs");
  CLI11_PARSE(app, argc, argv);

  try {
    const std::vector<Compared> rows = rows_of(options);
    if (options.list) {
      for (const Compared& row : rows) std::cout << row.name << ": " << row.options << '\n';
      return 0;
    }
    std::vector<Trained> runs = read_runs(options.out);
    if (const auto folder = std::filesystem::path(options.out).parent_path(); !folder.empty())
      std::filesystem::create_directories(folder);
    if (!options.only_table && !train_missing(rows, options, runs)) return 130;
    print(rows, runs);
  } catch (const std::exception& error) {
    std::cerr << "error: " << describe(error) << '\n';
    return 1;
  }
}
