#include "composer/dist/misfit.h"

#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <unistd.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

struct Watched {
  std::mutex mutex;
  std::weak_ptr<World> world;
  std::terminate_handler before = nullptr;
};
Watched& watched() {
  static auto* the_one = new Watched;  // never destroyed: threads of Gloo may outlive main()
  return *the_one;
}

std::shared_ptr<World> world_now() {
  const std::lock_guard lock(watched().mutex);
  return watched().world.lock();
}

// The text of the current exception; empty unless it is Gloo's.
std::string text_of_gloo() {
  try {
    if (std::current_exception()) throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    if (text.find("/gloo/") != std::string::npos) return text.substr(0, text.find('\n'));
  } catch (...) {
    return {};
  }
  return {};
}

[[noreturn]] void terminate() {
  const std::string text = text_of_gloo();
  if (const auto world = text.empty() ? nullptr : world_now()) {
    const std::string why = join("the ranks called different collectives, or with tensors of different sizes; set ",
                                 "COMPOSER_CHECK_COLLECTIVES=1 to learn which [", text, "]");
    const std::string line = join("libcomposer: rank ", world->rank(), ": ", why, '\n');
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    world->fail(why);
    ::_exit(EXIT_FAILURE);
  }
  if (const auto before = watched().before) before();
  std::abort();
}

}  // namespace

void explain_misfits(const std::shared_ptr<World>& world) {
  Watched& all = watched();
  const std::lock_guard lock(all.mutex);
  all.world = world;
  if (std::get_terminate() != &terminate) all.before = std::set_terminate(&terminate);
}

}  // namespace composer::dist
