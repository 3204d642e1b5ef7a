// The CPU quota of a container limits the processors that count, as far up as control groups have one.
#include "composer/util/usable_processors.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/doctest.h"
#include "tests/support/folder.h"

namespace composer::usable_processors_test {
namespace {

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text << '\n';
}

TEST_CASE("A CPU quota of a control group, or of one that it is in, is the number of usable processors") {
  const std::int64_t all = std::max(1U, std::thread::hardware_concurrency());
  const struct {
    const char *of_group, *of_parent, *of_root;
    std::int64_t quota;
  } cases[] = {{"max 100000", "max 100000", "max 100000", all},
               {"100000 100000", "max 100000", "max 100000", 1},
               {"max 100000", "150000 100000", "max 100000", 2},
               {"max 100000", "max 100000", "1000 100000", 1},
               {"nothing", "", "0 0", all}};
  for (const auto& [of_group, of_parent, of_root, quota] : cases) {
    CAPTURE(of_group);
    const test::Folder root;
    write(root / "proc/self/cgroup", "0::/slice/container");
    write(root / "sys/fs/cgroup/slice/container/cpu.max", of_group);
    write(root / "sys/fs/cgroup/slice/cpu.max", of_parent);
    write(root / "sys/fs/cgroup/cpu.max", of_root);
    CHECK(util::usable_processors(root.path()) == std::min(all, quota));
  }
}

TEST_CASE("A CPU quota of version 1 counts, and -1 is none") {
  const std::int64_t all = std::max(1U, std::thread::hardware_concurrency());
  const test::Folder root;
  CHECK(util::usable_processors(root.path()) == all);
  write(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  CHECK(util::usable_processors(root.path()) == all);
  write(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000");
  CHECK(util::usable_processors(root.path()) == 1);
}

}  // namespace
}  // namespace composer::usable_processors_test
