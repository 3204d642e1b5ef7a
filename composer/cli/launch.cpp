// composer launch [OPTIONS] -- COMMAND...
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <sys/wait.h>

#include "composer/cli/console.h"
#include "composer/cli/launch_run.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/device/device_support.h"

namespace composer::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostRanks = 1024;

const std::map<std::string, OutputMode> kModes = {{"", OutputMode::MIXED},
                                                  {"prefix", OutputMode::PREFIX},
                                                  {"files", OutputMode::FILES},
                                                  {"rank0", OutputMode::RANK0}};

// Counts accelerators in a separate process, so that the driver opens no files and starts no threads in this one.
std::int64_t accelerators() {
  const std::optional<at::DeviceType> type = available_accelerator();
  if (!type) return 0;
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    try {
      count = device_support(*type).count();
    } catch (...) {  // NOLINT(bugprone-empty-catch): no driver
    }
    ::_exit(count);
  }
  int status = 0;
  const bool known = child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status);
  return known ? WEXITSTATUS(status) : 0;
}

void check_nodes(LaunchOptions& options) {
  if (options.nodes < 1) throw ConfigError("--nnodes: must be >= 1, got ", options.nodes);
  if (options.master_port < 0 || options.master_port > 65535)
    throw ConfigError("--master-port: must be in [1, 65535], got ", options.master_port);
  if (options.nodes == 1) {
    if (options.node > 0) throw ConfigError("--node-rank: must be < --nnodes (1), got ", options.node);
    options.node = 0;
    return;
  }
  std::string missing;
  if (options.node < 0) missing += " --node-rank";
  if (options.master_addr.empty()) missing += " --master-addr";
  if (options.master_port == 0) missing += " --master-port";
  if (!missing.empty()) throw ConfigError("--nnodes ", options.nodes, ": also needs", missing);
  if (options.node >= options.nodes)
    throw ConfigError("--node-rank: must be < --nnodes (", options.nodes, "), got ", options.node);
  if (options.max_restarts > 0)
    throw ConfigError("--max-restarts: works on one node only, because the launchers of several nodes do not know of ",
                      "each other; let your scheduler start all of them again");
}

void check_launch(LaunchOptions& options, bool ranks_given) {
  if (options.command.empty())
    throw ConfigError("launch: no program to start; it follows --, as in: composer launch -n 2 -- ./train");
  if (!ranks_given) options.ranks = std::max<std::int64_t>(1, accelerators());
  if (options.ranks < 1 || options.ranks > kMostRanks)
    throw ConfigError("--nproc: must be in [1, ", kMostRanks, "], got ", options.ranks);
  check_nodes(options);
  if (options.max_restarts < 0) throw ConfigError("--max-restarts: must be >= 0, got ", options.max_restarts);
  if (!(options.grace >= 0) || std::isinf(options.grace))
    throw ConfigError("--grace: must be >= 0, got ", options.grace);
  if (!options.log_folder.empty() && options.output.empty()) options.output = "files";
  if (!kModes.contains(options.output))
    throw ConfigError("--output: must be prefix, files or rank0, got ", options.output);
  if (options.log_folder.empty() == (options.output == "files"))
    throw ConfigError("--output files and --log-folder belong together, got --output ", options.output,
                      options.log_folder.empty() ? " without --log-folder" : " with --log-folder");
}

void make_log_folder(const std::string& folder) {
  if (folder.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw ConfigError("--log-folder: cannot make ", folder, ": ", error.message());
}

// Prevents a descriptor of ours from becoming that of a closed stdin, stdout or stderr.
void open_standard_descriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number)
    if (::fcntl(number, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
}

int launch(LaunchOptions options, bool ranks_given, const Console& console) {
  check_launch(options, ranks_given);
  open_standard_descriptors();
  Sink out(STDOUT_FILENO), err(STDERR_FILENO);
  RunResult result;
  try {
    const Program program = find_program(options.command);
    make_log_folder(options.log_folder);
    ::signal(SIGPIPE, SIG_IGN);  // for this process and the ranks: a reader that is gone becomes an error of the write
    SignalQueue signals;
    for (int restarts = 0;; ++restarts) {
      result = run_ranks(options, program, kModes.at(options.output), restarts, signals, out, err);
      if (result.code == 0 || result.interrupted || restarts == options.max_restarts) break;
      err.pending() += join("composer: restart ", restarts + 1, " of ", options.max_restarts, '\n');
    }
  } catch (const StartError& error) {
    console.err << "composer: " << one_line(error) << '\n';
    return error.code;
  }
  out.flush();
  err.flush();
  return result.code;
}

}  // namespace

Command add_launch(CLI::App& app, std::vector<std::string> program) {
  auto options = std::make_shared<LaunchOptions>();
  options->command = std::move(program);
  CLI::App* command = app.add_subcommand("launch", "starts the ranks of a training program and watches them");
  CLI::Option* ranks =
      command->add_option("-n,--nproc,--nproc-per-node", options->ranks, "ranks on this machine; default: one per GPU")
          ->type_name("N");
  command->add_option("--nnodes", options->nodes, "number of machines (1)")->type_name("N");
  command->add_option("--node-rank", options->node, "number of this machine, from 0")->type_name("N");
  command->add_option("--master-addr", options->master_addr, "machine 0, where rank 0 serves (127.0.0.1)")
      ->type_name("HOST");
  command->add_option("--master-port", options->master_port, "its port; default: a free one")->type_name("PORT");
  command->add_option("--max-restarts", options->max_restarts, "starts after a failure (0)")->type_name("N");
  command->add_option("--grace", options->grace, "time from SIGTERM to SIGKILL (30)")->type_name("SECONDS");
  command->add_option("--output", options->output, "prefix, files or rank0")->type_name("MODE");
  command->add_option("--log-folder", options->log_folder, "folder for --output files")->type_name("FOLDER");
  command->footer(
      "The program and its arguments follow --. Without --output, the output of rank 0\n"
      "passes through and each line of the other ranks gets its rank as a prefix.\n"
      "The first rank that fails ends all others.\n"
      "Exit codes: 0 every rank ended with 0; that of the rank that failed first, or\n"
      "128 + its signal; 2 an error; 127 there is no such program.");
  return {command, [options, ranks](const Console& console) { return launch(*options, ranks->count() > 0, console); }};
}

}  // namespace composer::cli
