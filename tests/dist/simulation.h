#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "composer/dist/failure_detector.h"

// Ranks with failure detectors on a simulated clock, network and store. Every delay is drawn from a seed, so a schedule
// can be repeated.
namespace composer::dist::simulation {

using Time = FailureDetector::Time;

struct Fault {
  enum Kind {
    KILL,       // the process ends, its connections break at once
    STOP,       // it stands still for `length`
    FAIL,       // it ends with an error and says so
    CUT,        // nothing that it sends arrives any more, nor what is sent to it
    LOSE_STORE  // the launcher that serves the store ends
  };
  Kind kind = KILL;
  int rank = 0;
  Time at{0}, length{0};
};

struct Schedule {
  std::uint64_t seed = 0;
  int ranks = 2;
  int store_rank = 0;         // -1: a launcher
  Time slowest{50};           // the longest delay of a message to or from the store
  Time work{20000};           // when the ranks finish their work, if nothing happens
  std::vector<bool> is_busy;  // the main thread of the rank computes and reacts to nothing before it has finished
  std::vector<Fault> faults;

  std::string text() const;
};

struct End {
  enum How { NEVER, FINISHED, PEER_LOST, UNKNOWN, FORCED, DIED };
  How how = NEVER;
  Time at{0};
  int named = -2;  // by PEER_LOST and FORCED
  std::string text;
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const DetectorRules& rules);
  virtual ~Simulation() = default;
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;
  // How each rank ended, simulated until `limit`.
  std::vector<End> run(Time limit);

 protected:
  struct Process {
    std::unique_ptr<FailureDetector> detector;
    End end;
    Time stopped_until{0};
    std::vector<std::function<void()>> held;  // until it is continued
    bool cut = false, is_busy = false, leaving = false, collective_failed = false, failed = false;
    bool alive() const { return end.how == End::NEVER; }
  };

  // The main thread of a rank, which has just started: it computes for schedule.work and finishes.
  virtual void work(int rank);
  virtual void has_ended(int /*rank*/) {}

  Time now() const { return now_; }
  Time draw(Time most);  // from 1 ms
  void at(Time time, std::function<void()> happen);
  // Something that this process does: not after its end, and later if it stands still.
  void act(int rank, Time time, std::function<void()> happen);
  Process& process_of(int rank) { return *processes_[static_cast<std::size_t>(rank)]; }
  const Schedule& schedule() const { return schedule_; }
  // The main thread wants something of all ranks. False: it cannot have it, and ends in a while.
  bool can_meet(int rank);
  void leave(int rank);  // its work is done
  void end(int rank, End::How how);
  void go_on(int rank);  // continues a process that stands still

 private:
  struct Event {
    Time at;
    std::uint64_t order;
    std::function<void()> happen;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void start(int rank);
  void request(int rank, std::function<void()> execute, std::function<void()> then);
  void talk(int rank);
  void supervise(int rank);
  void follow(int rank);
  void unwind(int rank);
  void fail_collective(int rank);
  void wait_for_verdict(int rank, Time until);
  void strike(const Fault& fault);

  const Schedule& schedule_;
  const DetectorRules& rules_;
  std::mt19937_64 random_;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  Time now_{0};
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<std::string> beats_;
  std::string verdict_ = "-";
  bool store_gone_ = false;
};

// Simulates the schedule until `limit`.
std::vector<End> simulate(const Schedule& schedule, const DetectorRules& rules, Time limit);

}  // namespace composer::dist::simulation
