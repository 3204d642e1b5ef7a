// Who belongs to a world, decided by arrive() on a simulated store, clock and network.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "composer/core/error.h"
#include "composer/dist/store.h"
#include "composer/dist/world.h"
#include "tests/dist/turns.h"
#include "tests/support/doctest.h"

namespace composer::dist::arrival_test {
namespace {

using simulation::Turns;
using Time = Turns::Time;

class SimulatedClock final : public Clock {
 public:
  explicit SimulatedClock(Turns& turns) : turns_(turns) {}
  Time now() const override { return turns_.now(); }
  void sleep(Time time) const override { turns_.sleep(time); }

 private:
  Turns& turns_;
};

// A store that answers late, and fails once the process that serves it has ended.
class SimulatedStore final : public c10d::Store {
 public:
  SimulatedStore(Turns& turns, std::uint64_t seed, Time slowest) : turns_(turns), random_(seed), slowest_(slowest) {}

  void end() { ended_ = true; }

  using Bytes = std::vector<std::uint8_t>;
  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const Bytes& value) override {
    call([&] { table_[key] = value; });
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& wanted) override {
    Bytes now;
    call([&] {
      const auto [it, is_new] = table_.try_emplace(key, wanted);
      if (is_new && !expected.empty()) {
        table_.erase(it);
        now = expected;
        return;
      }
      if (!is_new && it->second == expected) it->second = wanted;
      now = it->second;
    });
    return now;
  }
  Bytes get(const std::string& key) override {
    Bytes now;
    call([&] { now = table_.at(key); });
    return now;
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    std::int64_t now = 0;
    call([&] { now = counts_[key] += value; });
    return now;
  }
  bool check(const std::vector<std::string>& keys) override {
    bool has_all = false;
    call([&] { has_all = std::ranges::all_of(keys, [&](const std::string& key) { return table_.contains(key); }); });
    return has_all;
  }
  bool deleteKey(const std::string&) override { throw Error("not simulated"); }
  std::int64_t getNumKeys() override { throw Error("not simulated"); }
  void wait(const std::vector<std::string>&) override { throw Error("not simulated"); }
  void wait(const std::vector<std::string>&, const Time&) override { throw Error("not simulated"); }
  c10::intrusive_ptr<Store> clone() override { throw Error("not simulated"); }

 private:
  template <class Execute>
  void call(const Execute& execute) {
    const auto delay = [&] { return Time(std::uniform_int_distribution<std::int64_t>(0, slowest_.count())(random_)); };
    turns_.sleep(delay());
    if (ended_) throw std::runtime_error("Connection reset by peer");
    execute();
    turns_.sleep(delay());
  }

  Turns& turns_;
  std::mt19937_64 random_;
  Time slowest_;
  bool ended_ = false;
  std::map<std::string, Bytes> table_;
  std::map<std::string, std::int64_t> counts_;
};

constexpr Time kTimeout{10'000};

// A process that wants to join.
struct Joining {
  int rank = 0, size = 0, restart_count = 0;
  Time at{0}, killed_at = Time::max();
  std::string name = "one process", job{};
  // How it went.
  enum End { KILLED, ARRIVED, REFUSED, LOST } end = KILLED;
  std::string text{};
  Time ended_at{0};
};

void join_all(std::vector<Joining>& processes, std::uint64_t seed, Time slowest, bool of_launcher) {
  Turns turns;
  const SimulatedClock clock(turns);
  const auto store = c10::make_intrusive<SimulatedStore>(turns, seed, slowest);
  for (Joining& process : processes)
    turns.start(process.at, [&, &process = process] {
      Environment environment;
      environment.rank = process.rank, environment.world_size = process.size;
      environment.agent_store = of_launcher;
      environment.restart_count = process.restart_count;
      environment.job = process.job;
      const auto keys = c10::make_intrusive<c10d::PrefixStore>(prefix_of(environment, /*times_joined=*/0), store);
      const bool serves = process.rank == 0 && !of_launcher;
      try {
        arrive(*keys, environment, kTimeout, clock, process.name);
        process.end = Joining::ARRIVED;
      } catch (const ConfigError& refused) {
        process.end = Joining::REFUSED;
        process.text = refused.what();
      } catch (const PeerLost& lost) {
        process.end = Joining::LOST;
        process.text = lost.what();
      } catch (const Turns::Killed&) {
        if (serves) store->end();
        throw;
      }
      process.ended_at = turns.now();
      if (serves && process.end != Joining::ARRIVED) store->end();
    });
  for (std::size_t i = 0; i < processes.size(); ++i)
    if (processes[i].killed_at != Time::max()) turns.kill(i, processes[i].killed_at);
  turns.run();
}

struct Trial {
  enum Kind { ALL_COME, ONE_IS_LATE, BORDERLINE, ONE_DIES, TWICE, OTHER_SIZE, OF_AN_EARLIER_START } kind = ALL_COME;
  std::uint64_t seed = 0;
  bool of_launcher = false;
  Time slowest{0};
  std::vector<Joining> processes;
};

Trial draw_trial(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto within = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Trial trial;
  trial.kind = static_cast<Trial::Kind>(within(0, 6));
  trial.seed = seed;
  trial.of_launcher = within(1, 2) == 1;
  trial.slowest = Time(within(0, 4) == 0 ? within(20, 200) : within(0, 20));
  const int size = static_cast<int>(within(2, 5));
  trial.processes.resize(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    Joining& process = trial.processes[static_cast<std::size_t>(rank)];
    process.rank = rank, process.size = size, process.restart_count = 1;
    if (rank > 0 || trial.of_launcher) process.at = Time(within(0, 5000));  // its store is there from the start
  }
  Joining& odd = trial.processes[static_cast<std::size_t>(within(trial.of_launcher ? 0 : 1, size - 1))];
  if (trial.kind == Trial::ONE_IS_LATE) odd.at = Time(within(20'000, 40'000));
  if (trial.kind == Trial::BORDERLINE) odd.at = Time(within(9000, 16'000));
  if (trial.kind == Trial::ONE_DIES) {
    Joining& dying = trial.processes[static_cast<std::size_t>(within(0, size - 1))];
    dying.killed_at = dying.at + Time(within(0, 2000));
  }
  if (trial.kind == Trial::OTHER_SIZE) odd.size = size + (size == 2 || within(0, 1) == 0 ? 1 : -1);
  if (trial.kind == Trial::TWICE || trial.kind == Trial::OF_AN_EARLIER_START) {
    Joining another = odd;
    another.at = Time(within(0, 8000));
    another.name = "another process";
    if (trial.kind == Trial::OF_AN_EARLIER_START) another.restart_count = 0;
    trial.processes.push_back(another);
  }
  return trial;
}

// Whether each process has an end, and has one in time.
std::string late_process(const Trial& trial) {
  const Time longest = kTimeout + Time(3000) + 60 * trial.slowest;
  for (const Joining& process : trial.processes) {
    if (process.end == Joining::KILLED && process.killed_at == Time::max()) return "a process has no end";
    if (process.end != Joining::KILLED && process.ended_at > process.at + longest)
      return "a process waits longer than the timeout";
  }
  return "";
}

// Whether those that have arrived are all or none, as far as the kind of the trial allows more.
std::string wrong_members(Trial::Kind kind, int size, int arrived, int refused, int lost) {
  switch (kind) {
    case Trial::ALL_COME:
    case Trial::OF_AN_EARLIER_START:
      return arrived == size ? "" : "not all have arrived";
    case Trial::ONE_IS_LATE:
    case Trial::OTHER_SIZE:
      return arrived == 0 ? "" : "a rank has arrived without the others";
    case Trial::BORDERLINE:
      return arrived == 0 || refused + lost == 0 ? "" : "some ranks have arrived, others not";
    case Trial::ONE_DIES:  // the others may have seen it arrive
      return arrived == 0 || refused == 0 ? "" : "some ranks have arrived, others not";
    case Trial::TWICE:
      return arrived == 0 || (arrived == size && refused + lost == 1) ? "" : "some have arrived, and more than one not";
  }
  return "";
}

std::string broken_promise(const Trial& trial) {
  if (const std::string late = late_process(trial); !late.empty()) return late;
  const int size = trial.processes.front().size;
  std::vector<Joining> counted = trial.processes;
  if (trial.kind == Trial::OF_AN_EARLIER_START) {
    if (counted.back().end == Joining::ARRIVED) return "a process of an earlier start has arrived";
    counted.pop_back();
  }
  std::set<std::string> texts;
  for (const Joining& process : counted)
    if (process.end == Joining::REFUSED) texts.insert(process.text);
  const auto count = [&](Joining::End end) {
    return static_cast<int>(std::ranges::count(counted, end, &Joining::end));
  };
  const std::string wrong =
      wrong_members(trial.kind, size, count(Joining::ARRIVED), count(Joining::REFUSED), count(Joining::LOST));
  if (!wrong.empty()) return wrong;
  return texts.size() > 1 ? "the ranks were refused for different reasons" : "";
}

std::string text_of(const Trial& trial) {
  std::string text = join("seed ", trial.seed, ", kind ", trial.kind,
                          trial.of_launcher ? ", store of the launcher" : "", ", slowest ", trial.slowest.count());
  for (const Joining& process : trial.processes) {
    text += join("\n  rank ", process.rank, " of ", process.size, ", start ", process.restart_count, " at ",
                 process.at.count());
    if (process.killed_at != Time::max()) text += join(", killed at ", process.killed_at.count());
    text += join(": end ", process.end, " at ", process.ended_at.count(), ' ', process.text);
  }
  return text;
}

// COMPOSER_SCHEDULES sets how many.
TEST_CASE("in random schedules of arrivals all ranks join or none does, for one reason") {
  const char* wanted = std::getenv("COMPOSER_SCHEDULES");
  const int count = wanted ? std::atoi(wanted) : 300;
  for (int seed = 0; seed < count; ++seed) {
    Trial trial = draw_trial(static_cast<std::uint64_t>(seed));
    join_all(trial.processes, trial.seed, trial.slowest, trial.of_launcher);
    const std::string broken = broken_promise(trial);
    if (broken.empty()) continue;
    const std::string schedule = text_of(trial);
    CAPTURE(schedule);
    FAIL(broken);
  }
}

TEST_CASE("ranks that wait in vain say which ones did not arrive") {
  std::vector<Joining> processes{{.rank = 0, .size = 4}, {.rank = 2, .size = 4, .at = Time(100)}};
  join_all(processes, 1, Time(5), /*of_launcher=*/false);
  for (const Joining& process : processes) {
    CHECK(process.end == Joining::REFUSED);
    CHECK(process.text.find("ranks that did not arrive: 1, 3") != std::string::npos);
  }
}

TEST_CASE("a rank of another job that has the same address is refused") {
  std::vector<Joining> processes{{.rank = 0, .size = 2, .job = "job 7"},
                                 {.rank = 1, .size = 2, .at = Time(50), .name = "stranger", .job = "job 8"}};
  join_all(processes, 1, Time(5), /*of_launcher=*/false);
  for (const Joining& process : processes) {
    CHECK(process.end == Joining::REFUSED);
    CHECK(process.text.find("rank 1 (stranger) belongs to job 8, but the ranks at 127.0.0.1:29500 to job 7") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace composer::dist::arrival_test
