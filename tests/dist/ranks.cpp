// One rank of a program in which a chosen rank fails at a chosen moment; tests/dist/faults.py runs it.
//   ranks KIND MOMENT VICTIM [DEAD_AFTER_MS [COLLECTIVE_TIMEOUT_MS [STORE_TIMEOUT_MS]]]
//   KIND: kill, stop, exit, leave (exit(0)), throw, misfit (at allreduce: a sum of another size than the others'), late
//   (at broadcast: while some others finish), alone (at broadcast: the others have finished), or another for none
//   MOMENT: join, mesh, compute, busy, allreduce, cable, barrier, broadcast, shutdown
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "composer/dist/store.h"
#include "composer/dist/world.h"

namespace {

using namespace std::chrono_literals;
using composer::dist::World;

struct Fault {
  std::string kind, moment;
  bool is_mine = false;
  std::chrono::milliseconds pause{0};

  bool is_due(const std::string& now) const { return is_mine && moment == now; }
  void happen() const {
    std::printf("FAULT\n");
    std::fflush(stdout);
    if (kind == "kill") raise(SIGKILL);
    if (kind == "stop") raise(SIGSTOP);
    if (kind == "exit") _exit(1);
    if (kind == "leave") std::exit(0);
    if (kind == "throw") throw std::runtime_error("a bug of one rank");
  }
};

std::chrono::milliseconds milliseconds(int argc, char** argv, int index, int otherwise) {
  return std::chrono::milliseconds(argc > index ? std::atoi(argv[index]) : otherwise);
}

// Calls the function a little later, while this thread is in a collective. An exception would end the process at once.
std::thread later(const Fault& fault, const std::string& moment, std::chrono::milliseconds delay) {
  if (!fault.is_due(moment)) return {};
  if (fault.kind == "throw") fault.happen();
  return std::thread([&fault, delay] {
    std::this_thread::sleep_for(delay);
    fault.happen();
  });
}

// Between the arrival of this rank and its connections to the others: they see it arrive, and then nothing.
void vanish_after_arrival(const Fault& fault, std::chrono::milliseconds timeout) {
  const auto environment = composer::dist::environment();
  const auto store = composer::dist::open_store(environment, /*times_joined=*/0, timeout);
  composer::dist::arrive(*store, environment, timeout);
  std::this_thread::sleep_for(500ms);
  fault.happen();
}

// The last collective of a program, in which not all ranks wait for all, or one of a single rank.
void collective_at_the_end(World& world, const Fault& fault, std::chrono::milliseconds dead_after) {
  if (fault.is_mine) fault.happen();
  if (fault.is_mine && fault.kind == "late") std::this_thread::sleep_for(dead_after + 4s);
  if (fault.kind == "late") world.broadcast(at::ones({1000}));
  if (fault.is_mine && fault.kind == "alone") world.sum(at::ones({1000}));
}

int body(const Fault& fault, std::chrono::milliseconds dead_after) {
  const auto world = World::of_process();
  auto training = world->training();
  const at::Tensor large = at::ones({4 << 20}), small = at::ones({1000});
  for (int batch = 0; batch < 8; ++batch) {
    world->at("BATCH_START", 0, batch);
    if (batch == 5) std::this_thread::sleep_for(fault.pause);  // its heartbeat tells where it is
    if (batch == 5 && fault.is_due("compute")) fault.happen();
    std::this_thread::sleep_for(20ms);
    world->at("BEFORE_BACKWARD", 0, batch);
    world->sum(small);
    if (batch == 5 && fault.kind == "misfit") {
      if (fault.is_mine) fault.happen();
      for (int i = 0; i < 20; ++i) world->sum(fault.is_mine ? small : large);
    }
    if (batch == 5 && fault.moment == "allreduce") {
      std::thread thread = later(fault, "allreduce", 15ms);
      for (int i = 0; i < 20; ++i) world->sum(large);
      if (thread.joinable()) thread.join();
    }
    if (batch == 5 && fault.moment == "busy") {  // the others compute, and are in no collective
      if (fault.is_mine) fault.happen();
      std::this_thread::sleep_for(60s);
    }
    if (batch == 5 && fault.is_due("cable")) {  // cut from outside
      fault.happen();
      std::this_thread::sleep_for(60s);
    }
    if (batch == 5 && fault.moment == "barrier") {
      std::this_thread::sleep_for(fault.is_mine ? 200ms : 0ms);
      if (fault.is_mine) fault.happen();
      world->barrier();
    }
  }
  training.reset();
  if (fault.moment == "broadcast") collective_at_the_end(*world, fault, dead_after);
  if (fault.moment == "shutdown") {
    std::this_thread::sleep_for(fault.is_mine ? 200ms : 0ms);
    if (fault.is_mine) fault.happen();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: ranks KIND MOMENT VICTIM [DEAD_AFTER_MS [COLLECTIVE_TIMEOUT_MS [STORE_TIMEOUT_MS]]]\n");
    return 2;
  }
  at::set_num_threads(1);
  composer::dist::Options options;
  options.dead_after = milliseconds(argc, argv, 4, 5000);
  options.heartbeat = options.dead_after / 10;
  options.collective_timeout = milliseconds(argc, argv, 5, 600000);
  options.shutdown_timeout = options.collective_timeout;
  options.store_timeout = milliseconds(argc, argv, 6, 300000);
  options.unwind = std::min<std::chrono::milliseconds>(options.dead_after, 3s);
  std::signal(SIGPIPE, SIG_DFL);  // as in a program that knows nothing of it
  const Fault fault{argv[1], argv[2], composer::dist::environment().rank == std::atoi(argv[3]), 3 * options.heartbeat};
  if (fault.is_due("join")) fault.happen();
  if (fault.is_due("mesh")) vanish_after_arrival(fault, options.store_timeout);
  return composer::dist::run([&] { return body(fault, options.dead_after); }, options);
}
