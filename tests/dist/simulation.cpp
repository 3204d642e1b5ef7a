#include "tests/dist/simulation.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace composer::dist::simulation {

Simulation::Simulation(const Schedule& schedule, const DetectorRules& rules) : schedule_(schedule), rules_(rules) {
  random_.seed(schedule.seed);
  for (int rank = 0; rank < schedule.ranks; ++rank) start(rank);
  for (const Fault& fault : schedule.faults) at(fault.at, [this, fault] { strike(fault); });
}

std::vector<End> Simulation::run(Time limit) {
  while (!events_.empty() && events_.top().at <= limit) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.happen();
  }
  std::vector<End> ends;
  for (const auto& process : processes_) ends.push_back(process->end);
  return ends;
}

Time Simulation::draw(Time most) {
  return Time(std::uniform_int_distribution<std::int64_t>(1, std::max<std::int64_t>(1, most.count()))(random_));
}

void Simulation::at(Time time, std::function<void()> happen) { events_.push({time, order_++, std::move(happen)}); }

void Simulation::act(int rank, Time time, std::function<void()> happen) {
  at(time, [this, rank, happen = std::move(happen)] {
    Process& process = *processes_[rank];
    if (!process.alive()) return;
    if (process.stopped_until > now_)
      process.held.push_back([this, rank, happen] { act(rank, now_, happen); });
    else
      happen();
  });
}

void Simulation::go_on(int rank) {
  Process& process = *processes_[rank];
  process.stopped_until = now_;
  for (auto& happen : std::exchange(process.held, {})) happen();
}

void Simulation::start(int rank) {
  processes_.push_back(std::make_unique<Process>());
  processes_.back()->detector =
      std::make_unique<FailureDetector>(rules_, rank, schedule_.ranks, schedule_.store_rank, Time(0));
  processes_.back()->is_busy = schedule_.is_busy[rank];
  beats_.push_back("0 w ");
  act(rank, draw(Time(200)), [this, rank] { talk(rank); });
  act(rank, draw(Time(100)), [this, rank] { supervise(rank); });
  act(rank, Time(0), [this, rank] { work(rank); });
}

void Simulation::work(int rank) {
  act(rank, schedule_.work + draw(Time(300)), [this, rank] {
    if (can_meet(rank)) leave(rank);
  });
}

// The store executes a request when it arrives, or when its process goes on.
void Simulation::request(int rank, std::function<void()> execute, std::function<void()> then) {
  at(now_ + draw(schedule_.slowest), [this, rank, execute = std::move(execute), then = std::move(then)] {
    const int host = schedule_.store_rank;
    if (processes_[rank]->cut || (host >= 0 && host != rank && processes_[host]->cut)) return;  // no answer, ever
    if (host >= 0 && processes_[host]->alive() && processes_[host]->stopped_until > now_) {
      processes_[host]->held.push_back([this, rank, execute, then] { request(rank, execute, then); });
      return;
    }
    if (store_gone_ || (host >= 0 && !processes_[host]->alive())) {
      act(rank, now_ + draw(Time(20)), [this, rank] {
        processes_[rank]->detector->store_failed(now_, "Connection reset by peer");
        follow(rank);
      });
      return;
    }
    execute();
    act(rank, now_ + draw(schedule_.slowest), then);
  });
}

// One turn of the thread that talks to the store.
void Simulation::talk(int rank) {
  FailureDetector& detector = *processes_[rank]->detector;
  if (!detector.needs_turns()) return;
  const auto turn = std::make_shared<FailureDetector::Turn>(detector.turn("somewhere"));
  const auto read = [this, rank] {
    const auto reading = std::make_shared<std::pair<std::vector<std::string>, std::string>>();
    request(
        rank,
        [this, reading] {
          *reading = {beats_, verdict_};
        },
        [this, rank, reading] {
          FailureDetector& me = *processes_[rank]->detector;
          me.heard(now_, reading->first, reading->second);
          follow(rank);
          act(rank, now_ + me.pause() + draw(Time(5)), [this, rank] { talk(rank); });
        });
  };
  const auto propose = [this, rank, turn, read] {
    if (!turn->proposal) return read();
    request(
        rank,
        [this, turn] {
          if (verdict_ == "-") verdict_ = *turn->proposal;
        },
        read);
  };
  request(
      rank, [this, rank, turn] { beats_[rank] = turn->beat; }, propose);
}

void Simulation::supervise(int rank) {
  follow(rank);
  act(rank, now_ + Time(100) + draw(Time(30)), [this, rank] { supervise(rank); });
}

void Simulation::follow(int rank) {
  Process& process = *processes_[rank];
  if (!process.alive()) return;
  const auto action = process.detector->tick(now_);
  if (action == FailureDetector::Action::EXIT) end(rank, End::FORCED);
  if (action == FailureDetector::Action::ABORT && !process.is_busy)
    act(rank, now_ + draw(Time(100)), [this, rank] { unwind(rank); });
  if (process.alive() && process.detector->has_left()) end(rank, End::FINISHED);
}

// The main thread knows the verdict. It ends when the others know it too.
void Simulation::unwind(int rank) {
  Process& process = *processes_[rank];
  process.detector->take();
  if (process.detector->may_end())
    end(rank, End::PEER_LOST);
  else
    act(rank, now_ + Time(20), [this, rank] { unwind(rank); });
}

bool Simulation::can_meet(int rank) {
  Process& process = *processes_[rank];
  process.is_busy = false;
  if (process.detector->verdict()) {
    unwind(rank);
    return false;
  }
  if (process.collective_failed) return false;
  const bool someone_died =
      std::ranges::any_of(processes_, [](const auto& other) { return other->end.how == End::DIED && !other->leaving; });
  if (someone_died) fail_collective(rank);
  return !someone_died;
}

void Simulation::leave(int rank) {
  processes_[rank]->leaving = true;
  processes_[rank]->detector->leave();
}

// A collective fails a while after the process of a peer has ended. libtorch does not say of which rank.
void Simulation::fail_collective(int rank) {
  Process& process = *processes_[rank];
  if (process.collective_failed || process.is_busy || process.leaving) return;
  process.collective_failed = true;
  wait_for_verdict(rank, process.detector->awake() + process.detector->patience());
}

void Simulation::wait_for_verdict(int rank, Time until) {
  const FailureDetector& detector = *processes_[rank]->detector;
  if (detector.verdict()) return;
  if (detector.awake() >= until) return end(rank, End::UNKNOWN);
  act(rank, now_ + Time(100), [this, rank, until] { wait_for_verdict(rank, until); });
}

void Simulation::end(int rank, End::How how) {
  Process& process = *processes_[rank];
  process.end = {how, now_, -2, ""};
  if (process.detector->verdict()) {
    process.end.named = process.detector->verdict()->rank;
    process.end.text = process.detector->verdict()->text;
  }
  go_on(rank);  // what waits for it learns that it is gone
  has_ended(rank);
  if (process.leaving) return;  // its part of all collectives is done
  for (int other = 0; other < schedule_.ranks; ++other)
    if (other != rank && !process.cut) act(other, now_ + draw(Time(200)), [this, other] { fail_collective(other); });
}

void Simulation::strike(const Fault& fault) {
  if (fault.kind == Fault::LOSE_STORE) {
    store_gone_ = true;
    return;
  }
  Process& process = *processes_[fault.rank];
  if (!process.alive()) return;
  switch (fault.kind) {
    case Fault::KILL:
      return end(fault.rank, End::DIED);
    case Fault::STOP:
      process.stopped_until = std::max(process.stopped_until, now_ + fault.length);
      at(process.stopped_until, [this, rank = fault.rank] {
        if (processes_[rank]->stopped_until <= now_) go_on(rank);
      });
      return;
    case Fault::CUT:
      process.cut = true;
      return;
    default:
      break;
  }
  if (process.leaving) return;  // its work is done
  process.failed = process.collective_failed = true;
  process.detector->fail("out of cheese");
  act(fault.rank, now_ + Time(2000), [this, rank = fault.rank] { end(rank, End::PEER_LOST); });  // it waits no longer
}

std::string Schedule::text() const {
  static const char* const names[] = {"kill", "stop", "fail", "cut", "lose the store"};
  std::ostringstream text;
  text << "seed " << seed << ", " << ranks << " ranks, store " << store_rank << ", slowest " << slowest.count()
       << ", busy";
  for (const bool busy : is_busy) text << ' ' << busy;
  for (const Fault& fault : faults)
    text << ", " << names[fault.kind] << " rank " << fault.rank << " at " << fault.at.count() << " for "
         << fault.length.count();
  return text.str();
}

std::vector<End> simulate(const Schedule& schedule, const DetectorRules& rules, Time limit) {
  return Simulation(schedule, rules).run(limit);
}

}  // namespace composer::dist::simulation
