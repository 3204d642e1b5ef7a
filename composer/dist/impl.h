#pragma once
#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "composer/dist/collectives.h"
#include "composer/dist/sockets.h"
#include "composer/dist/store.h"
#include "composer/dist/world.h"

namespace composer::dist {

// What a world of several ranks has. A world of one rank has none.
struct World::Impl {
  ~Impl();

  // Calls the function. An exception that leaves it becomes PeerLost if a rank is lost.
  template <class Function>
  void collective(Function&& function);
  c10d::Backend& backend(const at::Tensor& tensor) const;  // of the tensor's device
  WorkPtr start_reduce(const at::Tensor& tensor, ReduceOp op);
  void reduce(const at::Tensor& tensor, ReduceOp op);  // in place

  Options options;
  StorePtr store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<Sockets> sockets;  // Gloo's; of all ranks if they are threads of this process
  bool orderly = false;              // shutdown() has succeeded
};

}  // namespace composer::dist
