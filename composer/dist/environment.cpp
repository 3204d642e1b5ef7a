#include "composer/dist/environment.h"

#include <optional>

#include "composer/core/error.h"
#include "composer/dist/srun.h"
#include "composer/dist/variables.h"

namespace composer::dist {
namespace {

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

// Reads LOCAL_RANK and LOCAL_WORLD_SIZE. Without them, all ranks must be on this machine.
void read_local(Environment& e) {
  const auto rank = integer_variable("LOCAL_RANK", 0, kLargestWorld);
  const auto size = integer_variable("LOCAL_WORLD_SIZE", 1, e.world_size);
  if (rank.has_value() != size.has_value())
    throw ConfigError(rank ? "LOCAL_RANK is set, but LOCAL_WORLD_SIZE is missing"
                           : "LOCAL_WORLD_SIZE is set, but LOCAL_RANK is missing",
                      "; a launcher sets both or neither");
  if (!rank && e.world_size > 1 && !is_loopback(e.master_addr))
    throw ConfigError("LOCAL_RANK and LOCAL_WORLD_SIZE are missing; they are optional only if MASTER_ADDR (here '",
                      e.master_addr, "') is a loopback address");
  e.local_rank = static_cast<int>(rank.value_or(e.rank));
  e.local_world_size = static_cast<int>(size.value_or(e.world_size));
  if (e.local_rank >= e.local_world_size)
    throw ConfigError("LOCAL_RANK=", e.local_rank, " contradicts LOCAL_WORLD_SIZE=", e.local_world_size,
                      "; local ranks count from 0");
  if (e.local_rank > e.rank)
    throw ConfigError("LOCAL_RANK=", e.local_rank, " contradicts RANK=", e.rank, "; a local rank is never larger");
}

void read_node(Environment& e) {
  const auto node = integer_variable("NODE_RANK", 0, kLargestWorld),
             group = integer_variable("GROUP_RANK", 0, kLargestWorld);
  if (node && group && *node != *group)
    throw ConfigError("NODE_RANK=", *node, " contradicts GROUP_RANK=", *group, "; unset one of them");
  e.node_rank = static_cast<int>(node.value_or(group.value_or(0)));
  if (e.local_world_size == e.world_size && e.node_rank != 0)
    throw ConfigError(node ? "NODE_RANK=" : "GROUP_RANK=", e.node_rank,
                      " contradicts LOCAL_WORLD_SIZE=", e.local_world_size,
                      ", which says that all ranks are on one machine");
}

void read_master(Environment& e) {
  const auto address = variable("MASTER_ADDR");
  const auto port = integer_variable("MASTER_PORT", 1, 65535);
  if (e.world_size > 1 && !address)
    throw ConfigError("the environment variable MASTER_ADDR is missing; it names the machine of rank 0");
  if (e.world_size > 1 && !port)
    throw ConfigError("the environment variable MASTER_PORT is missing; it is a free port on the machine of rank 0");
  if (address) e.master_addr = *address;
  if (port) e.master_port = static_cast<std::uint16_t>(*port);
}

Environment environment_of_launcher() {
  Environment e;
  e.world_size = static_cast<int>(required_variable("WORLD_SIZE", 1, kLargestWorld));
  e.rank = static_cast<int>(required_variable("RANK", 0, kLargestWorld));
  if (e.rank >= e.world_size)
    throw ConfigError("RANK=", e.rank, " contradicts WORLD_SIZE=", e.world_size, "; ranks count from 0");
  read_master(e);
  read_local(e);
  read_node(e);
  e.restart_count = static_cast<int>(integer_variable("TORCHELASTIC_RESTART_COUNT", 0, 1 << 30).value_or(0));
  e.agent_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";  // torchrun writes Python's text for true
  const std::string run = variable("TORCHELASTIC_RUN_ID").value_or("none");
  if (run != "none") e.job = "torchrun " + run;
  const auto ours = variable("COMPOSER_LAUNCHER");
  e.launcher = ours ? *ours : variable("TORCHELASTIC_RUN_ID") ? "torchrun" : "the environment";
  return e;
}

}  // namespace

Environment environment() {
  if (variable("RANK") || variable("WORLD_SIZE")) return environment_of_launcher();
  if (started_by_srun()) return environment_of_srun();
  if (const auto size = variable("OMPI_COMM_WORLD_SIZE"); size && *size != "1")
    warn(join("started by mpirun, ", *size, " processes each train alone, because RANK, WORLD_SIZE, MASTER_ADDR and ",
              "MASTER_PORT are not set; use composer launch, or set them (RANK=$OMPI_COMM_WORLD_RANK ...)"));
  return {};
}

}  // namespace composer::dist
