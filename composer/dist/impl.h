#pragma once
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "composer/dist/accelerator.h"
#include "composer/dist/collectives.h"
#include "composer/dist/sockets.h"
#include "composer/dist/store.h"
#include "composer/dist/watchdog.h"
#include "composer/dist/world.h"

namespace composer::dist {

// What a world of several ranks has, until shutdown(). A world of one rank has none.
struct World::Impl {
  ~Impl();

  // Throws Error if there is none any more.
  static Impl& of(const std::unique_ptr<Impl>& impl);

  // Calls the function. An exception that leaves it becomes PeerLost if a rank is lost.
  template <class Function>
  void collective(Function&& function) {
    try {
      function();
    } catch (...) {
      rethrow();
    }
  }
  [[noreturn]] void rethrow();  // World::rethrow()

  c10d::Backend& backend(const at::Tensor& tensor) const;  // of the tensor's device
  WorkPtr start_reduce(const at::Tensor& tensor, ReduceOp op);
  void reduce(const at::Tensor& tensor, ReduceOp op);  // in place

  Options options;
  StorePtr store;
  std::shared_ptr<Sockets> store_sockets;  // null if the store is of this process
  std::shared_ptr<Sockets> sockets;        // Gloo's; of all ranks if they are threads of this process
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<Accelerator> accelerator = std::make_shared<Accelerator>();
  bool orderly = false;                // shutdown() has succeeded
  std::unique_ptr<Watchdog> watchdog;  // the first to go
};

}  // namespace composer::dist
