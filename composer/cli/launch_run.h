#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "composer/cli/launch_output.h"
#include "composer/cli/launch_signals.h"
#include "composer/cli/launch_start.h"
#include "composer/cli/launch_streams.h"

namespace composer::cli {

struct LaunchOptions {
  std::int64_t ranks = 0;  // number of ranks on this machine; 0: one for each GPU
  std::int64_t nodes = 1, node = -1;
  std::int64_t master_port = 0;  // 0: any free port
  std::string master_addr;       // empty: this machine
  std::int64_t max_restarts = 0;
  double grace = 30;  // seconds
  std::string output, log_folder;
  std::vector<std::string> command;

  int first_rank() const { return static_cast<int>(node * ranks); }
};

// A listening socket at the address where rank 0 serves.
class MasterSocket {
 public:
  // `everywhere`: on all interfaces instead of the loopback interface. Throws ConfigError if the port is in use.
  MasterSocket(std::uint16_t port, bool everywhere);
  ~MasterSocket() { close(); }
  MasterSocket(const MasterSocket&) = delete;
  MasterSocket& operator=(const MasterSocket&) = delete;

  int descriptor() const { return descriptor_; }
  std::uint16_t port() const { return port_; }
  void close();

 private:
  int descriptor_ = -1;
  std::uint16_t port_ = 0;
};

// The environment of a rank: that of this process, with the variables that describe the rank.
std::vector<std::string> rank_environment(const LaunchOptions& options, int local_rank, int restart_count,
                                          std::uint16_t port, int master_descriptor);

struct RunResult {
  int code = 0;
  bool interrupted = false;  // by a signal that requests the end
};

// Starts all ranks of this machine once and watches them until all their processes are gone. Throws StartError,
// ConfigError.
RunResult run_ranks(const LaunchOptions& options, const Program& program, OutputMode mode, int restart_count,
                    SignalQueue& signals, Sink& out, Sink& err);

}  // namespace composer::cli
