#include "composer/dist/world.h"

#include <atomic>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/dist/group.h"
#include "composer/dist/impl.h"
#include "composer/util/no_sigpipe.h"

namespace composer::dist {

PeerLost::PeerLost(int lost, const std::string& text) : Error(text), rank(lost) {}
PeerLost::~PeerLost() = default;

World::Impl::~Impl() {
  if (!orderly && sockets) sockets->shut_down();  // else Gloo's destructor waits for collectives that cannot end
}

World::World(Environment environment, std::unique_ptr<Impl> impl)
    : environment_(std::move(environment)), impl_(std::move(impl)) {}
World::~World() = default;

std::shared_ptr<World> World::alone() { return std::shared_ptr<World>(new World({}, nullptr)); }

std::shared_ptr<World> World::join(const Environment& environment, const Options& options) {
  static std::atomic<int> times_joined = 0;
  if (environment.world_size == 1) return std::shared_ptr<World>(new World(environment, nullptr));
  // Threads inherit the signals that are blocked. Those of Gloo and of the store write to ranks that may be gone.
  const util::NoSigpipe no_sigpipe;
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->store = open_store(environment, times_joined++, options.store_timeout);
  arrive(*impl->store, environment, options.store_timeout);
  impl->sockets = std::make_shared<Sockets>(environment.master_port);
  impl->sockets->begin();
  impl->group = make_group(impl->store, environment, options);
  impl->sockets->end();
  return std::shared_ptr<World>(new World(environment, std::move(impl)));
}

std::vector<std::shared_ptr<World>> World::in_threads(int size, const Options& options) {
  if (size == 1) return {alone()};
  const util::NoSigpipe no_sigpipe;
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  const auto sockets = std::make_shared<Sockets>();
  sockets->begin();
  std::vector<std::future<std::shared_ptr<World>>> futures;
  for (int rank = 0; rank < size; ++rank)
    futures.push_back(std::async(std::launch::async, [&, rank] {
      Environment environment;
      environment.rank = environment.local_rank = rank;
      environment.world_size = environment.local_world_size = size;
      environment.launcher = "threads";
      auto impl = std::make_unique<Impl>();
      impl->options = options;
      impl->store = store;
      impl->sockets = sockets;
      impl->group = make_group(store, environment, options);
      return std::shared_ptr<World>(new World(std::move(environment), std::move(impl)));
    }));
  std::vector<std::shared_ptr<World>> worlds;
  for (auto& future : futures) worlds.push_back(future.get());
  sockets->end();
  return worlds;
}

void World::at(std::string_view /*event*/, std::int64_t /*epoch*/, std::int64_t /*batch*/) noexcept {}
void World::fail(const std::string& /*why*/) noexcept {}
void World::rethrow() { throw; }

void World::shutdown() {
  if (!impl_) return;
  barrier();
  impl_->orderly = true;
  impl_.reset();
}

const c10::intrusive_ptr<c10d::ProcessGroup>& World::group() const {
  static const c10::intrusive_ptr<c10d::ProcessGroup> none;
  return impl_ ? impl_->group : none;
}

}  // namespace composer::dist
