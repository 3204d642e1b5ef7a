#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <unistd.h>

#include "composer/dist/impl.h"
#include "composer/dist/watchdog.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

struct OfProcess {
  std::mutex mutex;
  std::shared_ptr<World> world;
  Options options;
  pid_t joined_by = 0;  // a child that this process forks is not a rank
};
OfProcess& of_this_process() {
  static auto* the_one = new OfProcess;  // never destroyed: at_exit() uses it
  return *the_one;
}

std::shared_ptr<World> take_world() {
  OfProcess& process = of_this_process();
  if (getpid() != process.joined_by) return nullptr;
  const std::lock_guard lock(process.mutex);
  return std::exchange(process.world, nullptr);
}

void say(const World* world, const std::string& text) {
  std::cerr << "libcomposer: " + (world ? join("rank ", world->rank(), ": ") : "") + text + "\n" << std::flush;
}

// The exit status of a program whose body has thrown the exception that is being handled.
int status_of_exception(World* world) {
  try {
    if (world) world->rethrow();
    throw;
  } catch (const PeerLost& lost) {
    say(world, lost.what());
    return Watchdog::kExitStatus;
  } catch (...) {
    const std::string text = describe(std::current_exception());
    say(world, text);
    if (world) world->fail(text);
  }
  return EXIT_FAILURE;
}

}  // namespace

// Called at the end of a program that does not use run(): at exit() or a return from main().
void World::at_exit(int status, void* /*unused*/) {
  const std::shared_ptr<World> world = take_world();
  if (!world || !world->impl_) return;
  if (status != 0) return world->fail(composer::join("its program ended with status ", status));
  Impl& impl = *world->impl_;
  std::string error;
  try {
    if (*impl.fits == 0) return world->shutdown();
    if (impl.watchdog->leave(DetectorRules().farewell)) {
      impl.orderly = true;
      return;
    }
    error = "its program called exit() while it trained";
    world->fail(error);
  } catch (...) {
    error = describe(std::current_exception());
  }
  say(world.get(), error);
  std::fflush(nullptr);
  _exit(*impl.fits == 0 ? Watchdog::kExitStatus : EXIT_FAILURE);
}

std::shared_ptr<World> World::of_process(const Options& options) {
  OfProcess& process = of_this_process();
  const std::lock_guard lock(process.mutex);
  if (process.world && (process.world->is_alone() || process.world->impl_)) {
    if (process.world->impl_ && options != Options() && options != process.options)
      warn(
          "World::of_process: its options have no effect, because the process has joined with others; pass them to "
          "dist::run(), or call it first");
    return process.world;
  }
  process.world = join(dist::environment(), options);
  process.joined_by = getpid();
  process.options = options;
  static const int registered = on_exit(at_exit, nullptr);
  (void)registered;
  return process.world;
}

int run(const std::function<int()>& body, const Options& options) {
  std::shared_ptr<World> world;
  int status = EXIT_FAILURE;
  try {
    world = World::of_process(options);
    status = body();
    if (status == 0)
      world->shutdown();
    else
      world->fail(join("its program ended with status ", status));
  } catch (...) {
    status = status_of_exception(world.get());
  }
  world.reset();
  take_world();  // destroys the world, unless the body has kept it
  return status;
}

}  // namespace composer::dist
