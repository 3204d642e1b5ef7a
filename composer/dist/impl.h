#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unistd.h>

#include <c10/util/intrusive_ptr.h>

#include <sys/types.h>

#include "composer/core/error.h"
#include "composer/dist/accelerator.h"
#include "composer/dist/collectives.h"
#include "composer/dist/sockets.h"
#include "composer/dist/store.h"
#include "composer/dist/watchdog.h"
#include "composer/dist/world.h"

namespace composer::dist {

// The state of a world of several ranks, until shutdown(). A world of one rank has none.
struct World::Impl {
  using Calls = std::atomic<std::uint64_t>;  // number of beginnings and ends of collectives: odd within one

  ~Impl();

  // Throws Error if `impl` is null.
  static Impl& of(const std::unique_ptr<Impl>& impl);

  // Throws Error if another thread is within a collective: the order of their collectives would then differ by rank.
  class OneCaller {
   public:
    explicit OneCaller(Calls& calls) : calls_(calls) {
      std::uint64_t free = calls.load();
      if (free % 2 == 1 || !calls.compare_exchange_strong(free, free + 1))
        throw Error(
            "World: two threads call it at the same time. With several ranks, train with one trainer at a time");
    }
    ~OneCaller() { ++calls_; }
    OneCaller(const OneCaller&) = delete;
    OneCaller& operator=(const OneCaller&) = delete;

   private:
    Calls& calls_;
  };

  // Calls the function. An exception that leaves it becomes PeerLost if a rank is lost.
  template <class Function>
  void collective(Function&& function) {
    const OneCaller one(*calls);
    try {
      function();
    } catch (...) {
      rethrow();
    }
  }
  [[noreturn]] void rethrow();  // World::rethrow()
  std::function<std::uint64_t()> count_calls() const {
    return [calls = calls]() -> std::uint64_t { return *calls; };
  }

  // With Options::check_collectives: throws Error on all ranks unless all are about to do this with such tensors.
  void check(const char* what, const at::Tensor& tensor);
  c10d::Backend& backend(const at::Tensor& tensor) const;  // of the tensor's device
  WorkPtr start_reduce(const at::Tensor& tensor, ReduceOp op);
  void reduce(const char* what, const at::Tensor& tensor, ReduceOp op);  // in place

  std::shared_ptr<Calls> calls = std::make_shared<Calls>(0);
  // Number of training() results that are alive.
  std::shared_ptr<std::atomic<int>> fits = std::make_shared<std::atomic<int>>(0);
  const pid_t joined_by = getpid();  // id of the process that joined; a child that it forks has none of the threads
  Options options;
  StorePtr store;
  std::shared_ptr<Sockets> store_sockets;  // null if the store lives in this process (in_threads)
  std::shared_ptr<Sockets> sockets;  // Gloo's sockets; if the ranks are threads of this process, those of all ranks
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<Accelerator> accelerator = std::make_shared<Accelerator>();
  bool orderly = false;                // whether shutdown() has succeeded
  std::unique_ptr<Watchdog> watchdog;  // the last member, so that it is destroyed first
};

}  // namespace composer::dist
