// What ranks learn of each other's loss, with threads as ranks. Processes are killed by faults.py.
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "composer/core/error.h"
#include "composer/dist/accelerator.h"
#include "composer/dist/world.h"
#include "tests/support/doctest.h"
#include "tests/support/in_child.h"
#include "tests/support/in_ranks.h"

namespace composer::dist::loss_test {
namespace {

using namespace std::chrono_literals;

Options quick() {
  Options options;
  options.heartbeat = 50ms;
  return options;
}

// Runs the function of each rank on a thread; what() and rank of the PeerLost that each throws.
struct Lost {
  int rank = -2;
  std::string text = "no PeerLost";
};
std::vector<Lost> losses(const std::vector<std::function<void(World&)>>& functions, const Options& options) {
  const auto worlds = World::in_threads(static_cast<int>(functions.size()), options);
  std::vector<Lost> losses(functions.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < functions.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        functions[i](*worlds[i]);
      } catch (const PeerLost& lost) {
        losses[i] = {lost.rank, lost.what()};
      } catch (const std::exception& error) {
        losses[i].text = error.what();
      }
    });
  threads.clear();
  return losses;
}

TEST_CASE("the error of a rank ends the collectives of the others, which name it and its reason") {
  const auto fails = [](World& world) { world.fail("the disk is full\nwith details"); };
  const std::vector<Lost> all = losses(
      {[](World& world) { world.sum(at::ones({1000})); }, fails, [](World& world) { world.barrier(); }}, quick());
  for (const int rank : {0, 2}) {
    CHECK(all[rank].rank == 1);
    CHECK(all[rank].text.find("rank 1 failed: the disk is full\nwith details") == 0);
  }
}

TEST_CASE("a call that one rank makes after the others have finished ends soon, and all are told") {
  Options options = quick();
  options.dead_after = 400ms;
  const auto finishes = [](World& world) { world.barrier(), world.shutdown(); };
  const auto goes_on = [](World& world) {
    world.barrier();
    world.at("FIT_END", 2, 8);
    world.sum(at::ones({1000}));
  };
  const auto begin = std::chrono::steady_clock::now();
  for (const Lost& lost : losses({goes_on, finishes, finishes}, options)) {
    CHECK(lost.rank == 0);
    CHECK(lost.text.find("rank 0 waits for rank 1, which has finished: fit(), eval()") == 0);
    CHECK(lost.text.find("its last position was FIT_END, epoch 2, batch 8") != std::string::npos);
  }
  CHECK(std::chrono::steady_clock::now() - begin < 60s);
}

TEST_CASE("an error that has nothing to do with ranks is not taken for a lost one") {
  for (const bool ours : {false, true}) {
    std::string text;
    const auto worlds = World::in_threads(2, quick());
    try {
      try {
        if (ours) throw Error("upload of ep1.ckpt: Connection reset by peer in /gloo/");
        throw std::runtime_error("upload of ep1.ckpt: Broken pipe");
      } catch (...) {
        worlds[0]->rethrow();
      }
    } catch (const PeerLost&) {
      text = "PeerLost";
    } catch (const std::exception& error) {
      text = error.what();
    }
    CHECK(text.starts_with("upload of ep1.ckpt: "));
  }
}

TEST_CASE("a collective of a second thread is an error while the first waits, which goes on undisturbed") {
  const auto worlds = World::in_threads(2, quick());
  const at::Tensor sums = at::ones({3});
  // Which of the two is refused depends on chance.
  std::vector<std::future<void>> callers;
  for (int i = 0; i < 2; ++i) callers.push_back(std::async(std::launch::async, [&] { worlds[0]->sum(sums); }));
  std::string text;
  while (text.empty())
    for (auto& caller : callers)
      if (text.empty() && caller.wait_for(10ms) == std::future_status::ready) try {
          caller.get();
          text = "no error";
        } catch (const Error& error) {
          text = error.what();
        }
  CHECK(text.find("two threads") != std::string::npos);
  worlds[1]->sum(at::ones({3}));
  for (auto& caller : callers)
    if (caller.valid()) caller.get();
  CHECK(sums[0].item<float>() == 2);
  std::vector<std::jthread> threads;
  for (const auto& world : worlds) threads.emplace_back([&] { world->shutdown(); });
}

TEST_CASE("a process that a rank forks may end without a word to the other ranks") {
  auto worlds = World::in_threads(2, quick());
  CHECK(composer::test::ended_well(composer::test::status_of_child([&] { worlds.clear(); })));
  std::vector<std::jthread> threads;
  for (auto& world : worlds) threads.emplace_back([&] { world->shutdown(); });
}

TEST_CASE("a World that goes without shutdown() ends the others") {
  auto worlds = World::in_threads(2, quick());
  auto waits = std::async(std::launch::async, [world = std::move(worlds[0])] { world->barrier(); });
  worlds[1].reset();
  CHECK_THROWS_WITH_AS(waits.get(), doctest::Contains("rank 1 failed: it did not call shutdown()"), PeerLost);
}

TEST_CASE("shutdown() of one rank throws when another fails instead") {
  const std::vector<Lost> all =
      losses({[](World& world) { world.shutdown(); }, [](World& world) { world.fail("a bug"); }}, quick());
  CHECK(all[0].rank == 1);
  CHECK(all[0].text == "rank 1 failed: a bug");
}

// What the ranks say when some of them wait at BATCH_END and the others take no part in the collective.
std::vector<Lost> losses_without(int waiting, int idle, const char* idle_at) {
  Options options = quick();
  options.dead_after = 200ms;
  options.collective_timeout = 300ms;
  std::latch seen(waiting);
  std::vector<std::function<void(World&)>> functions;
  functions.reserve(static_cast<std::size_t>(waiting + idle));
  for (int i = 0; i < waiting; ++i)
    functions.emplace_back([&](World& world) {
      world.at("BATCH_END", 0, 17);
      try {
        world.barrier();
      } catch (...) {
        seen.count_down();
        throw;
      }
    });
  for (int i = 0; i < idle; ++i)
    functions.emplace_back([&](World& world) {
      world.at(idle_at, 0, 17);
      seen.wait();
      world.barrier();
    });
  return losses(functions, options);
}

TEST_CASE("a living rank that takes no part in a collective is named, with its last position, on all ranks") {
  const std::vector<Lost> all = losses_without(2, 1, "AFTER_LOSS");
  for (const Lost& lost : all) {
    CHECK(lost.rank == 2);
    CHECK_MESSAGE(
        lost.text.find("rank 2 hangs or is late: it took no part in a collective; its last position was "
                       "AFTER_LOSS, epoch 0, batch 17, and the others waited at BATCH_END, epoch 0, batch 17") == 0,
        lost.text);
  }
}

TEST_CASE("a collective in which living ranks take no part that cannot be told apart says where all ranks are") {
  const std::vector<Lost> all = losses_without(1, 2, "EVAL_START");
  CHECK(all[0].rank == -1);
  CHECK(all[0].text.find("although all ranks are alive") != std::string::npos);
  CHECK_MESSAGE(all[0].text.find("rank 0: BATCH_END, epoch 0, batch 17; rank 1: EVAL_START, epoch 0, batch 17") !=
                    std::string::npos,
                all[0].text);
}

TEST_CASE("the error of a rank is told with its last position, unless its text says that already") {
  const auto losses_after = [](const std::string& why) {
    return losses({[](World& world) { world.barrier(); },
                   [&](World& world) {
                     world.at("eval_start", 1, 7);
                     world.fail(why);
                   }},
                  quick())
        .front()
        .text;
  };
  CHECK(losses_after("its program ended with status 1")
            .starts_with(
                "rank 1 failed: its program ended with status 1; its last position was eval_start, epoch 1, batch 7"));
  CHECK(losses_after("Stopper failed at eval_start, epoch 1, batch 7").find("last position") == std::string::npos);
}

TEST_CASE("rethrow() finds the loss of a rank inside of other errors, and passes on what has another cause") {
  const auto world = World::alone();
  const auto rethrown = [&](const auto& throws) {
    try {
      throws();
    } catch (...) {
      world->rethrow();
    }
  };
  CHECK_THROWS_WITH_AS(rethrown([] { throw DataError("a broken batch"); }), "a broken batch", DataError);
  CHECK_THROWS_AS(rethrown([] { throw 7; }), int);
  const auto nested = [] {
    try {
      throw PeerLost(3, "rank 3 failed");
    } catch (...) {
      throw_nested<RunError>("in BATCH_END");
    }
  };
  CHECK_THROWS_WITH_AS(rethrown(nested), doctest::Contains("in BATCH_END"), PeerLost);
}

TEST_CASE("an error of libtorch that is no loss of a rank is passed on by a collective at once") {
  composer::test::in_ranks(
      2,
      [](World& world) {
        CHECK_THROWS_AS(world.broadcast(at::ones({2}), /*root=*/9), std::exception);
        CHECK_THROWS_AS(world.max(at::complex(at::ones({2}), at::ones({2}))), std::exception);
        world.barrier();
      },
      quick());
}

TEST_CASE("a GPU that cannot be used is refused, and collectives on the CPU go on") {
  if (at::globalContext().hasCUDA()) return;
  composer::test::in_ranks(
      2,
      [](World& world) {
        world.use_device(at::kCPU);
        CHECK_THROWS_WITH_AS(world.use_device(at::Device("cuda:0")), doctest::Contains("libcomposer_nccl.so"),
                             ConfigError);
        CHECK_THROWS_WITH_AS(world.use_device(at::Device("mps:0")), doctest::Contains("mps"), ConfigError);
        world.barrier();
      },
      quick());
  World::alone()->use_device(at::Device("cuda:0"));  // needs no collectives
}

TEST_CASE("NCCL's watchdog is told not to end the process, unless the environment tells it what to do") {
  constexpr const char *kName = "TORCH_NCCL_ASYNC_ERROR_HANDLING", *kOldName = "NCCL_ASYNC_ERROR_HANDLING";
  const auto value = [] {
    const char* now = std::getenv(kName);
    return std::string(now != nullptr ? now : "none");
  };
  const auto forget = [] {
    ::unsetenv(kName);
    ::unsetenv(kOldName);
  };
  forget();
  leave_ends_to_us();
  CHECK(value() == "2");
  ::setenv(kName, "1", /*overwrite=*/1);
  leave_ends_to_us();
  CHECK(value() == "1");
  forget();
  ::setenv(kOldName, "0", /*overwrite=*/1);
  leave_ends_to_us();
  CHECK(value() == "none");
  forget();
}

TEST_CASE("a network interface that does not exist is an error of the options, with its name, and no lost rank") {
  Options options = quick();
  options.interface = "eth99";
  CHECK_THROWS_WITH_AS(World::in_threads(2, options), doctest::Contains("'eth99'"), ConfigError);
}

TEST_CASE("a limit of silence that a late heartbeat would exceed is refused") {
  Options options;
  options.dead_after = 1s;
  CHECK_THROWS_AS(World::in_threads(2, options), ConfigError);
}

}  // namespace
}  // namespace composer::dist::loss_test
