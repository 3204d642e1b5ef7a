// One of the programs that benchmarks/run compares: trains one workload in one way, a few steps for each request.
//   contender WORKLOAD VARIANT           says {"ready": ...}, then answers the lines that it reads:
//     run STEPS                          {"steps", "cpu_s", "wall_s", "checksum"} of that many more steps
//     end                                {"peak_mib", ...}, and ends
//   contender --files FOLDER WORKLOAD    writes what contenders in other languages read
// Answers are lines of JSON on stdout. OMP_NUM_THREADS says how many threads to use.
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include "benchmarks/bench.h"
#include "benchmarks/contender/loops.h"
#include "composer/core/error.h"
#include "composer/util/tune_process.h"

namespace composer::bench {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kMiB = 1 << 20;

std::unique_ptr<Loop> make_loop(const std::string& variant, Workload workload) {
  if (variant == "examples") return like_the_examples(std::move(workload));
  if (variant == "by_hand") return by_hand(std::move(workload));
  static const std::map<std::string, TrainedOptions> ways = {{"trainer", {}},
                                                             {"callbacks", {.callbacks = true}},
                                                             {"tuned", {.tune = true}},
                                                             {"tuned_bf16", {.tune = true, .allow_bf16 = true}}};
  const auto way = ways.find(variant);
  if (way == ways.end())
    throw ConfigError("there is no variant ", variant,
                      "; there are examples, by_hand, trainer, callbacks, tuned, tuned_bf16");
  return trained(std::move(workload), way->second);
}

// The value of a line in /proc/self/status, in MiB; 0 if there is none.
double memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1)) / 1024;
  return 0;
}

// Resets the peak, so that it is that of training, not of reading the data.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

void answer(const Json& json) { std::cout << json.dump() << '\n' << std::flush; }

Json run(Loop& loop, std::int64_t steps, std::int64_t done) {
  at::manual_seed(static_cast<std::uint64_t>(done));  // for dropout
  const double cpu = microseconds(CLOCK_PROCESS_CPUTIME_ID), wall = microseconds(CLOCK_MONOTONIC);
  loop.run(steps);
  const double cpu_s = (microseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / 1e6;
  const double wall_s = (microseconds(CLOCK_MONOTONIC) - wall) / 1e6;
  return {{"steps", steps}, {"cpu_s", cpu_s}, {"wall_s", wall_s}, {"checksum", checksum(loop.network())}};
}

int serve(const std::string& workload, const std::string& variant) {
  if (variant.starts_with("tuned")) tune_process();
  const std::unique_ptr<Loop> loop = make_loop(variant, make_workload(workload));
  empty_cpu_cache();  // frees the memory that was used to make the data
  forget_peak();
  const double before = memory("VmRSS");
  loop->start();
  answer({{"ready", true},
          {"libtorch", TORCH_VERSION},
          {"threads", at::get_num_threads()},
          {"data_mib", static_cast<double>(loop->data_bytes()) / kMiB},
          {"before_mib", before},
          {"notes", loop->notes()}});
  std::int64_t done = 0, steps = 0;
  for (std::string word; std::cin >> word && word == "run" && std::cin >> steps;) {
    answer(run(*loop, steps, done));
    done += steps;
  }
  answer({{"peak_mib", memory("VmHWM")}, {"cached_mib", static_cast<double>(cpu_memory().cached) / kMiB}});
  return 0;
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 3 && words[0] == "--files") {
      composer::bench::write_files(composer::bench::make_workload(words[2]), words[1]);
      return 0;
    }
    if (words.size() == 2) return composer::bench::serve(words[0], words[1]);
    std::cerr << "usage: contender WORKLOAD VARIANT | contender --files FOLDER WORKLOAD\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "contender: " << error.what() << '\n';
    return 1;
  }
}
