#pragma once
// Measurements of a device or of the machine.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace composer {

struct Reading {
  std::string key;  // "cpu_memory_total"
  std::variant<std::int64_t, double> value;
};
using Readings = std::vector<Reading>;

// Reads measurements of one device, such as its load and its temperature. Used by one thread.
class DeviceReader {
 public:
  DeviceReader() = default;
  virtual ~DeviceReader() = default;
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;

  virtual void add(Readings& readings) const = 0;  // leaves out what the device does not report
};

}  // namespace composer
