#pragma once
#include <filesystem>
#include <string>
#include <unistd.h>

namespace composer::test {

// A new folder to run in, which is the working directory meanwhile.
class Sandbox {
 public:
  Sandbox() {
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  ~Sandbox() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  Sandbox(const Sandbox&) = delete;
  Sandbox& operator=(const Sandbox&) = delete;

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  static inline int count_ = 0;  // one may be made within another
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("composer-sandbox-" + std::to_string(getpid()) + "-" + std::to_string(++count_));
};

}  // namespace composer::test
