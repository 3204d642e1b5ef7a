#include <memory>
#include <mutex>

#include "composer/dist/world.h"

namespace composer::dist {
namespace {

struct OfProcess {
  std::mutex mutex;
  std::shared_ptr<World> world;
};
OfProcess& of_this_process() {
  static auto* the_one = new OfProcess;  // never destroyed: a handler at the end of the process uses it
  return *the_one;
}

}  // namespace

std::shared_ptr<World> World::of_process() {
  OfProcess& process = of_this_process();
  const std::lock_guard lock(process.mutex);
  if (!process.world) process.world = join(dist::environment());
  return process.world;
}

int run(const std::function<int()>& body) {
  const std::shared_ptr<World> world = World::of_process();
  const int status = body();
  world->shutdown();
  return status;
}

}  // namespace composer::dist
