#pragma once
#include <string>
#include <vector>

namespace composer::test {

// While it lives, notes which of the system's calls that make files durable this process makes, in their order. They
// are carried out all the same. One at a time.
class SystemCalls {
 public:
  SystemCalls();
  ~SystemCalls();
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
  // "fdatasync PATH", "fsync PATH", "rename FROM TO", "exchange A B"
  std::vector<std::string> made() const;
};

}  // namespace composer::test
