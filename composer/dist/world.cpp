#include "composer/dist/world.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <utility>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/dist/answer_limit.h"
#include "composer/dist/group.h"
#include "composer/dist/impl.h"
#include "composer/dist/lost.h"
#include "composer/dist/misfit.h"
#include "composer/dist/variables.h"
#include "composer/util/name_format.h"
#include "composer/util/no_sigpipe.h"

namespace composer::dist {

PeerLost::PeerLost(int lost, const std::string& text) : Error(text), rank(lost) {}
PeerLost::~PeerLost() = default;

// Without an orderly end, the sockets are shut down first: Gloo's destructor would wait for collectives that cannot
// end.
World::Impl::~Impl() {
  if (!orderly && watchdog)
    watchdog->fail(std::uncaught_exceptions() > 0 ? "an exception ended it" : "it did not call shutdown()");
  if (orderly) return;
  if (sockets) sockets->shut_down();
  accelerator->abort();
}

World::Impl& World::Impl::of(const std::unique_ptr<Impl>& impl) {
  if (!impl) throw Error("World: a collective was called after shutdown()");
  return *impl;
}

void World::Impl::rethrow() {
  const std::optional<Loss> lost = loss();
  if (!lost) throw;
  if (lost->rank) throw PeerLost(*lost->rank, lost->text);
  if (lost->timed_out) watchdog->timed_out();
  if (const std::optional<Verdict> verdict = watchdog->wait_for_verdict())
    throw PeerLost(verdict->rank, composer::join(verdict->text, " [", lost->text, "]"));
  throw PeerLost(-1, composer::join("a collective failed although all ranks are alive: ", lost->text,
                                    "; last positions: ", watchdog->positions()));
}

World::World(Environment environment, std::unique_ptr<Impl> impl)
    : environment_(std::move(environment)), impl_(std::move(impl)) {}
World::~World() {
  if (impl_ && impl_->joined_by != getpid()) {
    [[maybe_unused]] const Impl* of_parent = impl_.release();
  }
}

std::shared_ptr<World> World::alone() { return std::shared_ptr<World>(new World({}, nullptr)); }

namespace {

DetectorRules rules(const Options& options, bool may_exit) {
  DetectorRules rules;
  rules.dead_after = options.dead_after;
  rules.heartbeat = options.heartbeat;
  rules.unwind = options.unwind;
  rules.may_exit = may_exit;
  return rules;
}

void check(const Options& options) {
  if (options.heartbeat.count() <= 0 || options.dead_after < 4 * options.heartbeat)
    throw ConfigError("Options::dead_after is ", options.dead_after.count(),
                      " ms; it must be at least 4 times heartbeat, ", options.heartbeat.count(),
                      " ms, which must be positive");
}

}  // namespace

std::shared_ptr<World> World::join(const Environment& environment, const Options& options) {
  static std::atomic<int> times_joined = 0;
  check(options);
  if (environment.world_size == 1) return std::shared_ptr<World>(new World(environment, nullptr));
  // Threads inherit the set of blocked signals. The threads of Gloo, the store and the watchdog write to ranks that may
  // be gone, which raises SIGPIPE.
  const util::NoSigpipe no_sigpipe;
  // In a program without Python, nothing else reads the variable.
  if (variable("TORCH_CPP_LOG_LEVEL")) c10::initLogging();
  const int times = times_joined++;
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->options.check_collectives |= variable("COMPOSER_CHECK_COLLECTIVES") == "1";
  impl->store_sockets = std::make_shared<Sockets>(environment.master_port);
  impl->sockets = std::make_shared<Sockets>(environment.master_port);

  impl->store_sockets->begin();
  impl->store = open_store(environment, times, options.store_timeout);
  impl->store_sockets->end();
  {  // limits waits without a timeout; ends later than arrive()
    const AnswerLimit limit(environment.master_port, options.store_timeout + std::chrono::seconds(5));
    arrive(*impl->store, environment, options.store_timeout);
  }
  util::set_process_on_node({.local_rank = environment.local_rank,
                             .local_world_size = environment.local_world_size,
                             .node_rank = environment.node_rank});

  Watchdog::Setup setup{rules(options, /*may_exit=*/true), environment.rank, environment.world_size,
                        rank_of_store(environment)};
  setup.store_sockets = std::make_shared<Sockets>(environment.master_port);
  setup.store_sockets->begin();
  setup.store = second_connection(environment, times, 10 * options.dead_after);  // the detector decides long before
  setup.store_sockets->end();
  setup.abort = [sockets = impl->sockets, of_store = impl->store_sockets, accelerator = impl->accelerator] {
    sockets->shut_down();
    accelerator->abort();
    of_store->shut_down();  // the main thread may wait for an answer of the store
  };
  setup.calls = impl->count_calls();
  impl->watchdog = std::make_unique<Watchdog>(std::move(setup));
  impl->sockets->begin();
  impl->collective([&] { impl->group = make_group(impl->store, environment, options); });
  impl->sockets->end();
  std::shared_ptr<World> world(new World(environment, std::move(impl)));
  explain_misfits(world);
  return world;
}

std::vector<std::shared_ptr<World>> World::in_threads(int size, const Options& options) {
  check(options);
  if (size < 1) throw ConfigError("World::in_threads: ", size, " ranks; there must be at least one");
  if (size == 1) return {alone()};
  const util::NoSigpipe no_sigpipe;
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  const auto sockets = std::make_shared<Sockets>();
  sockets->begin();
  std::vector<std::future<std::shared_ptr<World>>> futures;
  futures.reserve(static_cast<std::size_t>(size));
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
      arrive(*store, environment, options.store_timeout);
      Watchdog::Setup setup{rules(options, /*may_exit=*/false), rank, size, /*store_rank=*/-1, store};
      setup.abort = [sockets, accelerator = impl->accelerator] {
        sockets->shut_down();
        accelerator->abort();
      };
      setup.calls = impl->count_calls();
      impl->watchdog = std::make_unique<Watchdog>(std::move(setup));
      impl->collective([&] { impl->group = make_group(store, environment, options); });
      return std::shared_ptr<World>(new World(std::move(environment), std::move(impl)));
    }));
  std::vector<std::shared_ptr<World>> worlds;
  worlds.reserve(futures.size());
  for (auto& future : futures) worlds.push_back(future.get());
  sockets->end();
  return worlds;
}

void World::use_device(at::Device device) {
  if (is_alone() || device.is_cpu()) return;
  Impl& impl = Impl::of(impl_);
  // Collectives on the device never time out before a lost rank has been detected.
  const Options& options = impl.options;
  const auto timeout = std::max(options.collective_timeout, 2 * options.dead_after + options.unwind);
  impl.accelerator->attach(impl.group, impl.store, environment_, device, timeout);
}

void World::at(std::string_view event, std::int64_t epoch, std::int64_t batch) noexcept {
  if (impl_) impl_->watchdog->at(event, epoch, batch);
}

void World::fail(const std::string& why) noexcept try {
  if (impl_) impl_->watchdog->fail(why);
} catch (...) {  // NOLINT(bugprone-empty-catch): no memory; the others will miss the heartbeat
}

void World::rethrow() {
  if (impl_) impl_->rethrow();
  if (const std::optional<Loss> lost = loss(); lost && lost->rank) throw PeerLost(*lost->rank, lost->text);
  throw;
}

std::shared_ptr<void> World::training() {
  if (!impl_) return nullptr;
  ++*impl_->fits;
  return {nullptr, [fits = impl_->fits](void*) { --*fits; }};
}

void World::shutdown() {
  if (!impl_) return;
  if (!impl_->watchdog->leave(impl_->options.shutdown_timeout)) {
    if (const std::optional<Verdict> verdict = impl_->watchdog->wait_for_verdict())
      throw PeerLost(verdict->rank, verdict->text);
    throw PeerLost(-1, composer::join("World::shutdown: not all ranks called it within ",
                                      impl_->options.shutdown_timeout.count() / 1000,
                                      " s; last positions: ", impl_->watchdog->positions()));
  }
  impl_->orderly = true;
  impl_->accelerator->shutdown();
  impl_.reset();
}

const c10::intrusive_ptr<c10d::ProcessGroup>& World::group() const {
  static const c10::intrusive_ptr<c10d::ProcessGroup> none;
  return impl_ ? impl_->group : none;
}

}  // namespace composer::dist
