// One rank of the programs that benchmarks/scale compares: trains one workload in several ways, a few steps whenever it
// is asked. The variables of a launcher (RANK, WORLD_SIZE, MASTER_PORT, ...) say which rank it is.
//   ranked WORKLOAD                    says {"ready": ...}, then answers the lines that it reads:
//     run VARIANT STEPS                {"steps", "cpu_s", "wall_s", "checksum"} of that many more steps
//     phases STEPS                     of a step without communication (HandLoop::phases)
//     sweep, sweep quick               what an all-reduce costs
//     end                              ends
//   ranked --files FOLDER WORKLOAD     writes what contenders in other languages read
// All ranks must read the same lines. Answers are lines of JSON on stdout.
#include <iostream>
#include <map>
#include <sstream>

#include <ATen/Parallel.h>
#include <torch/version.h>

#include "benchmarks/bench.h"
#include "benchmarks/ranked/loops.h"
#include "composer/core/error.h"
#include "composer/dist/world.h"

namespace composer::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kVirtualShards = 4;

class Rank {
 public:
  Rank(Workload workload, std::shared_ptr<dist::World> world)
      : workload_(std::move(workload)), world_(std::move(world)) {}

  Json run(const std::string& variant, std::int64_t steps) {
    Loop& loop = loop_of(variant);
    world_->barrier();
    const double cpu = microseconds(CLOCK_PROCESS_CPUTIME_ID), wall = microseconds(CLOCK_MONOTONIC);
    loop.run(steps);
    const double cpu_s = (microseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / 1e6;
    const double wall_s = (microseconds(CLOCK_MONOTONIC) - wall) / 1e6;
    return {{"steps", steps}, {"cpu_s", cpu_s}, {"wall_s", wall_s}, {"checksum", checksum(loop.network())}};
  }

  Json phases(std::int64_t steps) {
    if (!bare_) {
      bare_ = hand_loop(workload_, Reduction::NONE, world_);
      bare_->start();
      bare_->run(steps);
    }
    world_->barrier();
    return bare_->phases(steps);
  }

  Json sweep(bool quick) { return bench::sweep(*world_, quick); }

 private:
  std::unique_ptr<Loop> make(const std::string& variant) const {
    static const std::map<std::string, Reduction> by_hand = {
        {"local", Reduction::NONE},      {"overlapped", Reduction::OVERLAPPED}, {"after", Reduction::AFTER},
        {"in_bf16", Reduction::IN_BF16}, {"zero_1", Reduction::ZERO_STAGE_1},   {"zero_2", Reduction::ZERO_STAGE_2}};
    if (const auto found = by_hand.find(variant); found != by_hand.end())
      return hand_loop(workload_, found->second, world_);
    const int size = world_->size();
    if (variant == "trainer") return trainer_loop(workload_, {.size = size});
    if (variant == "trainer_world") return trainer_loop(workload_, {.given = world_, .size = size});
    if (variant == "trainer_shards")
      return trainer_loop(workload_, {.size = size, .options = {.virtual_shards = kVirtualShards}});
    throw ConfigError("there is no variant ", variant);
  }

  Loop& loop_of(const std::string& variant) {
    std::unique_ptr<Loop>& loop = loops_[variant];
    if (!loop) {
      loop = make(variant);
      loop->start();
    }
    return *loop;
  }

  Workload workload_;
  std::shared_ptr<dist::World> world_;
  std::map<std::string, std::unique_ptr<Loop>> loops_;
  std::unique_ptr<HandLoop> bare_;
};

void answer(const Json& json) { std::cout << json.dump() << '\n' << std::flush; }

int serve(const std::string& workload) {
  at::set_num_threads(1);
  const auto world = dist::World::of_process();
  Rank rank(make_ranked_workload(workload), world);
  answer({{"ready", true}, {"libtorch", TORCH_VERSION}});
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string word, rest;
    std::int64_t steps = 0;
    words >> word;
    if (word == "run" && words >> rest >> steps) {
      answer(rank.run(rest, steps));
    } else if (word == "phases" && words >> steps) {
      answer(rank.phases(steps));
    } else if (word == "sweep") {
      answer(rank.sweep(static_cast<bool>(words >> rest)));
    } else {
      break;
    }
  }
  return 0;
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return composer::dist::run([&] {
    if (words.size() == 3 && words[0] == "--files") {
      composer::bench::write_files(composer::bench::make_ranked_workload(words[2]), words[1]);
      return 0;
    }
    if (words.size() == 1) return composer::bench::serve(words[0]);
    std::cerr << "usage: ranked WORKLOAD | ranked --files FOLDER WORKLOAD\n";
    return 2;
  });
}
