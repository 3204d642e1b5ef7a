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

// A rank is gone, does not answer, or has failed. what() names it and what it did last.
struct COMPOSER_EXPORT PeerLost : Error {
  PeerLost(int rank, const std::string& text);
  PeerLost(const PeerLost&) = default;
  PeerLost& operator=(const PeerLost&) = default;
  ~PeerLost() override;

  int rank;  // -1: unknown
};

struct Options {
  std::chrono::milliseconds store_timeout = std::chrono::minutes(5);        // until all ranks have arrived
  std::chrono::milliseconds collective_timeout = std::chrono::minutes(10);  // of one collective, if all ranks are alive
  // From shutdown() of this rank to that of the last, if all are alive: rank 0 may still be exporting a model.
  std::chrono::milliseconds shutdown_timeout = std::chrono::hours(1);
  // A rank that gives no heartbeat for so long is lost, and every other one ends.
  std::chrono::milliseconds dead_after = std::chrono::seconds(5);
  std::chrono::milliseconds heartbeat = std::chrono::milliseconds(500);
  // From the loss of a rank to the end of this process by force, if its main thread does not come back from libtorch.
  std::chrono::milliseconds unwind = std::chrono::seconds(3);
  // Compares what the ranks are about to do before each collective of World, which takes a message more: instead of
  // ranks that wait for each other or take each other's messages for their own, an Error on all that names what each
  // does. The environment variable COMPOSER_CHECK_COLLECTIVES=1 does the same.
  bool check_collectives = false;
  // Name of the network interface for Gloo. Empty: GLOO_SOCKET_IFNAME, or else the one on the route to MASTER_ADDR.
  std::string interface = {};

  bool operator==(const Options&) const = default;
};

// The processes that train together, seen from one of them. Collectives are calls that every rank makes in the same
// order, with tensors of the same shape and dtype; they throw PeerLost when a rank is lost, naming it. With one rank,
// every collective does nothing and costs nothing. One thread at a time may call a World.
// Tensors on the CPU go through Gloo; on a GPU through NCCL, which is loaded when use_device() names one.
class COMPOSER_EXPORT World {
 public:
  // The world that the environment describes, joined at the first call and kept until the process ends or shutdown().
  // The options matter at the first call.
  static std::shared_ptr<World> of_process(const Options& options = {});
  // Joins; blocks until all ranks have. Throws ConfigError for ranks that do not arrive within store_timeout (named).
  static std::shared_ptr<World> join(const Environment& environment, const Options& options = {});
  // One rank, alone.
  static std::shared_ptr<World> alone();
  // All ranks of a world in this process, each for a thread of its own: for tests of what ranks do together.
  static std::vector<std::shared_ptr<World>> in_threads(int size, const Options& options = {});

  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return environment_.rank; }
  int size() const { return environment_.world_size; }
  bool is_alone() const { return size() == 1; }
  const Environment& environment() const { return environment_; }
  // Collectives work on tensors of this device, too, from now on. Throws ConfigError if there are none for it.
  void use_device(at::Device device);

  void barrier();
  void sum(const at::Tensor& tensor);  // in place, over all ranks; equal bits on all ranks
  void max(const at::Tensor& tensor);
  void min(const at::Tensor& tensor);
  void broadcast(const at::Tensor& tensor, int root = 0);                // in place
  void broadcast(const std::vector<at::Tensor>& tensors, int root = 0);  // in few messages
  std::vector<at::Tensor> all_gather(const at::Tensor& tensor);          // by rank
  void reduce_scatter(const at::Tensor& part, const at::Tensor& all);    // part: sum of the rank's part of all
  void all_gather_into(const at::Tensor& all, const at::Tensor& part);   // all: the parts by rank
  void exchange(const at::Tensor& received, const at::Tensor& sent);     // flat, in `size` equal parts (all-to-all)
  std::string broadcast(std::string_view bytes, int root = 0);           // of any length, which may differ by rank
  std::vector<std::string> all_gather(std::string_view bytes);           // likewise
  // As sum(), but returns at once; call the result to wait. The tensor must not be touched meanwhile.
  std::function<void()> start_sum(const at::Tensor& tensor);

  // Where this rank is, for the messages of others: "BATCH_END, epoch 0, batch 17". Costs a few nanoseconds: the text
  // must live as long as the World, like that of to_string(Event).
  void at(std::string_view event, std::int64_t epoch, std::int64_t batch) noexcept;
  // While the result lives, this rank trains: if its process ends by exit() meanwhile, the others are told, after a few
  // seconds in which they may end as well.
  std::shared_ptr<void> training();
  // Tells the others that this rank ends with an error, and why; they throw PeerLost then.
  void fail(const std::string& why) noexcept;
  // To be called in a handler: throws PeerLost if the exception came of the loss of a rank, else the exception again.
  [[noreturn]] void rethrow();
  // The orderly end: waits for all ranks. of_process() does so itself when the process ends normally.
  // Throws PeerLost if a rank fails instead, or does not call it within shutdown_timeout.
  void shutdown();

  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const;  // null if alone

 private:
  struct Impl;
  static void at_exit(int status, void* unused);
  World(Environment environment, std::unique_ptr<Impl> impl);

  Environment environment_;
  std::unique_ptr<Impl> impl_;
};

// The body of main() of a program of several ranks: joins, runs it, and gives the status to exit with: that of the
// body, 1 after an error (which is printed and told to the other ranks), 75 if another rank is to blame.
COMPOSER_EXPORT int run(const std::function<int()>& body, const Options& options = {});

}  // namespace composer::dist
