#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include "composer/core/error.h"
#include "composer/core/export.h"
#include "composer/dist/environment.h"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace composer::dist {

// A rank is gone, does not answer, or has failed. what() has the rank and its last position.
struct COMPOSER_EXPORT PeerLost : Error {
  PeerLost(int rank, const std::string& text);
  PeerLost(const PeerLost&) = default;
  PeerLost& operator=(const PeerLost&) = default;
  ~PeerLost() override;

  int rank;  // -1: unknown
};

struct Options {
  std::chrono::milliseconds store_timeout = std::chrono::minutes(5);  // time until all ranks have arrived
  // Time for one collective while all ranks are alive.
  std::chrono::milliseconds collective_timeout = std::chrono::minutes(10);
  // Time from shutdown() on this rank to shutdown() on the last one: rank 0 may still be exporting a model.
  std::chrono::milliseconds shutdown_timeout = std::chrono::hours(1);
  std::chrono::milliseconds dead_after = std::chrono::seconds(5);  // a rank without a heartbeat for this long is lost
  std::chrono::milliseconds heartbeat = std::chrono::milliseconds(500);  // interval at which a rank says it is alive
  // Time from the loss of a rank until this process is ended by force, if its main thread does not return from
  // libtorch.
  std::chrono::milliseconds unwind = std::chrono::seconds(3);
  // Ranks compare each collective of World before they make it, by one more message; if they differ, all throw an Error
  // with each rank's call. COMPOSER_CHECK_COLLECTIVES=1 in the environment has the same effect.
  bool check_collectives = false;
  // Network interface for Gloo. Empty: GLOO_SOCKET_IFNAME, or else the interface on the route to MASTER_ADDR.
  std::string interface = {};

  bool operator==(const Options&) const = default;
};

// The processes that train together, seen from one of them. Collectives are calls that every rank makes in the same
// order, with tensors of the same shape and dtype. They throw PeerLost, with the rank, when a rank is lost. With one
// rank, every collective does nothing and costs nothing. Only one thread at a time may call a World.
// Tensors on the CPU are sent through Gloo, tensors on a GPU through NCCL, which is loaded when use_device() names a
// GPU.
class COMPOSER_EXPORT World {
 public:
  // The world that environment() describes. Joined at the first call, and kept until shutdown() or the end of the
  // process. Later calls ignore the options, with a warning if they differ.
  static std::shared_ptr<World> of_process(const Options& options = {});
  // Joins a world; blocks until all ranks have. Throws ConfigError, with their numbers, if ranks do not arrive within
  // store_timeout.
  static std::shared_ptr<World> join(const Environment& environment, const Options& options = {});
  // A world of one rank.
  static std::shared_ptr<World> alone();
  // A world whose ranks are threads of this process, one element for each: for tests of what ranks do together.
  static std::vector<std::shared_ptr<World>> in_threads(int size, const Options& options = {});

  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return environment_.rank; }
  int size() const { return environment_.world_size; }
  bool is_alone() const { return size() == 1; }
  const Environment& environment() const { return environment_; }
  // From now on, collectives also work on tensors of this device. Throws ConfigError if there are no collectives for
  // it.
  void use_device(at::Device device);

  void barrier();
  void sum(const at::Tensor& tensor);  // in place, over all ranks; equal bits on all ranks
  void max(const at::Tensor& tensor);
  void min(const at::Tensor& tensor);
  void broadcast(const at::Tensor& tensor, int root = 0);                // in place
  void broadcast(const std::vector<at::Tensor>& tensors, int root = 0);  // packed into few messages
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor);          // element i is rank i's tensor
  void reduce_scatter(const at::Tensor& part, const at::Tensor& all);    // part: this rank's part of the sum of `all`
  void all_gather_into(const at::Tensor& all, const at::Tensor& part);   // all: the parts, in the order of ranks
  void exchange(const at::Tensor& received, const at::Tensor& sent);     // flat, in size() equal parts (all-to-all)
  std::string broadcast(std::string_view bytes, int root = 0);           // any length; it may differ by rank
  std::vector<std::string> all_gather(std::string_view bytes);           // element i is rank i's bytes, of any length
  // Like sum(), but returns at once. Call the result to wait for the sum. The tensor must not be used meanwhile.
  std::function<void()> start_sum(const at::Tensor& tensor);

  // Sets this rank's position for the messages of others, such as "BATCH_END, epoch 0, batch 17". Costs a few
  // nanoseconds. The text must live as long as the World, like that of to_string(Event).
  void at(std::string_view event, std::int64_t epoch, std::int64_t batch) noexcept;
  // While the result lives, this rank counts as training. If its process ends by exit() meanwhile, the other ranks are
  // told, after a few seconds in which they may end as well.
  std::shared_ptr<void> training();
  // Tells the other ranks that this rank ends with an error, and why. They throw PeerLost then.
  void fail(const std::string& why) noexcept;
  // To be called in a catch block: throws PeerLost if the exception was caused by the loss of a rank, otherwise
  // rethrows it.
  [[noreturn]] void rethrow();
  // The orderly end: waits until all ranks have called it. A world of of_process() does so by itself when the process
  // ends normally. Throws PeerLost if a rank fails instead, or does not call it within shutdown_timeout.
  void shutdown();

  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const;  // null if alone

 private:
  struct Impl;
  static void at_exit(int status, void* unused);
  World(Environment environment, std::unique_ptr<Impl> impl);

  Environment environment_;
  std::unique_ptr<Impl> impl_;
};

// The body of main() for a program of several ranks. Joins, calls `body`, and returns the exit status: the status of
// `body`; 1 after an error, which is printed and told to the other ranks; 75 if another rank is to blame.
COMPOSER_EXPORT int run(const std::function<int()>& body, const Options& options = {});

}  // namespace composer::dist
