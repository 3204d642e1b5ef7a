#include "composer/callbacks/mlperf_system.h"

#include <cstdint>
#include <fstream>
#include <thread>

#include <torch/version.h>

#include <nlohmann/json.hpp>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

namespace composer::callbacks {
namespace {

// The first value of this key in /proc/cpuinfo; empty if there is none.
std::string processor(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

std::string memory() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return {};
  return std::to_string((info.totalram * static_cast<std::uint64_t>(info.mem_unit)) >> 30) + " GB";
}

std::string operating_system() {
  utsname name{};
  if (::uname(&name) != 0) return {};
  return std::string(name.sysname) + ' ' + name.release;
}

}  // namespace

std::string mlperf_system_json(const MLPerfSystem& system) {
  nlohmann::ordered_json json;
  const auto set = [&](const char* key, const std::string& value = {}) { json[key] = value; };
  set("submitter", system.submitter);
  set("division", system.division);
  set("status", system.status);
  set("number_of_nodes", "1");
  set("host_processors_per_node",
      system.host_processors_per_node > 0 ? std::to_string(system.host_processors_per_node) : std::string());
  set("host_processor_model_name", processor("model name"));
  set("host_processor_core_count", processor("cpu cores"));
  set("host_processor_vcpu_count", std::to_string(std::thread::hardware_concurrency()));
  set("host_processor_frequency", processor("cpu MHz"));
  set("host_processor_caches", processor("cache size"));
  set("host_processor_interconnect");
  set("host_memory_capacity", memory());
  for (const char* key : {"host_storage_type", "host_storage_capacity", "host_networking", "host_networking_topology",
                          "host_memory_configuration"})
    set(key);
  set("accelerators_per_node", std::to_string(system.has_accelerator ? system.world_size : 0));
  for (const char* key :
       {"accelerator_model_name", "accelerator_host_interconnect", "accelerator_frequency",
        "accelerator_on-chip_memories", "accelerator_memory_configuration", "accelerator_memory_capacity",
        "accelerator_interconnect", "accelerator_interconnect_topology", "cooling", "hw_notes"})
    set(key);
  set("framework", std::string("libtorch ") + TORCH_VERSION);
  json["other_software_stack"] = {{"cuda_version", ""}, {"composer_version", COMPOSER_VERSION}, {"python_version", ""}};
  set("operating_system", operating_system());
  set("sw_notes");
  set("system_name", system.system_name);
  return json.dump(4, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace composer::callbacks
